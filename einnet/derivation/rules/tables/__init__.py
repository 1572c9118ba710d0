"""Rules about operands whose values are known."""
