"""What rules are made of, and what other packages do with the same moves."""
