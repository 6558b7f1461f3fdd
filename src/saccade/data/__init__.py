"""Data: real sets fetched and checked, drawn ones, and constructions made from them, one per file."""
