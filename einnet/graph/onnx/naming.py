"""Names of tensors in the notation, made from ONNX names."""

from __future__ import annotations

import re

from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import REDUCTIONS

_RESERVED = {"L", "Σ", "inf", "val", "select", "weight", *REDUCTIONS, *FUNCTIONS}


def identifier(name: str) -> str:
    """A readable identifier of the notation: letters, digits and single underscores."""
    text = re.sub(r"\W+|_+", "_", name, flags=re.ASCII).strip("_") or "t"
    if text[0].isdigit():
        text = f"t{text}"
    return f"{text}_" if text in _RESERVED else text


class Namer:
    """Hands out identifiers, each once."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def __call__(self, name: str) -> str:
        return take(identifier(name), self.taken)


def take(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; it is from now on."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found
