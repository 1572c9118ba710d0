"""Expressions before they are compared: what kernels and views bring with them, and means nothing, is taken away on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.rules.band import tidy
from einnet.derivation.rules.forced.fold import simplify_body
from einnet.derivation.rules.forced.merge import flatten, merged
from einnet.derivation.rules.substitute import split, wrapped
from einnet.expr.decided import decided, reads_where
from einnet.expr.index import Index, Range, bounds, denominators, simplify
from einnet.expr.nodes import Body, Cond, Const, Iter, Read, Scope, Select, Tensor, children, index_functions, map_indices, map_reads, reads, touches


@lru_cache(maxsize=1 << 12)
def with_unit_reads(scope: Scope) -> Scope:
    """The scope with 0 as the index of every unit dimension of a tensor, under the condition that what stood there is 0, without such dimensions of
    scopes inside; and without what reads give outside a box that they do not leave, nor what they read nowhere inside of its box.

    Views forget where in a unit dimension something was read, as it moves nothing, and what padding there would be; the model's expressions know.
    A kernel that writes one block of a tensor knows nothing of the others, of which no element is in it.
    """
    ranges = scope.ranges
    body = map_indices(scope.body, lambda e: simplify(e, ranges))
    missed = {r for r in reads(body) if not touches(r, ranges)}
    body = simplify_body(map_reads(body, lambda r: Const(r.fill) if r in missed else r)) if missed else body
    return replace(scope, body=map_reads(body, lambda r: _unit_read(r, ranges)))


def _unit_read(r: Read, ranges: Mapping[str, Range]) -> Body:
    if r.fill and _stays(r, ranges):
        r = Read(r.base, r.index)
    if isinstance(r.base, Scope):
        return _without_unit_loops(replace(r, base=with_unit_reads(r.base)), ranges)
    moved = [n == 1 and e != Index() for e, n in zip(r.index, r.base.shape)]
    if not any(moved):
        return r
    found = Read(r.base, tuple(Index() if m else e for e, m in zip(r.index, moved)), r.fill)
    return _where(found, [e for e, m in zip(r.index, moved) if m], ranges)


def _without_unit_loops(r: Read, ranges: Mapping[str, Range]) -> Body:
    """The read of a scope without its dimensions of one place; its body names none of them any more."""
    assert isinstance(r.base, Scope)
    kept = [n for n, i in enumerate(r.base.loops) if i.extent > 1]
    if len(kept) == len(r.base.loops):
        return r
    small = replace(r.base, loops=tuple(r.base.loops[n] for n in kept))
    dropped = [e - lo for n, (e, (lo, _)) in enumerate(zip(r.index, r.base.box)) if n not in kept]
    return _where(Read(small, tuple(r.index[n] for n in kept), r.fill), dropped, ranges)


def _where(found: Read, zeros: Sequence[Index], ranges: Mapping[str, Range]) -> Body:
    """The read where some index functions are 0, and what it gives outside elsewhere."""
    unsure = (e for e in zeros if e.den != 1 or bounds(e, ranges) != (0, 0))
    conds = tuple(Cond(Index(e.terms, e.const), True) for e in unsure)  # where a quotient is no whole number, nothing is read
    return Select(conds, found, Const(found.fill)) if conds else found


def _stays(r: Read, ranges: Mapping[str, Range]) -> bool:
    """Every index is a whole number within the box of what is read."""
    reached = (bounds(e, ranges) if e.den == 1 else (lo - 1, hi) for e, (lo, hi) in zip(r.index, r.base.box, strict=True))
    return all(lo <= least and most < hi for (least, most), (lo, hi) in zip(reached, r.base.box, strict=True))


@lru_cache(maxsize=1 << 12)
def flat(scope: Scope) -> Scope:
    """The scope with what it reads and what reduces nothing merged into it, sums and products written as one: order and grouping within a chain of
    additions, or of factors, are told apart by no text. Nor is a dimension told from its digits, where what is computed there reads by these."""
    scope, ranges = replace(scope, body=map_reads(scope.body, _flat_read)), scope.ranges
    kept: set[Read] = set()
    while True:
        inner = (r for r in reads(scope.body) if isinstance(r.base, Scope) and not r.base.sums and r.base.reduce == "sum")
        r = next((r for r in inner if r not in kept), None)
        if r is None:
            return replace(scope, body=flatten(decided(map_reads(scope.body, lambda r: _over_digits(r, ranges)), ranges)))
        found = merged(scope, r)
        if found is None:
            kept.add(r)
        else:
            scope = found


def _flat_read(r: Read) -> Body:
    return r if isinstance(r.base, Tensor) else Read(flat(r.base), r.index, r.fill)


def _over_digits(r: Read, ranges: Mapping[str, Range]) -> Body:
    """A read of a scope with two loops for each that its body divides by d: T[i<36] at 6*h+w as T[a<6,b<6] at h and w.

    A kernel that takes two dimensions for one writes such scopes. Outside of the one is outside of the digit that is divided.
    """
    if isinstance(r.base, Tensor):
        return r
    for n, loop in enumerate(r.base.loops):
        d = _digit(r.base, loop)
        if d and r.index[n].den == 1:
            inside, _ = wrapped(split(r.base, loop, d).scope)
            at = simplify(r.index[n] // d, ranges), simplify(r.index[n] % d, ranges)
            return _over_digits(Read(inside, (*r.index[:n], *at, *r.index[n + 1 :]), r.fill), ranges)
    return r


def _digit(scope: Scope, loop: Iter) -> int:
    """By what a body divides a loop, the least where all are multiples of it; 0 where it does not, or the extent is no multiple."""
    found = {d for ix in index_functions(scope.body) for d in denominators(ix, loop.name)}
    d = min(found, default=0)
    return d if d and loop.lo == 0 and loop.extent % d == 0 and d < loop.extent and all(e % d == 0 for e in found) else 0


@lru_cache(maxsize=1 << 10)
def within_reach(scope: Scope) -> Scope:
    """The scope with those that it reads, at any depth, over no more of their boxes than is read: what pads a tensor beyond that says nothing, nor
    what is computed where a choice around it takes something else.

    Nor does a choice that is made alike everywhere in what is left.
    """
    hulls: dict[Scope, list[Range]] = {}
    for r, where in reads_where(scope.body, scope.ranges):
        if isinstance(r.base, Scope):
            ends = [bounds(e, where) if e.den == 1 else (lo, hi - 1) for e, (lo, hi) in zip(r.index, r.base.box, strict=True)]
            own = [(max(low, lo), min(high + 1, hi)) for (low, high), (lo, hi) in zip(ends, r.base.box, strict=True)]
            known = hulls.setdefault(r.base, own)
            hulls[r.base] = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(known, own, strict=True)]
    kept = {s: hull if all(lo < hi for lo, hi in hull) else list(s.box) for s, hull in hulls.items()}
    small = {s: within_reach(replace(s, loops=tuple(Iter(i.name, *h) for i, h in zip(s.loops, hull, strict=True)))) for s, hull in kept.items()}
    body = map_reads(scope.body, lambda r: Read(small[r.base], r.index, r.fill) if isinstance(r.base, Scope) and r.base in small else r)
    return replace(scope, body=tidy(body, dict(scope.ranges)))


def narrowed(scope: Scope, box: Sequence[Range]) -> Scope:
    """The scope over a part of its box, without choices that are made alike everywhere there."""
    small = replace(scope, loops=tuple(Iter(i.name, *r) for i, r in zip(scope.loops, box, strict=True)))
    return replace(small, body=tidy(decided(small.body, small.ranges), dict(small.ranges)))


def changes(scope: Scope) -> Iterator[tuple[int, int]]:
    """Where choices that depend on one loop alone change inside its range: the loop's place, and the first value after."""
    axes = {i.name: (n, i) for n, i in enumerate(scope.loops)}
    for c in conditions(scope.body):
        (name, k), *others = c.index.terms or (("", 0),)
        if others or not isinstance(name, str) or name not in axes:
            continue
        axis, loop = axes[name]
        below, above = -(c.index.const // k), -c.index.const // k + 1  # the least of the whole numbers from -const/k on, and of those above it
        places = {below, above} if c.equal else {below} if k > 0 else {above}
        yield from ((axis, place) for place in sorted(places) if loop.lo < place < loop.hi)


def conditions(body: Body) -> Iterator[Cond]:
    """The conditions of the choices in a body, not those of what it reads."""
    if isinstance(body, Select):
        yield from body.conds
    for a in children(body):
        yield from conditions(a)
