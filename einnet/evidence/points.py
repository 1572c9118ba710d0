"""Expressions at some points, over arrays, with bounds of their errors in single precision."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from einnet.evidence.limits import Bounded, pair
from einnet.expr.arithmetic import Array
from einnet.expr.nodes import Scope
from einnet.expr.points import values_at, work

FEWEST = 4


def some_points(scope: Scope, budget: int, most: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Points of the scope's box, all of them or so many that evaluating costs about the budget, spread evenly from a random start."""
    size = prod(scope.shape)
    count = min(size, most)
    while count > FEWEST and work(scope, count) > budget:
        count //= 2
    start = int(np.random.default_rng(seed).integers(max(size // max(count, 1), 1))) if size else 0
    flat = (start + np.arange(count) * (size / max(count, 1)).__floor__()) if count < size else np.arange(size)
    columns = np.unravel_index(np.unique(flat), scope.shape) if scope.shape else ()
    rank = len(scope.shape)
    return np.stack([c + lo for c, (lo, _) in zip(columns, scope.box)], axis=1) if rank else np.zeros((min(size, 1), 0), np.int64)


Points = np.ndarray[Any, np.dtype[np.int64]]


def bounded_at(scope: Scope, points: Points, arrays: Mapping[str, Array], errors: Mapping[str, float]) -> tuple[Array, Array]:
    """Values of the scope at points, and how far single precision may be from them; `errors` are absolute ones of the arrays, 0 where not given."""
    held = {name: pair(np.asarray(a, np.float64).reshape(-1), errors.get(name, 0.0)) for name, a in arrays.items()}
    with np.errstate(all="ignore"):
        found = values_at(scope, points, Bounded(), lambda t, address: np.take(held[t.name], np.clip(address, 0, max(held[t.name].size - 1, 0))))
    return found.real, found.imag
