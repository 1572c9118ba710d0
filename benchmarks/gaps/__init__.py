"""Pairs of equal expressions, one of them cheaper, that no derivation of the rules connects: where rules are missing."""
