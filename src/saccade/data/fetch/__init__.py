"""Names of public data sets in; checked arrays in the cache out."""
