"""Masks: weights that are a number in a region and infinite outside it become a choice on affine conditions, compared element by element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from einnet.expr.index import substitute, var
from einnet.expr.nodes import Body, Cond, Const, Iter, Read, Scope, Select, Tensor, map_reads
from einnet.graph.operators.choice import conditions
from einnet.graph.operators.op import number
from einnet.graph.program import Node, Program

Region = tuple[tuple[Cond, ...], Const, Const]
"""Conditions on the iterators `i0`, `i1`, ... of the dimensions, the value where they hold, and the one where they do not."""


def recover_masks(program: Program) -> Program:
    """Reads of such weights, one loop to a dimension, as choices."""
    known: dict[str, Region | None] = {}
    nodes = [replace(n, scope=chosen(n.scope, program.weights, known)) if isinstance(n, Node) else n for n in program.nodes]
    return replace(program, nodes=tuple(nodes))


def chosen(scope: Scope, weights: Mapping[str, np.ndarray], known: dict[str, Region | None]) -> Scope:
    """L[x] f(M[x]) = L[x] f(select(x in region, a, b)) for a mask M."""

    def choose(r: Read) -> Body:
        if not isinstance(r.base, Tensor) or r.base.name not in weights or not whole(r, r.base, scope):
            return r
        if r.base.name not in known:
            known[r.base.name] = region(weights[r.base.name])
        found = known[r.base.name]
        if found is None:
            return r
        conds, inside, outside = found
        mapping = {f"i{n}": ix for n, ix in enumerate(r.index)}
        return Select(tuple(Cond(substitute(c.index, mapping), c.equal) for c in conds), inside, outside)

    body = map_reads(scope.body, choose)
    return scope if body is scope.body else replace(scope, body=body)


def whole(r: Read, mask: Tensor, scope: Scope) -> bool:
    """Every dimension is walked by an iterator of its own, inside the box."""
    names = [next(iter(ix.names()), "") for ix in r.index]
    plain = all(ix == var(n) and scope.ranges[n][0] >= 0 and scope.ranges[n][1] <= extent for ix, n, extent in zip(r.index, names, mask.shape) if n)
    return plain and all(names) and len(set(names)) == len(names) and mask.dtype == "f32"


def region(values: np.ndarray) -> Region | None:
    """The region of a mask of two values, one of them infinite; None for any other array."""
    if values.size < 2 or np.isfinite(values).all() or np.isnan(values).any():
        return None
    finite = np.isfinite(values)
    if not finite.any() or np.ptp(values[finite]) or np.unique(values[~finite]).size != 1:
        return None
    loops = tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(values.shape))
    conds = conditions(finite, loops)
    return None if not conds else (conds, Const(number(float(values[finite][0]))), Const(number(float(values[~finite][0]))))

