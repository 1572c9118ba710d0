"""tile: bands as blocks. A dimension in which an operand adds two iterators is walked in tiles, the sum of the two by one iterator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from einnet.derivation.facts import product_reads, without, zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, simplify, var
from einnet.expr.nodes import Iter, Read, Scope, fresh, map_indices, substitute_body, used_names
from einnet.expr.notation.printing import print_index

FEWEST, SIZES = 4, 4
"""The smallest tile, and how many sizes are tried for one window."""


@rule("tile", order=50, guard="an operand adds m and ±w with one coefficient, another has m alone; f is 0 outside the range of a summed w")
def tile(e: Scope) -> Iterator[Outcome]:
    """L[m,w] f(m,w) = L[m,w] {L[m',m'',t] f(T*m'+m'',t-m'')}[m//T,m%T,w+m%T], and for a summed w = L[m] {L[m',m''] Σ[t] f(T*m'+m'',t-m'')}[m//T,m%T]

    The operand then sees a window of t for a whole tile of m: a band product becomes a batch of dense ones, of which a share of
    (T-1)/(T+w-1) is not asked for. T runs over powers of two up to the window's extent.
    """
    found = False
    for m, w, sign in bands(e):
        if w in e.sums and not zero_outside(e.body, w.name, w.range, e.ranges):
            yield Refused(f"{w.name} is summed and the body is not provably 0 outside its range")
            continue
        for size in sizes(m, w):
            found = True
            yield tiled(e, m, w, sign, size)
    if not found:
        yield Refused("no operand adds two iterators of which another has one alone")


def bands(e: Scope) -> Iterator[tuple[Iter, Iter, int]]:
    """Loops m and loops or sums w with a sign such that an operand's index holds c·(m + sign·w), another operand m and not that sum."""
    operands = product_reads(e.body) or ()
    for place, r in enumerate(operands) if e.reduce == "sum" else ():
        others = without(operands, place)
        for ix in r.index:
            for m in e.loops:
                c = ix.coefficient(m.name)
                if not c or m.extent < 2 or not any(m.name in used_names(o) for o in others) or sum(m.name in f.names() for f in r.index) > 1:
                    continue
                for w in (*e.loops, *e.sums):
                    if w != m and w.extent > 1 and abs(ix.coefficient(w.name)) == abs(c) and is_window(w, e, r, others):
                        yield m, w, ix.coefficient(w.name) // c


def is_window(w: Iter, e: Scope, r: Read, others: Sequence[Read]) -> bool:
    """A loop that no other operand has, or a sum; in one index function of r, linearly."""
    mine = [f for f in r.index if w.name in f.names()]
    elsewhere = any(w.name in used_names(o) for o in others)
    return len(mine) == 1 and (w in e.sums or not elsewhere)


def sizes(m: Iter, w: Iter) -> list[int]:
    """The largest powers of two that are no longer than the window and shorter than the loop, the largest first."""
    powers = takewhile(lambda size: size <= w.extent and size < m.extent, (FEWEST << n for n in range(32)))
    return sorted(powers, reverse=True)[:SIZES]


def tiled(e: Scope, m: Iter, w: Iter, sign: int, size: int) -> Rewrite:
    """m = size·m' + m'' from its lower end, w = t - sign·m''."""
    used = {i.name for i in (*e.loops, *e.sums)}
    outer = fresh(m.name + "'", used)
    inner = fresh(m.name + "''", used | {outer})
    t = Iter(fresh("t", used | {outer, inner}), w.lo + min(0, sign * (size - 1)), w.hi + max(0, sign * (size - 1)))
    blocks = (Iter(outer, 0, -(-m.extent // size)), Iter(inner, 0, size))
    loops = tuple(new for i in e.loops for new in (blocks if i == m else (t,) if i == w else (i,)))
    sums = tuple(t if i == w else i for i in e.sums)
    place = var(m.name) - m.lo
    moved = {m: (place // size, place % size), w: (var(w.name) + sign * (place % size),)}
    forward = tuple(f for i in e.loops for f in moved.get(i, (var(i.name),)))
    back = {m.name: size * var(outer) + var(inner) + m.lo, w.name: var(t.name) - sign * var(inner)}
    ranges = {i.name: i.range for i in (*loops, *sums)}
    body = map_indices(substitute_body(e.body, back), lambda ix: simplify(ix, ranges))
    wrapped = Scope(loops, sums, body, e.reduce)
    parameters = f"{m.name}={_text(back[m.name], outer, inner)}, {w.name}={_text(back[w.name], t.name, inner)}"
    return Rewrite(replace(e, sums=(), body=Read(wrapped, forward)), parameters)


def _text(index: Index, *order: str) -> str:
    return print_index(index, order)
