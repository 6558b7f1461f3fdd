"""Runs of a lab in, entries of an experiment tracker out. Training knows nothing of it."""
