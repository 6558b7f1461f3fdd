"""What probes and users share: a model in; equivariance errors, attention maps, or a convolution as attention out."""
