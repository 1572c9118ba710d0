"""Public suites of PyTorch programs, read from where the user has them: what einnet's backend makes of each, beside eager mode and Inductor."""
