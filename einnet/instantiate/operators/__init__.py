"""Vendor operators that are no contractions, a module each."""
