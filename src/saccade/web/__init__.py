"""The explorer: a lab in, pages for a browser out, from a server on this machine or as a folder of files."""
