"""A scope over a larger box, where whatever it holds there is never asked for.

What is read beyond its box is 0, and that is a condition on it. Where a reader has that condition already, the scope may as well hold there what its
body gives: then no condition is left in it, and both sides of a step have one normal form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from einnet.derivation.facts import factors
from einnet.expr.index import Index, Range, bounds, in_range
from einnet.expr.nodes import Body, Const, Iter, Read, Scope, Select, map_reads, reads


def conditions(body: Body) -> frozenset[Index]:
    """What is 0 or more wherever something is read by the body."""
    if not isinstance(body, Select) or not isinstance(body.other, Const):
        return frozenset()
    return frozenset(c.index for c in body.conds if not c.equal)


def within(index: Index, box: Range, ranges: Mapping[str, Range], known: Set[Index]) -> bool:
    """The index lies in the box where what is known is 0 or more."""
    lo, hi = bounds(index, ranges)
    return (lo >= box[0] or index - box[0] in known) and (hi < box[1] or box[1] - 1 - index in known)


def spread(body: Body, ranges: Mapping[str, Range], given: Scope) -> Body:
    """The body of `given` over other iterators; what `given` reads within a box is spread to where it is read now.

    A scope that sums, or that is 0 out there since a tensor is, has no condition to lose.
    """
    before = iter(reads(given.body))
    return map_reads(body, lambda r: _wide(r, ranges, next(before), given.ranges))


def _wide(r: Read, ranges: Mapping[str, Range], before: Read, earlier: Mapping[str, Range]) -> Read:
    if not isinstance(r.base, Scope) or r.fill or vanishing(r.base):
        return r
    if not all(in_range(ix, box, earlier) for ix, box in zip(before.index, r.base.box)):
        return r
    return Read(_over(r.base, [bounds(ix, ranges) for ix in r.index]), r.index, r.fill)


def _over(s: Scope, reach: Sequence[tuple[int, int]]) -> Scope:
    """The scope over the hull of its box and what is reached, and so are those that it reads within their boxes."""
    loops = tuple(Iter(i.name, min(i.lo, lo), max(i.hi, hi + 1)) for i, (lo, hi) in zip(s.loops, reach))
    if loops == s.loops:
        return s
    ranges = {i.name: i.range for i in loops}
    return replace(s, loops=loops, body=spread(s.body, ranges, s))


def vanishing(s: Scope) -> bool:
    """Beyond its box the body is a sum, or a product with a factor that is 0 there because a tensor is."""
    found = [f for f in factors(s.body) if isinstance(f, Read) and not f.fill]
    return bool(s.sums) or any(not isinstance(f.base, Scope) or vanishing(f.base) for f in found)
