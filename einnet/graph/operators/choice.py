"""Where with a constant mask: regions of the mask become affine conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from einnet.expr.index import Index, var
from einnet.expr.nodes import Call, Cond, Iter, Scope, Select
from einnet.graph.operators.builders import broadcast, loops_of
from einnet.graph.operators.op import Function, Op, Result


def progression(e: Index, hits: np.ndarray, low: int) -> tuple[Cond, ...] | None:
    """Conditions on e for an arithmetic progression of values; `hits[k]` is the mask at e = low + k. None if it is none."""
    where = np.flatnonzero(hits)
    if not where.size:
        return (Cond(Index((), -1)),)
    step = int(where[1] - where[0]) if where.size > 1 else 1
    first, last = int(where[0]), int(where[-1])
    if not np.array_equal(where, np.arange(first, last + 1, step)):
        return None
    conds = []
    if first - step >= 0:
        conds.append(Cond(e - (low + first)))
    if last + step < hits.size:
        conds.append(Cond(low + last - e))
    if step > 1:
        conds.append(Cond((e - (low + first)) % step, True))
    return tuple(conds)


def box(mask: np.ndarray, loops: Sequence[Iter]) -> tuple[Cond, ...] | None:
    """A mask that is a product of progressions, one per dimension."""
    sides = [np.asarray(mask.any(axis=tuple(a for a in range(mask.ndim) if a != k))) for k in range(mask.ndim)]
    if not sides or not np.array_equal(np.asarray(reduce(np.multiply.outer, sides)), mask):
        return None
    found: list[Cond] = []
    for side, loop in zip(sides, loops):
        conds = progression(var(loop.name), side, 0)
        if conds is None:
            return None
        found.extend(conds)
    return tuple(found)


def bands(mask: np.ndarray, loops: Sequence[Iter]) -> Iterator[tuple[Cond, ...]]:
    """Masks that depend on the sum or difference of two iterators alone: triangles, bands, dilated bands."""
    for a, b in combinations(range(mask.ndim), 2):
        if any(n > 1 for k, n in enumerate(mask.shape) if k not in (a, b)):
            continue
        plane = mask.reshape(mask.shape[a], mask.shape[b])
        rows, columns = np.indices(plane.shape)
        for sign in (-1, 1):
            level = columns + sign * rows
            low = int(level.min())
            hits = np.zeros(int(level.max()) - low + 1, dtype=bool)
            hits[level[plane] - low] = True
            if np.array_equal(hits[level - low], plane):
                conds = progression(var(loops[b].name) + var(loops[a].name) * sign, hits, low)
                if conds is not None:
                    yield conds


def conditions(mask: np.ndarray, loops: Sequence[Iter]) -> tuple[Cond, ...] | None:
    """Affine conditions that hold exactly where the mask does. `loops` are aligned with its last dimension."""
    tail = loops[len(loops) - mask.ndim :]
    if mask.all():
        return ()
    return box(mask, tail) or next(bands(mask, tail), None)


def by_data(op: Op) -> Result:
    """Where: one of two values by a condition that depends on data, or has no form as a region."""
    loops = loops_of(op.out.shape)
    condition, then, other = (broadcast(op, n, loops) for n in range(3))
    return Scope(loops, (), Call("choose", (condition, then, other)))


def where(op: Op) -> Result:
    """select(region, x, y) for a constant mask whose true or false part is a box, a triangle or a (dilated) band; else a choice by its values."""
    if op.input(0).value is None:
        return by_data(op)
    mask = op.constant(0).astype(bool)
    loops = loops_of(op.out.shape)
    then, other = broadcast(op, 1, loops), broadcast(op, 2, loops)
    conds = conditions(mask, loops)
    if conds is not None:
        return Scope(loops, (), Select(conds, then, other) if conds else then)
    conds = conditions(~mask, loops)
    if conds is not None:
        return Scope(loops, (), Select(conds, other, then) if conds else other)
    return by_data(op)


CHOICE: dict[str, Function] = {"Where": where}
