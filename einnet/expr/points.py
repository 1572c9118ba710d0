"""Evaluation of a scope at a few output points modulo 2^61 - 1, with pseudo-random functions for tensors.

Nothing is materialised: a nested scope is evaluated at the points that are read, so that expressions are compared at their real extents.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.arithmetic import Array, Modular
from einnet.expr.bodies import Environment, Integers, flat_address, reduced, terms, values
from einnet.expr.index import Range
from einnet.expr.modular import Residues, random_function, residue, seed_of
from einnet.expr.nodes import Read, Scope, Tensor, neutral, reads

_CHUNK = 1 << 18
"""Elements of one intermediate array."""

_SYSTEM = Modular()


def evaluate_at(scope: Scope, points: NDArray[np.int64], seed: int) -> Residues:
    """Values at `points`, an array of shape (n, rank), as uint64 residues; 0 outside the scope's box.

    Element `index` of tensor `name` is hash(seed, name, address of index). Infinities are the codes of `einnet.expr.modular`.
    """
    result = np.zeros(len(points), dtype=np.uint64)
    inside = np.ones(len(points), dtype=np.bool_)
    for axis, (lo, hi) in enumerate(scope.box):
        inside &= (points[:, axis] >= lo) & (points[:, axis] < hi)
    with np.errstate(over="ignore"):
        result[inside] = _at(scope, points[inside], seed)
    return result


def work(scope: Scope, points: int) -> int:
    """Body evaluations needed for some points, at most; a nested scope is evaluated at no more points than it has."""
    here = points * prod(i.extent for i in scope.sums)
    return here + sum(work(r.base, min(here, prod(r.base.shape))) for r in reads(scope.body) if isinstance(r.base, Scope))


def _at(s: Scope, points: NDArray[np.int64], seed: int) -> Residues:
    if any(i.extent == 0 for i in s.sums):
        return np.full(len(points), residue(neutral(s.reduce)), dtype=np.uint64)
    size = prod(i.extent for i in s.sums)
    step = max(1, _CHUNK // size)
    ranges = {i.name: i.range for i in s.sums}
    parts = [_block(s, points[k : k + step], ranges, seed) for k in range(0, len(points), step)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


def _block(s: Scope, points: NDArray[np.int64], ranges: dict[str, Range], seed: int) -> Residues:
    """The reduction over a part of the sums, halved until intermediate arrays are small."""
    size = len(points) * prod(hi - lo for lo, hi in ranges.values())
    if size > _CHUNK:
        name = max(ranges, key=lambda n: ranges[n][1] - ranges[n][0])
        lo, hi = ranges[name]
        if hi - lo > 1:
            middle = (lo + hi) // 2
            halves = [_block(s, points, {**ranges, name: part}, seed) for part in ((lo, middle), (middle, hi))]
            return _SYSTEM.reduce(s.reduce, np.stack(halves), (0,))
    shape = (len(points), *(hi - lo for lo, hi in ranges.values()))

    def along(axis: int, array: NDArray[np.int64]) -> Integers:
        return array.reshape([-1 if a == axis else 1 for a in range(len(shape))])

    env = {i.name: along(0, points[:, k]) for k, i in enumerate(s.loops)}
    env |= {n: along(1 + k, np.arange(*r)) for k, (n, r) in enumerate(ranges.items())}

    def read(r: Read, at: Environment) -> Array:
        return _read(r, at, seed)

    parts = [reduced(_SYSTEM, s.reduce, values(t, env, _SYSTEM, read), 1, shape) for t in terms(s)]
    return np.broadcast_to(reduce(_SYSTEM.add, parts), (len(points),))


def _read(r: Read, env: Environment, seed: int) -> Array:
    address, inside = flat_address(r.index, r.base.box, env)
    if isinstance(r.base, Tensor) and r.base.values is not None:
        table = np.array([residue(v) for v in r.base.values], dtype=np.uint64)
        found: Array = np.take(table, np.clip(address, 0, len(table) - 1))
    elif isinstance(r.base, Tensor):
        found = random_function(seed_of(seed, r.base.name), (address,))
    else:
        found = _read_scope(r.base, address, inside, seed)
    return found if inside is None else np.where(inside, found, residue(r.fill))


def _read_scope(s: Scope, address: Integers, inside: NDArray[np.bool_] | None, seed: int) -> Array:
    """The scope's values at flat addresses; each distinct one is evaluated once, those outside not at all."""
    if inside is None:
        distinct, back = np.unique(address, return_inverse=True)
        return _at(s, _unravel(distinct, s), seed)[back].reshape(address.shape)
    address, inside = np.broadcast_arrays(address, inside)
    found = np.zeros(address.shape, dtype=np.uint64)
    distinct, back = np.unique(address[inside], return_inverse=True)
    found[inside] = _at(s, _unravel(distinct, s), seed)[back]
    return found


def _unravel(address: NDArray[Any], s: Scope) -> NDArray[np.int64]:
    rest, columns = address, []
    for lo, hi in reversed(s.box):
        rest, at = np.divmod(rest, hi - lo)
        columns.append(at + lo)
    return np.stack(columns[::-1], axis=1) if columns else np.zeros((len(address), 0), dtype=np.int64)
