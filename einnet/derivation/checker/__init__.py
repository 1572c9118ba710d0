"""The checker of derivations. It knows no rule: it compares what two expressions mean."""
