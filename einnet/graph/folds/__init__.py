"""Folds: a step done so many times, each on the state that the one before has left. Scan and Loop are such."""
