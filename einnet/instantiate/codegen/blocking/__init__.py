"""Blocks of rows: nested reductions along the loops of a nest, one after the other for a part of its rows."""
