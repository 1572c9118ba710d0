"""Quantised models: tensors of few integers are bytes, their products integers, and their functions tables."""
