"""Summation iterators in Hermite normal form: one choice of iterators for all that differ by skews, reflections, shifts and permutations.

The index functions of a product, operand by operand, are the rows of an integer matrix whose columns are the summation iterators. Unimodular
column operations, and shifts by anything that is constant in the sum, bring it to the one form in which each pivot is positive and what else stands
in its row is reduced modulo it. Where the first operand is indexed by single iterators, it reads `A[t,u,c]` afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from einnet.expr.index import Atom, Floor, Index, Range, bounds, substitute, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Select, Val, children
from einnet.expr.normal.terms import Term, inequality


@lru_cache(maxsize=1 << 14)
def rows(body: Body) -> tuple[Index, ...]:
    """The index functions that anchor the iterators of a factor, nested scopes looked through: their sums are named as no iterator is."""
    return tuple(_rows(body))


def _rows(body: Body) -> Iterator[Index]:
    match body:
        case Read(base, index, _):
            if isinstance(base, Scope):
                mapping = {i.name: e for i, e in zip(base.loops, index, strict=True)} | {i.name: var(i.name + "#") for i in base.sums}
                yield from (substitute(e, mapping) for e in rows(base.body))
            else:
                yield from index
        case Val(e):
            yield e
    for child in children(body):
        yield from rows(child)
    if isinstance(body, Select):
        for c in body.conds:
            yield c.index


def in_floors(indices: Iterable[Index]) -> frozenset[str]:
    """The iterators that stand inside floor divisions."""
    return frozenset(n for e in indices for a, _ in e.terms if isinstance(a, Floor) for n in a.num.names())


def anchored(term: Term, order: Iterable[Body], box: Mapping[str, Range]) -> Term:
    """The term over the iterators of the Hermite normal form of its rows, factors taken in the given order.

    Iterators inside floor divisions stay. The old ranges become conditions.
    """
    matrix = [Index(e.terms, e.const, 1) for f in order for e in rows(f)]
    fixed = in_floors((*term.indices(), *(e for f in term.factors for e in rows(f))))
    change = _Change([i.name for i in term.sums if i.name not in fixed])
    for row in matrix:
        change.pivot(row)
    ranges = term.ranges(box)
    moved = [i for i in term.sums if i.name not in fixed]
    conds = [inequality(e) for i in moved for e in (change.backward[i.name] - i.lo, i.hi - 1 - change.backward[i.name])]
    new: list[Iter] = []
    for name in (*change.pivots, *change.free):
        lo, hi = bounds(change.forward[name], ranges)
        new.append(Iter(name, lo, hi + 1))
    kept = [i for i in term.sums if i.name in fixed]
    return replace(term, factors=tuple(order)).substitute(change.backward, (*new, *kept), conds)


def _inner(atom: Atom) -> bool:
    """The atom varies with a sum inside a nested scope."""
    names = (atom,) if isinstance(atom, str) else atom.num.names()
    return any(n.endswith("#") for n in names)


class _Change:
    """An invertible affine change of iterators; `backward` gives old by new, `forward` new by old. Names are reused."""

    def __init__(self, names: list[str]) -> None:
        self.free = names
        self.pivots: list[str] = []
        self.backward = {n: var(n) for n in names}
        self.forward = {n: var(n) for n in names}

    def replace(self, name: str, by: Index, new: Index) -> None:
        """The iterator `name` becomes `by` (in new iterators); `new` is the new one in the iterators before."""
        old = substitute(new, self.forward)
        self.backward = {n: substitute(e, {name: by}) for n, e in self.backward.items()}
        self.forward[name] = old

    def pivot(self, row: Index) -> None:
        """Make one free iterator carry the row, if any occurs in it."""
        while True:
            e = substitute(row, self.backward)
            live = sorted((abs(e.coefficient(n)), k, n) for k, n in enumerate(self.free) if e.coefficient(n))
            if not live:
                return
            name = live[0][2]
            if len(live) == 1:
                break
            for _, _, other in live[1:]:
                factor = e.coefficient(other) // e.coefficient(name)
                if factor:
                    self.replace(name, var(name) - factor * var(other), var(name) + factor * var(other))
        if e.coefficient(name) < 0:
            self.replace(name, -var(name), -var(name))
            e = substitute(row, self.backward)
        g = e.coefficient(name)
        shift = Index(tuple((a, c // g) for a, c in e.terms if a != name and c // g and not _inner(a)), e.const // g, 1)
        self.replace(name, var(name) - shift, var(name) + shift)
        self.free.remove(name)
        self.pivots.append(name)
