"""From a model to a program, for any target: prepared, searched, certified, verified, told."""
