"""Passes over whole programs, before and after derivation."""
