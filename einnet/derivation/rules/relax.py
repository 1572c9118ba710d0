"""relax: widen a summation range over points where the body is 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from einnet.derivation.facts import zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.substitute import divisors
from einnet.expr.nodes import Iter, Scope


@rule("relax", order=100, guard="the body is 0 on the points that are added")
def relax(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y<Y] f = L[x] Σ[y<Y'] f, Y' the next multiple of a divisor that the index functions of y show"""
    found = False
    if e.reduce != "sum":
        yield Refused(f"a {e.reduce} reduction has no neutral zeros")
        return
    for i in e.sums:
        for hi in sorted({i.lo + -(-i.extent // d) * d for d in divisors(e, i.name) if d < i.extent} - {i.hi}):
            if zero_outside(e.body, i.name, i.range, e.ranges):
                found = True
                wide = Iter(i.name, i.lo, hi)
                yield Rewrite(replace(e, sums=tuple(wide if k == i else k for k in e.sums)), f"{i.name}<{hi}")
            else:
                yield Refused(f"the body is not provably 0 at {i.hi} <= {i.name} < {hi}")
    if not found:
        yield Refused("no summation range has a wider multiple")
