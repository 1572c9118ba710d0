"""Engines on a CUDA card, timed alike: one process each, one graph for an inference, with hot and with flushed caches."""
