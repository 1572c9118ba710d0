"""How the search behaves: the paper's experiments E4, E5 and E6 as counts and times of our own engine."""
