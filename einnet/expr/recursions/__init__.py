"""Recursions: tensors that equations define along time, each by what was before it."""
