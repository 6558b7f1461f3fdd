"""A run in; events and trained weights out. loop.py is the one training loop."""
