"""Expressions before they are compared: what kernels and views bring with them, and means nothing, is taken away on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.rules.forced.merge import merge_read
from einnet.expr.index import Index, Range, bounds, simplify
from einnet.expr.nodes import Body, Cond, Const, Read, Scope, Select, Tensor, map_indices, map_reads, reads


@lru_cache(maxsize=1 << 12)
def with_unit_reads(scope: Scope) -> Scope:
    """The scope with 0 as the index of every unit dimension of a tensor, under the condition that what stood there is 0.

    Views forget where in a unit dimension something was read, as it moves nothing; the model's expressions know.
    """
    ranges = scope.ranges
    body = map_indices(scope.body, lambda e: simplify(e, ranges))
    return replace(scope, body=map_reads(body, lambda r: _unit_read(r, ranges)))


def _unit_read(r: Read, ranges: Mapping[str, Range]) -> Body:
    if isinstance(r.base, Scope):
        return Read(with_unit_reads(r.base), r.index, r.fill)
    moved = [n == 1 and e != Index() for e, n in zip(r.index, r.base.shape)]
    if not any(moved):
        return r
    found = Read(r.base, tuple(Index() if m else e for e, m in zip(r.index, moved)), r.fill)
    conds = tuple(Cond(e, True) for e, m in zip(r.index, moved) if m and bounds(e, ranges) != (0, 0))
    return Select(conds, found, Const(r.fill)) if conds else found


@lru_cache(maxsize=1 << 12)
def flat(scope: Scope) -> Scope:
    """The scope with what it reads and what reduces nothing merged into it, sums and products written as one: order and grouping within a chain of
    additions, or of factors, are told apart by no text."""
    scope = replace(scope, body=map_reads(scope.body, _flat_read))
    kept: set[Read] = set()
    while True:
        inner = (r for r in reads(scope.body) if isinstance(r.base, Scope) and not r.base.sums and r.base.reduce == "sum")
        r = next((r for r in inner if r not in kept), None)
        if r is None:
            return scope
        merged = merge_read(scope, r)
        if isinstance(merged, Scope):
            scope = merged
        else:
            kept.add(r)


def _flat_read(r: Read) -> Body:
    return r if isinstance(r.base, Tensor) else Read(flat(r.base), r.index, r.fill)
