"""Expressions that differ already where a few values of them are looked at: this is seen first, as proofs of what is false take longest."""

from __future__ import annotations

import random
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from einnet.derivation.checker.draws import GENERIC, Choice, Draw
from einnet.derivation.checker.oracle import ORDERED, nature, reproduced
from einnet.derivation.checker.suspects import every_point
from einnet.errors import UsageError
from einnet.expr.nodes import Scope, tensors
from einnet.expr.values.arithmetic import Strict
from einnet.expr.values.points import effort, evaluate_at, values_at

Points = NDArray[np.int64]

MOST_POINTS = 32
FEWEST_POINTS = 2
MOST_EFFORT = 200_000
"""Body evaluations per side; where the fewest points take more, nothing is evaluated."""

CLOSE = 1e-6
"""Doubles that are no farther apart may differ by rounding; what is farther apart is looked at exactly."""

SUSPECTS = 3


def refuted(one: Scope, other: Scope) -> str | None:
    """Where the two differ, with the values there; None where they agree at the few points tried, or where these would take too much."""
    if one.box != other.box or not prod(one.shape) or not same_tensors(one, other):
        return None
    points = few_points(one, other)
    if not len(points):
        return None
    try:
        return by_reals(one, other, points) if max(nature(one), nature(other)) == ORDERED else by_residues(one, other, points)
    except UsageError:  # an index leaves the whole numbers that are computed with
        return None


def same_tensors(one: Scope, other: Scope) -> bool:
    """Tensors of one name are one tensor."""
    try:
        left, right = tensors(one), tensors(other)
    except ValueError:
        return False
    return all(left[name] == right[name] for name in left.keys() & right.keys())


def by_residues(one: Scope, other: Scope, points: Points) -> str | None:
    """Sums, products and quotients, modulo a prime."""
    left, right = evaluate_at(one, points, 1), evaluate_at(other, points, 1)
    differ = np.flatnonzero(left != right)
    if not differ.size:
        return None
    real = reproduced(one, other, point(points[differ[0]]))
    values = f"{int(left[differ[0]])} before, {int(right[differ[0]])} after (modulo 2^61-1, seed 1)"
    return differing(one, points[differ[0]], f"{real}; {values}" if real else values)


def by_reals(one: Scope, other: Scope, points: Points) -> str | None:
    """What has an order in it, over the reals: by values that no rounding explains."""
    draw = Draw("generic", Choice(GENERIC, "few points"))
    left, right = (np.asarray(values_at(s, points, Strict(), draw.floats, whole_numbers), dtype=np.float64) for s in (one, other))
    with np.errstate(all="ignore"):
        alike = np.isclose(left, right, rtol=CLOSE, atol=0.0, equal_nan=True)
    for n in np.flatnonzero(~alike)[:SUSPECTS]:
        found = reproduced(one, other, point(points[n]))
        if found:
            return differing(one, points[n], str(found))
    return None


def whole_numbers(array: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The whole numbers that all of these are; None where one is none. What is read at a place is one row of a table then, not all of them."""
    found = np.asarray(array)
    return found.astype(np.int64) if bool((np.rint(found) == found).all() and (np.abs(found) < 2.0**62).all()) else None


@lru_cache(maxsize=1 << 10)
def few_points(one: Scope, other: Scope) -> Points:
    """All points of a small box, else some of which every second lies at an edge; as many as may be evaluated, and none where these are too few."""
    count = MOST_POINTS
    while count >= FEWEST_POINTS and max(effort(one, count), effort(other, count)) > MOST_EFFORT:
        count //= 2
    if count < FEWEST_POINTS:
        return np.zeros((0, len(one.box)), dtype=np.int64)
    if prod(one.shape) <= count:
        return every_point(one)
    generator = random.Random(count)
    return np.asarray([scattered(one, generator, edge=bool(n % 2)) for n in range(count)], dtype=np.int64)


def scattered(scope: Scope, generator: random.Random, edge: bool) -> list[int]:
    """A point of the box; with `edge` at one in a dimension."""
    found = [generator.randrange(lo, hi) for lo, hi in scope.box]
    if edge:
        axis = generator.randrange(len(found))
        lo, hi = scope.box[axis]
        found[axis] = generator.choice((lo, hi - 1))
    return found


def point(found: Points) -> tuple[int, ...]:
    return tuple(int(x) for x in found)


def differing(scope: Scope, found: Points, values: str) -> str:
    """A difference in words, by the names of the iterators."""
    place = ", ".join(f"{i.name}={x}" for i, x in zip(scope.loops, point(found), strict=True))
    return f"the two sides differ at [{place}]: {values}"
