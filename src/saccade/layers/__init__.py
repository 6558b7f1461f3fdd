"""Exact algebra as layers: each is equal to a dense reference that stands beside it."""
