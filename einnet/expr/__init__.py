"""The tensor-algebra language. Imported with its keys and its printers, which the nodes name and these modules define."""

from einnet.expr import key
from einnet.expr.notation import latex, markup, printing

__all__ = ["key", "latex", "markup", "printing"]
