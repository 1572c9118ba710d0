"""Evidence that a stored program is the model: its kernels lifted to expressions and proven, its code run on integers, its constants made again."""
