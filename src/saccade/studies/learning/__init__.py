"""What the study of learning curves is made of: which runs, which numbers of them, which pictures."""
