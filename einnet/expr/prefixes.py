"""Reductions of all that comes before a place, or after it: L[t] Σ[s] select(t-s+c>=0, f(s), 0), which one pass along s computes for every t."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from einnet.expr.index import var
from einnet.expr.nodes import Body, Const, Iter, Scope, Select, neutral, used_names

LONGEST_PLAIN = 16
"""Terms up to which one pass saves little."""


class Prefix(NamedTuple):
    """The axis of t, t itself and s; what is reduced, where s <= t + more if it runs `forward`, else where s >= t - more."""

    axis: int
    place: Iter
    over: Iter
    term: Body
    forward: bool
    more: int


@lru_cache(maxsize=1 << 14)
def prefix(scope: Scope) -> Prefix | None:
    """The scope as such a reduction of many terms; None if it is another."""
    body = scope.body
    if len(scope.sums) != 1 or not isinstance(body, Select) or len(body.conds) != 1 or body.other != Const(neutral(scope.reduce)):
        return None
    (over,), (cond,) = scope.sums, body.conds
    if cond.equal or over.extent <= LONGEST_PLAIN:
        return None
    for axis, place in enumerate(scope.loops):
        for forward in (True, False):
            later = var(place.name) - var(over.name) if forward else var(over.name) - var(place.name)
            if cond.index - cond.index.const == later and place.name not in used_names(body.then):
                return Prefix(axis, place, over, body.then, forward, int(cond.index.const))
    return None


def passes(found: Prefix) -> int:
    """How often every term is added, where sums of two, of four, of eight are made of one another."""
    return (found.over.extent - 1).bit_length()


def terms_of(scope: Scope, found: Prefix) -> Scope:
    """The terms for every s, in the place of t."""
    loops = tuple(found.over if n == found.axis else i for n, i in enumerate(scope.loops))
    return Scope(loops, (), found.term)
