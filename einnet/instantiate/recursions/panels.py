"""What sums read again, at every time or for other rows, stored once in the order in which they read it: panels as wide as a body computes.

The copy is an equation of its own, and a move, so that the recursion with it is the one without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from einnet.expr.index import Index, simplify, substitute, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, inside, map_reads, reads, tensors
from einnet.expr.recursions.recursion import Equation, Recursion
from einnet.graph.onnx.naming import take
from einnet.instantiate.codegen.schedule import ACCUMULATORS, LANES, SMALL

FEWEST = 8
"""Rows, or times, from which on a copy pays."""


def relaid(r: Recursion) -> Recursion:
    """The recursion with copies of what its sums read across their last loop."""
    inputs = {t.name for t in r.inputs}
    known = inputs | {e.tensor.name for e in r.before}
    taken = known | {e.tensor.name for e in r.equations}
    copies: dict[Scope, Tensor] = {}

    def of(e: Equation, given: set[str], around: int) -> Equation:
        """The equation over copies of what is given, with so many loops around what is computed at once."""
        across = {x: found for x in reads(e.scope.body) if named(x) in given and (found := iterators(e.scope, x, around))}
        if not across:
            return e
        panels = {x: panels_of(x, e.scope, iters, around) for x, iters in across.items()}
        for x, (scope, _) in panels.items():
            if scope not in copies:
                copies[scope] = Tensor(take(f"{named(x)}_again", taken), scope.shape)
        return Equation(e.tensor, replace(e.scope, body=map_reads(e.scope.body, lambda x: exchanged(x, panels))))

    def exchanged(x: Read, panels: Mapping[Read, tuple[Scope, tuple[Index, ...]]]) -> Body:
        scope, index = panels.get(x, (None, ()))
        return x if scope is None else Read(copies[scope], index)

    before, steps = tuple(of(e, inputs, 0) for e in r.before), tuple(of(e, known, 1) for e in r.steps)
    made = [Equation(t, s) for s, t in copies.items()]
    first = [e for e in made if not inputs.isdisjoint(tensors(e.scope))]
    return replace(r, before=(*first, *before, *(e for e in made if e not in first)), steps=steps)


def named(x: Read) -> str | None:
    """The tensor that is read."""
    return x.base.name if isinstance(x.base, Tensor) else None


def iterators(s: Scope, x: Read, around: int) -> tuple[Iter, ...]:
    """The iterators of a read that is made again for other rows, and of which the last loop moves not where elements lie side by side; else none."""
    if not s.sums or not s.loops[around:] or not x.index or not inside(x, s.ranges):
        return ()
    places = list(places_of(x.index))
    found = tuple(i for i in (*s.sums, *s.loops) if i.name in places)
    once = None not in places and len(found) == len([p for p in places if p])
    again = prod(i.extent for i in s.loops if i not in found) >= FEWEST and found.count(s.loops[-1]) and not set(s.loops[:around]) & set(found)
    return found if once and again and places[-1] in {i.name for i in s.sums} else ()


def places_of(index: tuple[Index, ...]) -> Iterator[str | None]:
    """For each dimension the iterator that it moves with one by one; "" where it is a number, and None where it is neither."""
    for ix in index:
        names = tuple(ix.names())
        yield "" if ix.is_const else names[0] if len(names) == 1 and ix == var(names[0]) + ix.const else None


def panels_of(x: Read, s: Scope, iters: tuple[Iter, ...], around: int) -> tuple[Scope, tuple[Index, ...]]:
    """What a read reads, panel after panel of the columns that a body computes at once; and where in that it stands."""
    last, width = s.loops[-1], width_of(s, around)
    rows = tuple(i for i in iters if i in s.loops and i != last)
    sums = tuple(i for i in iters if i in s.sums)
    column = var(last.name) - last.lo
    place = [*((var(i.name) - i.lo, i.extent) for i in rows), (column // width, last.extent // width)]
    place += [*((var(i.name) - i.lo, i.extent) for i in sums), (column % width, width)]
    loops = tuple(Iter(f"i{n}", 0, extent) for n, (_, extent) in enumerate(place))
    names = dict(zip((i.name for i in (*rows, last, *sums)), (var(i.name) for i in loops)))
    names[last.name] = names[last.name] * width + var(loops[-1].name)
    shifted = {i.name: names[i.name] + i.lo for i in (*rows, last, *sums)}
    assert isinstance(x.base, Tensor)
    return Scope(loops, (), Read(x.base, tuple(substitute(ix, shifted) for ix in x.index))), tuple(simplify(ix, s.ranges) for ix, _ in place)


def width_of(s: Scope, around: int) -> int:
    """Columns of a panel: two vectors where the body has accumulators for them, one, or all where they are no whole vectors."""
    rows, columns = prod(i.extent for i in s.loops[around:-1]), s.loops[-1].extent
    widths = (2 * LANES, LANES) if rows > SMALL or 2 * rows <= ACCUMULATORS else (LANES,)
    return next((w for w in widths if columns % w == 0), columns)
