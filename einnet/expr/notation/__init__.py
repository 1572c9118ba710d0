"""Expressions as people read them: the text form with its grammar, LaTeX, HTML and pictures."""
