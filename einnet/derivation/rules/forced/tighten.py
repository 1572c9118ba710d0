"""tighten: shrink ranges to where the body can be nonzero and where it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.facts import NOWHERE, reach, supports
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Range, bounds
from einnet.expr.nodes import Iter, Read, Scope, map_reads, nested, reads


@rule("tighten", order=90, guard="the body is 0, or nobody reads, on the points that are dropped", roles=("forced",))
def tighten(e: Scope) -> Iterator[Outcome]:
    """L[x<X] Σ[y<Y] g*{L[z<Z] f}[Φ] = L[x<X] Σ[y<Y'] g*{L[z<Z'] f}[Φ]

    Y' and Z' are the tightest boxes outside of which the body is provably 0 or, for Z', not read.
    """
    result = tightened(e)
    yield Refused("every range is tight already") if result == e else Rewrite(result, "all")


@lru_cache(maxsize=1 << 14)
def tightened(e: Scope, kept: frozenset[Scope] = frozenset()) -> Scope:
    """Sums of e and loops of the scopes that e reads, as tight as interval reasoning shows; scopes in `kept` stay as they are."""
    sums = e.sums
    if e.reduce == "sum" and sums:
        sums = tuple(_shrink(i, found) for i, found in zip(sums, supports(e.body, [i.name for i in sums], e.ranges)))
    e = replace(e, sums=sums) if sums != e.sums else e
    needed = _needed(e, kept | _shared(e))
    filled = {r.base for r in reads(e.body) if r.fill and isinstance(r.base, Scope)}
    narrowed = {s: _narrow(s, box) for s, box in needed.items() if s not in filled}
    if all(s is t for s, t in narrowed.items()):
        return e

    def narrow(r: Read) -> Read:
        return Read(narrowed[r.base], r.index, r.fill) if isinstance(r.base, Scope) and r.base in narrowed else r

    return replace(e, body=map_reads(e.body, narrow))


def _needed(e: Scope, kept: frozenset[Scope]) -> dict[Scope, list[tuple[int, int]]]:
    """The box of what e reads of each scope, but for those in `kept`."""
    needed: dict[Scope, list[tuple[int, int]]] = {}
    for r in reads(e.body):
        if isinstance(r.base, Scope) and r.base not in kept:
            hulls = [(lo, hi + 1) for lo, hi in (bounds(ix, e.ranges) for ix in r.index)]
            old = needed.get(r.base)
            needed[r.base] = hulls if old is None else [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(old, hulls)]
    return needed


def _shared(e: Scope) -> frozenset[Scope]:
    """Scopes that e reads and that another scope read by e reads too: narrowed here, they would be computed twice."""
    direct = dict.fromkeys(nested(e))
    return frozenset(s for s in direct if any(s in t.inside for t in direct)) if len(direct) > 1 else frozenset()


def _narrow(s: Scope, box: list[tuple[int, int]]) -> Scope:
    loops = [_meet(i, wanted) for i, wanted in zip(s.loops, box)]
    if s.reduce == "sum":
        loops = [_shrink(i, found) for i, found in zip(loops, reach(s))]
    return s if tuple(loops) == s.loops else replace(s, loops=tuple(loops))


def _meet(i: Iter, wanted: Range) -> Iter:
    """The iterator over what is wanted of its range; over one value where nothing is."""
    (name, own_lo, own_hi), (lo, hi) = i, wanted
    if lo <= own_lo < own_hi <= hi:
        return i
    lo, hi = max(own_lo, lo), min(own_hi, hi)
    return Iter(name, lo, hi) if lo < hi else Iter(name, own_lo, own_lo + 1)


def _shrink(i: Iter, found: Range) -> Iter:
    return i if found == NOWHERE else _meet(i, found)
