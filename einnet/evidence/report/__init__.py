"""The report of an optimization: what was decided and measured."""
