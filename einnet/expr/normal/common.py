"""Conditions that all terms of a sum have in common: where one of them fails, the sum is 0.

A term that reads a tensor is written without the conditions that say no more than the edges of the tensor do, and has them all the same: A[x-3]
is 0 for x < 3, so that A[x-3] + [x >= 3]·b is [x >= 3]·(A[x-3] + b).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from einnet.expr import sets
from einnet.expr.index import Range
from einnet.expr.nodes import Cond
from einnet.expr.normal.terms import Divisor, Term, supports

Box = Mapping[str, Range]


def apart_from_conditions(terms: Sequence[Term], box: Box) -> tuple[tuple[Term, ...], tuple[Cond, ...], tuple[Divisor, ...]]:
    """The terms without the conditions that all of them have, and those, over the iterators of `box` alone."""
    own = dict.fromkeys(c for t in terms for c in t.conds if _outside(c.index.names(), t, box))
    conds = tuple(c for c in own if all(_has(t, c, box) for t in terms))
    dividing = dict.fromkeys(d for t in terms for d in t.divisors if _outside(d[0].names(), t, box))
    divisors = tuple(d for d in dividing if all(d in (*t.divisors, *supports(t.factors, t.absorbing)[1]) for t in terms))
    if not conds and not divisors:
        return tuple(terms), (), ()

    def bare(t: Term) -> Term:
        return replace(t, conds=tuple(c for c in t.conds if c not in conds), divisors=tuple(d for d in t.divisors if d not in divisors))

    return tuple(map(bare, terms)), conds, divisors


def _outside(names: frozenset[str], term: Term, box: Box) -> bool:
    """The iterators are the surrounding ones, and none of the term's sums."""
    return names <= box.keys() and names.isdisjoint(i.name for i in term.sums)


def _has(term: Term, cond: Cond, box: Box) -> bool:
    """The term is 0 wherever the condition, which is about surrounding iterators, fails."""
    if cond in term.conds:
        return True
    known, _ = supports(term.factors, term.absorbing)
    return sets.implied(cond, (*term.conds, *known), term.ranges(box))
