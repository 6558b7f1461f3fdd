"""Parts of the study block_ablations: arms, what is read from the rows, and drawings."""
