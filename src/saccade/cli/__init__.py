"""Words of a command line in; calls of the lab and lines on a terminal out."""
