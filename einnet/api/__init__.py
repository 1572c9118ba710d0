"""What the public names of `einnet` do: optimize a model, load a result, parse and derive expressions, verify, report."""
