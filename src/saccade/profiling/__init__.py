"""One page on one model: a subject and data in; measured rows, a document and comparisons out."""
