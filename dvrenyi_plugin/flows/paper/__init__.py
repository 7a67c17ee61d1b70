"""What only reproduces the paper: its scheme, Gaussian flows, its KL theorem."""
