"""How much more an algorithm errs than another of the same value, where the factors of its products are rounded by chance.

A product u*v whose factors are rounded errs by u*v*(d + e), with d and e of one mean square and nothing to do with anything else. What is added up of
such errors has the sum of their mean squares. So an expression of sums and products, evaluated with the squares of its constants at elements of mean
square 1, is the mean square of its error, but for what d and e are. It is that of its value, too, where nothing cancels: of a plain sum of products.
"""

from __future__ import annotations

from functools import reduce
from math import inf, isfinite, sqrt

import numpy as np

from einnet.expr.nodes import Number, Scope
from einnet.expr.values.arithmetic import Array, Machine
from einnet.expr.values.points import effort, values_at

MOST_EFFORT = 1 << 24
"""Operations of an evaluation at most."""

ALONG = 12
"""Points that are looked at, one after the other along all dimensions: of a tile of so many outputs each."""


class MeanSquares(Machine):
    """Numbers stand for mean squares. Functions hand on what they are given: two algorithms of one value end in the same ones."""

    def __init__(self) -> None:
        super().__init__("float64")

    def number(self, value: Number) -> Array:
        return np.square(super().number(value))

    def values(self, array: Array) -> Array:
        return np.square(super().values(array))

    def integers(self, array: Array, den: int) -> Array:
        return np.square(super().integers(array, den))

    def call(self, name: str, args: tuple[Array, ...]) -> Array:
        del name
        return np.asarray(reduce(np.maximum, args))


def growth(before: Scope, after: Scope) -> float:
    """How many times as much `after` errs as `before`, of which it is another form, where the factors of both are rounded: at the point where that is
    most, of some. Infinite where it is not told."""
    points = np.array(looked_at(before), np.int64).reshape(-1, len(before.loops))
    if max(effort(before, len(points)), effort(after, len(points))) > MOST_EFFORT:
        return inf
    least, most = (values_at(s, points, MeanSquares(), lambda t, address: np.ones(np.shape(address))) for s in (before, after))
    with np.errstate(invalid="ignore"):  # of infinities, which stand for places that a maximum leaves out
        ratio = float(np.max(np.divide(most, least, out=np.ones(len(points)), where=least > 0), initial=1.0))
    return sqrt(ratio) if isfinite(ratio) else inf


def looked_at(scope: Scope) -> list[tuple[int, ...]]:
    """Points that go on by one along all dimensions, around the middle of the loops' box."""
    begins = [i.lo + max(i.extent - ALONG, 0) // 2 for i in scope.loops]
    return [tuple(b + n % i.extent for b, i in zip(begins, scope.loops, strict=True)) for n in range(ALONG)]
