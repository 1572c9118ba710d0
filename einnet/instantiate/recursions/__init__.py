"""Recursions as kernels: what is computed at one time is generated code, and times follow one another."""
