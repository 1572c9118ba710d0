"""Where two expressions that may differ should be compared: points at which one of them changes what it computes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from einnet.derivation.checker.events import points_of_events
from einnet.expr import sets
from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Body, Cond, Read, Scope, Select, children, index_functions, nested, reads, walk
from einnet.expr.normal.terms import divisor_condition, supports
from einnet.expr.values.points import work

Point = tuple[int, ...]
_MOST_CONDITIONS = 64
_MOST_AT_ENTRIES = 300_000
"""Body evaluations per side at the entries of one table."""


def every_point(scope: Scope) -> NDArray[np.int64]:
    """All points of the box, of shape (n, rank)."""
    shape = scope.shape
    if not shape:
        return np.zeros((1, 0), dtype=np.int64)
    lows = np.asarray([lo for lo, _ in scope.box], dtype=np.int64)
    return np.asarray(np.indices(shape, dtype=np.int64).reshape(len(shape), prod(shape)).T + lows)


def points_to_compare(before: Scope, after: Scope, forms: Iterable[Scope], count: int) -> NDArray[np.int64]:
    """All points of a small box. Else some at which a side, or a condition of a normal form, changes what it computes, one for each entry of tables
    of numbers, and about `count` others: corners, points near the constants of both sides, and uniform ones. Shape (n, rank)."""
    if prod(before.shape) <= count:
        return every_point(before)
    generator = random.Random(f"{before.key}{after.key}")
    chosen: dict[Point, None] = {}
    for one, other in ((before, after), (after, before)):
        for found in points_of_events(one, other):
            chosen[tuple(found.get(i.name, generator.randrange(i.lo, i.hi)) for i in one.loops)] = None
    for form in forms:
        for found in _at_conditions(form):
            point = tuple(found.get(i.name, generator.randrange(i.lo, i.hi)) for i in form.loops)
            chosen[point] = None
            if len(chosen) >= 2 * count:
                break
    for point in (*_scattered(before, after, count, generator), *_at_entries(before, after, generator)):
        chosen[point] = None
    return np.asarray(list(chosen), dtype=np.int64).reshape(len(chosen), len(before.shape))


def _at_entries(before: Scope, after: Scope, generator: random.Random) -> Iterator[Point]:
    """For each table of numbers that a side reads, all values of the loops that choose the entry: any of them may be wrong."""
    for side in (before, after):
        own = {i.name: n for n, i in enumerate(side.loops)}
        for axes in dict.fromkeys(tuple(sorted(own[n] for n in names)) for names in _choosing(side)):
            count = prod(side.shape[n] for n in axes)
            if max(work(before, count), work(after, count)) > _MOST_AT_ENTRIES:
                continue
            for values in product(*(range(*side.box[n]) for n in axes)):
                point = [generator.randrange(lo, hi) for lo, hi in side.box]
                for n, x in zip(axes, values, strict=True):
                    point[n] = x
                yield tuple(point)


def _choosing(scope: Scope) -> Iterator[frozenset[str]]:
    """The loops that choose the entry, for each read of a table."""

    def visit(inner: Scope, names: Mapping[str, frozenset[str]]) -> Iterator[frozenset[str]]:
        for r in reads(inner.body):
            used = [frozenset[str]().union(*(names.get(n, frozenset()) for n in e.names())) for e in r.index]
            if isinstance(r.base, Scope):
                yield from visit(r.base, {i.name: of for i, of in zip(r.base.loops, used, strict=True)})
            elif r.base.values is not None:
                yield frozenset[str]().union(*used)

    return visit(scope, {i.name: frozenset((i.name,)) for i in scope.loops})


def _at_conditions(form: Scope) -> Iterator[dict[str, int]]:
    """For each condition of a normal form, an assignment at which it alone fails, and one at which it holds with equality.

    Closed scopes in a normal form are named by the iterators around them, so that their iterators are the form's where names agree.
    """
    loops = {i.name for i in form.loops}

    def visit(scope: Scope) -> Iterator[dict[str, int]]:
        for select in _selects(scope.body):
            conds, divisors = supports((select.then,), 0)
            inside = [*conds, *map(divisor_condition, divisors)]
            for c in select.conds[:_MOST_CONDITIONS]:
                others = [*(k for k in select.conds if k != c), *inside]
                for variant in _edges(c):
                    found = sets.sample([*others, variant], scope.ranges)
                    if found:
                        yield {n: x for n, x in found.items() if n in loops}
        for inner in nested(scope):
            yield from visit(inner)

    return visit(form)


def _edges(c: Cond) -> tuple[Cond, ...]:
    """Just outside and just inside of a condition."""
    if c.equal:
        return (Cond(c.index - 1), Cond(-c.index - 1))
    return (Cond(c.index + 1, True), Cond(-c.index - 1), Cond(c.index, True))


def _selects(body: Body) -> Iterator[Select]:
    if isinstance(body, Select):
        yield body
    if not isinstance(body, Read):
        for child in children(body):
            yield from _selects(child)


def _scattered(before: Scope, after: Scope, count: int, generator: random.Random) -> Iterator[Point]:
    """Corners, points near constants, uniform points with one coordinate at an edge, uniform points: a quarter each."""
    constants = sorted({c for s in (before, after) for c in _constants(s)})
    near = [sorted(_near(lo, hi, constants)) for lo, hi in before.box]
    edges = [sorted({lo, min(lo + 1, hi - 1), max(hi - 2, lo), hi - 1}) for lo, hi in before.box]
    for k in range(count):
        point = [generator.randrange(lo, hi) for lo, hi in before.box]
        if k % 4 == 0:
            point = [generator.choice(e) for e in edges]
        elif k % 4 == 1:
            point = [generator.choice(n) for n in near]
        elif k % 4 == 2:
            axis = generator.randrange(len(point))
            point[axis] = generator.choice(edges[axis])
        yield tuple(point)


def _near(lo: int, hi: int, constants: Iterable[int]) -> set[int]:
    return {lo, hi - 1} | {x for c in constants for x in (c - 1, c, c + 1, hi - c) if lo <= x < hi}


def _constants(scope: Scope) -> Iterator[int]:
    """Bounds and integers of index functions: where pieces of an expression may begin or end."""
    for s in walk(scope):
        for i in (*s.loops, *s.sums):
            yield i.lo
            yield i.hi
        for e in index_functions(s.body):
            yield from _integers(e)


def _integers(e: Index) -> Iterator[int]:
    yield abs(e.const)
    yield e.den
    for atom, c in e.terms:
        yield abs(c)
        if isinstance(atom, Floor):
            yield atom.den
            yield from _integers(atom.num)
