"""A call of a vendor library as data."""

from __future__ import annotations

from dataclasses import dataclass

from einnet.instantiate.kernels.views import View

SOURCE, RESULT = 1, 17
"""Numbers of oneDNN's arguments: what is read, what is written."""

Parameter = int | float | tuple[int, ...] | None
"""An integer, a number, a list of sizes, or a description that is left out."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of oneDNN's primitives: its name as in the C API (`pooling_forward`), and what its descriptor is made of.

    The descriptor takes the parameters `before` (kind of propagation, algorithm), a description of each of the `operands` (by argument number), and
    the parameters `after` those, in the order of the C function.
    """

    name: str
    before: tuple[Parameter, ...]
    operands: tuple[tuple[int, View], ...]
    after: tuple[Parameter, ...]
