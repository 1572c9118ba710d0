"""Rules that normalisation applies: what they make of an expression is no choice."""
