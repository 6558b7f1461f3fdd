"""One question a file. A probe is a generator of rows over one subject; its keyword arguments are its settings."""
