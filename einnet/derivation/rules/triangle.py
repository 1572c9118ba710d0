"""triangle: where a mask leaves out more for some rows than for others, blocks of rows are computed over no more than they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.band import band_of, needed, tidy
from einnet.expr.index import Index, Range, bounds
from einnet.expr.nodes import Body, Iter, Read, Scope, Select, children, indices, make_add, map_reads, nested, neutral, reads

MOST = 8
"""Blocks of rows that are tried at most: 2, and twice as many as long as that leaves out more."""

SHARE = 0.92
"""Most of the points that may be left of those of half as many blocks."""


@rule("triangle", order=70, guard="f is neutral beyond a bound that the row moves; where nothing is reduced, it is 0 there")
def triangle(e: Scope) -> Iterator[Outcome]:
    """L[m<M] Σ[k<K] select(k <= m, f, 0) = {L[m<C] Σ[k<C] select(k <= m, f, 0)}[m] + {L[C<=m<M] Σ[k<K] select(k <= m, f, 0)}[m]

    Each block reduces, and reads of the scopes below, only what its rows need: what is masked for all of them is neither computed nor read, and a
    mask that holds for all of them goes. A block is no wider than where its rows are not 0, so that products under a mask are in blocks, too.
    """
    if any(map(along_band, (e,) if e.sums else (e, *e.inside))):
        yield Refused("the rows need a band, which is no wider for one than for another")
        return
    found = False
    for i in e.loops if chooses(e) else ():
        left, count = reduced(cropped(e)), 2
        while left and count <= MOST:
            blocks = [cropped(narrow(replace(e, loops=tuple(b if k == i else k for k in e.loops)))) for b in _blocks(i, count)]
            before, left = left, sum(map(reduced, blocks))
            if len(blocks) < count or left > SHARE * before:
                break
            found = True
            yield Rewrite(Scope(e.loops, (), make_add(Read(b, indices(e.loops)) for b in blocks)), f"{i.name} in {count}")
            count *= 2
    if not found:
        yield Refused("no row needs less than another of what is reduced")


def reduced(e: Scope) -> int:
    """Points at which the scope is reduced; where it is not, those of what it reads."""
    return prod(i.extent for i in (*e.loops, *e.sums)) if e.sums else sum(map(reduced, dict.fromkeys(nested(e))))


def narrow(e: Scope) -> Scope:
    """A sum over the part of its box beyond which it is 0, as every tensor is: also where nothing is left to be summed."""
    if e.reduce != "sum":
        return e
    least = replace(e, sums=tuple(_needed_range(e, i) for i in e.sums))
    return replace(e, loops=tuple(_needed_range(least, i) for i in e.loops))


def along_band(e: Scope) -> bool:
    """What is not neutral lies in a band: of a reduction, or of a loop that others bound on both sides."""
    return any(band_of(e, i) for i in e.sums) or (e.reduce == "sum" and any(_bounded(e, i) for i in e.loops))


@lru_cache(maxsize=1 << 13)
def _bounded(e: Scope, i: Iter) -> bool:
    conds = (c.index for c in needed(e.body, 0, i.name, e.ranges) if not c.equal and len(c.index.names()) > 1)
    return {ix.coefficient(i.name) > 0 for ix in conds if ix.coefficient(i.name)} == {True, False}


@lru_cache(maxsize=1 << 14)
def chooses(e: Scope) -> bool:
    """The scope, or one that it reads, has a choice of regions in its body."""
    return selects(e.body) or any(map(chooses, nested(e)))


def selects(body: Body) -> bool:
    """The body has a choice of regions, outside of what it reads."""
    return isinstance(body, Select) or any(map(selects, children(body)))


def _blocks(i: Iter, count: int) -> list[Iter]:
    """A loop in so many parts, equal but for the last."""
    size = -(-i.extent // count)
    return [Iter(i.name, lo, min(lo + size, i.hi)) for lo in range(i.lo, i.hi, size)]


@lru_cache(maxsize=1 << 13)
def cropped(e: Scope) -> Scope:
    """e with its reductions over no more than its loops need, and what it reads over no more than is read."""
    sums = tuple(_needed_range(e, i) for i in e.sums)
    e = replace(e, sums=sums, body=tidy(e.body, {**e.ranges, **{i.name: i.range for i in sums}}))
    hulls: dict[Scope, list[Range]] = {}
    for r in reads(e.body):
        if isinstance(r.base, Scope):
            reach = [_reach(ix, box, e.ranges) for ix, box in zip(r.index, r.base.box)]
            known = hulls.get(r.base)
            hulls[r.base] = reach if known is None else [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(known, reach)]
    changed = {s: cropped(replace(s, loops=tuple(Iter(i.name, *box) for i, box in zip(s.loops, hull)))) for s, hull in hulls.items()}
    return replace(e, body=map_reads(e.body, lambda r: Read(changed[r.base], r.index, r.fill) if isinstance(r.base, Scope) and r.fill == 0 else r))


def _reach(ix: Index, box: Range, ranges: Mapping[str, Range]) -> Range:
    """What is read of a dimension."""
    low, high = bounds(ix, ranges)
    lo, hi = max(low, box[0]), min(high + 1, box[1])
    return (lo, hi) if lo < hi else (box[0], box[0] + 1)


@lru_cache(maxsize=1 << 13)
def _needed_range(e: Scope, i: Iter) -> Iter:
    """The values of the iterator for which the body may be something else than neutral."""
    lo, hi = i.range
    if e.reduce == "min":
        return i
    for c in needed(e.body, neutral(e.reduce), i.name, e.ranges):
        k = c.index.coefficient(i.name)
        rest = Index(tuple(t for t in c.index.terms if t[0] != i.name), c.index.const)
        if c.equal or k not in (1, -1) or c.index.den != 1 or i.name in rest.names():
            continue
        most = bounds(rest, e.ranges)[1]
        lo, hi = (max(lo, -most), hi) if k == 1 else (lo, min(hi, most + 1))
    return Iter(i.name, lo, hi) if lo < hi else Iter(i.name, i.lo, i.lo + 1)
