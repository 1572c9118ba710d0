"""strip: what is 0 outside a band of two loops is computed along the band, and put where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.band import along, between, needed, tidy
from einnet.derivation.rules.triangle import reduced
from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, neutral, substitute_body
from einnet.expr.notation.printing import print_index

Strip = tuple[Iter, Index, int]
"""A loop, the place of the band's element w along it, w written as the loop itself, and how many there are."""


@rule(
    "strip", order=62, guard="f is 0 unless lo <= j - g(x) <= hi, whatever is summed; what is computed there is a reduction or reads one",
    kind="reassociation",
)  # fmt: skip
def strip(e: Scope) -> Iterator[Outcome]:
    """L[x,j<J] f(x,j) = L[x,j<J] {L[x,w<hi-lo+1] f(x,g(x)+w+lo)}[x,j-g(x)-lo]

    A tensor is 0 outside its box. What is read at that index is written over w: a product under a mask that is a band becomes one of rows and
    windows, which `tile` walks in blocks. Where the place of w is outside of J, nobody asks for what it holds.
    """
    found = [s for j in reversed(e.loops) if (s := strip_of(e, j)) is not None] if reduced(e) else []
    if not found:
        yield Refused("no loop is 0 outside a band of others")
    for j, place, count in sorted(found, key=lambda s: s[2] / s[0].extent):
        inner = within(e, j, place, count)
        if isinstance(inner, Refused):
            yield inner
        elif reduced(inner) >= reduced(e):
            yield Refused("nothing is reduced over fewer places along the band")
        else:
            index = tuple(2 * var(j.name) - place if i == j else var(i.name) for i in e.loops)
            yield Rewrite(Scope(e.loops, (), Read(inner, index)), f"{j.name}={print_index(place, [j.name, *(x.name for x in e.loops)])}")
            return


def strip_of(e: Scope, j: Iter) -> Strip | None:
    """The narrowest band of a loop outside which the scope is 0; None if it is no narrower than the loop, or moves with no other one."""
    if e.reduce != "sum":
        return None
    best: Strip | None = None
    for form, (low, high) in between(needed(e.body, neutral("sum"), j.name, e.ranges), j).items():
        others, count = form.names() - {j.name}, high - low + 1
        if others and others <= {i.name for i in e.loops} and 0 < count < (best[2] if best else j.extent):
            best = j, 2 * var(j.name) - form + low, count
    return best


def within(e: Scope, j: Iter, place: Index, count: int) -> Scope | Refused:
    """The scope, and what it reads there, with so many elements along the loop, each at its place."""
    loops = tuple(Iter(j.name, 0, count) if i == j else i for i in e.loops)
    ranges = {**e.ranges, j.name: (0, count)}
    inner = replace(e, loops=loops, body=tidy(substitute_body(e.body, {j.name: place}), ranges))
    return along(inner, j.name, frozenset((place - j.lo, j.hi - 1 - place)))
