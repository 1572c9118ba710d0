"""The normal form of the checker: what is left of an expression when all freedom in writing it is taken away."""
