"""One paper a file; each ends in a STUDY value."""
