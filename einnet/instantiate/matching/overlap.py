"""Windows that overlap: iterators that an operand sees only added, so that a copy of it has one dimension for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from einnet.expr.index import Index
from einnet.expr.nodes import Read, Scope
from einnet.instantiate.matching.contraction import ALL
from einnet.instantiate.matching.types import Group


def overlapping(r: Read, scope: Scope, groups: Mapping[str, Group]) -> tuple[Index, ...]:
    """The forms u = Σ aᵢ·xᵢ that a copy of r keeps as dimensions, because u has fewer values than the xᵢ have together.

    All but one of the xᵢ are batch iterators, whose strides are free: the windows then overlap in memory instead of being copied apart.
    """
    found: list[Index] = []
    for ix in r.index:
        names = [a for a, _ in ix.terms if isinstance(a, str)]
        if ix.den != 1 or len(names) != len(ix.terms):
            continue
        alone = [n for n in names if sum(n in other.names() for other in r.index) == 1 and scope.ranges[n][0] == 0]
        found += _groups(ix, sorted(alone, key=lambda n: abs(ix.coefficient(n))), scope, groups)
    return tuple(found)


def _groups(ix: Index, names: list[str], scope: Scope, groups: Mapping[str, Group]) -> list[Index]:
    """Runs of iterators, by coefficient, each of which steps within the reach of the smaller ones and by a multiple of their unit."""
    runs: list[list[str]] = []
    reach = 0
    for n in names:
        c, extent = ix.coefficient(n), scope.ranges[n][1]
        unit = ix.coefficient(runs[-1][0]) if runs else 0
        if runs and abs(c) <= reach and c % unit == 0:
            runs[-1].append(n)
        else:
            runs.append([n])
            reach = 0
        reach += abs(c) * (extent - 1)
    return [
        Index(tuple(sorted((n, ix.coefficient(n) // ix.coefficient(run[0])) for n in run)))
        for run in runs
        if len(run) > 1 and sum(groups.get(n) != ALL for n in run) == 1
    ]
