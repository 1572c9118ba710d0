"""Operator matching: an expression against the rows of vendor operators (paper section 5.1)."""
