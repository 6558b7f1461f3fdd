"""What the study of attention as convolution is made of: which runs, which numbers of them, which pictures."""
