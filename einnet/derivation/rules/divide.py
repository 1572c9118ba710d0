"""divide: a traversal space in two parts, each computed on its own (paper section 4.2, expression splitting)."""

from __future__ import annotations

from collections.abc import Iterator

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import var
from einnet.expr.nodes import Add, Iter, Read, Scope, indices, make_add, reads

MOST_PARTS = 8
"""Cuts of a loop that are tried; an operand with more borders than that is no concatenation of a few."""


@rule("divide", order=140, guard="a part of an operand ends inside the loop's range")
def divide(e: Scope) -> Iterator[Outcome]:
    """L[x<X] Σ[y] f = {L[x<C] Σ[y] f}[x] + {L[C<=x<X] Σ[y] f}[x]

    C is where a tensor ends that is read at x + constant, itself or as a part of a concatenation: the read is 0 on one side.
    """
    if not e.sums:
        yield Refused("nothing is reduced: the parts would only be copied")
        return
    found = False
    for i in e.loops:
        for cut in cuts(e, i):
            found = True
            yield Rewrite(divided(e, i, cut), f"{i.name}<{cut}")
    if not found:
        yield Refused("no operand ends inside a loop's range")


def divided(e: Scope, i: Iter, cut: int) -> Scope:
    """The right-hand side of the rule."""
    parts = (Iter(i.name, i.lo, cut), Iter(i.name, cut, i.hi))
    pieces = (Scope(tuple(part if k == i else k for k in e.loops), e.sums, e.body, e.reduce) for part in parts)
    return Scope(e.loops, (), make_add(Read(p, indices(e.loops)) for p in pieces))


def cuts(e: Scope, i: Iter) -> list[int]:
    """Values of a loop at which a tensor begins or ends that is read at the loop plus a constant; [] if there are too many."""
    inside = sorted(c for c in set(_borders(e, i.name)) if i.lo < c < i.hi)
    return inside if len(inside) <= MOST_PARTS else []


def _borders(e: Scope, name: str) -> Iterator[int]:
    alone = var(name).terms
    for r in reads(e.body):
        for k, (ix, (lo, hi)) in enumerate(zip(r.index, r.base.box)):
            if ix.terms != alone or ix.den != 1:
                continue
            yield from (lo - ix.const, hi - ix.const)
            if isinstance(r.base, Scope) and is_concatenation(r.base):
                yield from (border - ix.const for border in _borders(r.base, r.base.loops[k].name))


def is_concatenation(s: Scope) -> bool:
    """A sum of reads, each of which covers its own part: what stands on one side of a border is not read on the other."""
    return not s.sums and isinstance(s.body, Add) and all(isinstance(a, Read) and a.fill == 0 for a in s.body.args)


