"""Exact sums over constant matrices, such as those of a bilinear algorithm: Σ[p] Aᵀ[i,p] * G[p,r] * Bᵀ[p,j] becomes one table, and where that
says `j = i + r` and nothing else, the sum over j is one term. This is the Brent equation of the algorithm, checked on its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.index import Index, bounds, var
from einnet.expr.nodes import Body, Cond, Iter, Read, Tensor, index_functions
from einnet.expr.normal.infinities import infinities
from einnet.expr.normal.terms import Term, inequality
from einnet.expr.normal.totals import partial

_LARGEST = 1 << 14
"""Elements of a table."""

Table = NDArray[Any]


def without_constants(term: Term) -> Term | None:
    """One step: a number read, a sum over constants done, or a table that is an equation used; None where there is none."""
    if term.absorbing != 0 or not any(map(_is_constant, term.factors)):
        return None
    if partial(term.factors):
        return _number(term) or (None if any(map(infinities, term.factors)) else _contracted(term))
    return _number(term) or _uniform(term) or _contracted(term) or _equation(term) or _diagonal(term)


def _is_constant(f: Body) -> bool:
    return isinstance(f, Read) and isinstance(f.base, Tensor) and f.base.values is not None and f.fill == 0 and all(e.den == 1 for e in f.index)


def _constants(term: Term) -> Iterator[tuple[Read, Tensor]]:
    for f in term.factors:
        if isinstance(f, Read) and isinstance(f.base, Tensor) and _is_constant(f):
            yield f, f.base


def _table(t: Tensor) -> Table:
    assert t.values is not None
    return np.asarray(t.values, dtype=object).reshape(t.shape)


def _without(factors: tuple[Body, ...], gone: list[Read]) -> tuple[Body, ...]:
    left = list(factors)
    for f in gone:
        left.remove(f)
    return tuple(left)


def _number(term: Term) -> Term | None:
    """Reads at constant indices are numbers."""
    for f, t in _constants(term):
        if all(e.is_const for e in f.index):
            at = tuple(e.const for e in f.index)
            inside = all(0 <= x < n for x, n in zip(at, t.shape, strict=True))
            value = Fraction(_table(t)[at]) if inside else Fraction(0)
            return replace(term, coefficient=term.coefficient * value, factors=_without(term.factors, [f]))
    return None


def _contracted(term: Term) -> Term | None:
    """A sum whose iterator is a plain index of constants, and stands nowhere else, is done."""
    for i in term.sums:
        group = _indexed_alone(term, i)
        done = _summed(i, group) if group else None
        if done is not None:
            factors = _without(term.factors, [f for f, _ in group])
            return replace(term, sums=tuple(j for j in term.sums if j != i), factors=(*factors, done))
    return None


def _indexed_alone(term: Term, i: Iter) -> list[tuple[Read, Tensor]]:
    """The constants that an iterator indexes, where it is a plain index of them and stands nowhere else; else none."""
    plain = var(i.name)
    group = [(f, t) for f, t in _constants(term) if plain in f.index]
    reads = [f for f, _ in group]
    others = [*(e for f in _without(term.factors, reads) for e in index_functions(f)), *(c.index for c in term.conds)]
    others += [*(num for num, _ in term.divisors), *(e for f in reads for e in f.index if e != plain)]
    return [] if any(i.name in e.names() for e in others) else group


def _summed(i: Iter, group: list[tuple[Read, Tensor]]) -> Read | None:
    """The sum over an iterator of a product of constants, as one constant read at their other indices; None where that would be too large."""
    plain = var(i.name)
    axes: dict[Index, int] = {plain: 0}
    for e in (e for f, _ in group for e in f.index):
        axes.setdefault(e, len(axes))
    extents = {e: min(n for f, t in group for d, n in zip(f.index, t.shape, strict=True) if d == e) for e in axes}
    if prod(extents.values()) > _LARGEST:
        return None
    operands: list[Any] = []
    for f, t in group:
        ends = [slice(max(i.lo, 0), max(0, min(i.hi, extents[e]))) if e == plain else slice(extents[e]) for e in f.index]
        operands += [_table(t)[tuple(ends)], [axes[e] for e in f.index]]
    kept = [e for e in axes if e != plain]
    table = np.einsum(*operands, [axes[e] for e in kept], optimize=False)
    return Read(_tensor(np.asarray(table, dtype=object)), tuple(kept))


def _tensor(table: Table) -> Tensor:
    """A constant named for nothing but its shape, so that equal tables are equal tensors."""
    values = tuple(Fraction(v) for v in table.reshape(-1).tolist())
    return Tensor(f"table{'x'.join(map(str, table.shape))}", table.shape, "f64", True, values)


def _equation(term: Term) -> Term | None:
    """A table with one value wherever an iterator is an affine function of the other indices, and 0 elsewhere, fixes that iterator."""
    for f, t in _constants(term):
        for axis, e in enumerate(f.index):
            i = next((i for i in term.sums if e == var(i.name)), None)
            rest = [x for k, x in enumerate(f.index) if k != axis]
            if i is None or any(i.name in x.names() for x in rest):
                continue
            fit = _fit(np.moveaxis(_table(t), axis, -1))
            if fit is None:
                continue
            slopes, offset, value = fit
            at = sum((s * x for s, x in zip(slopes, rest, strict=True)), Index((), offset, 1))
            conds: list[Cond] = [inequality(at - i.lo), inequality(i.hi - 1 - at)]
            for x, n in zip(rest, np.delete(t.shape, axis).tolist(), strict=True):
                conds += [inequality(x), inequality(n - 1 - x)]
            left = replace(term, coefficient=term.coefficient * value, factors=_without(term.factors, [f]))
            return left.substitute({i.name: at}, tuple(j for j in term.sums if j != i), _needed(term, conds))
    return None


def _uniform(term: Term) -> Term | None:
    """A table of one value is that value, where its indices lie inside."""
    for f, t in _constants(term):
        values = set(t.values or ())
        if len(values) == 1:
            conds = _needed(term, [c for e, n in zip(f.index, t.shape, strict=True) for c in (inequality(e), inequality(n - 1 - e))])
            return replace(term, coefficient=term.coefficient * values.pop(), factors=_without(term.factors, [f]), conds=(*term.conds, *conds))
    return None


def _needed(term: Term, conds: list[Cond]) -> list[Cond]:
    """The conditions that do not follow from the ranges of the term's own sums."""
    ranges = {i.name: i.range for i in term.sums}
    return [c for c in conds if not c.index.names() <= ranges.keys() or bounds(c.index, ranges)[0] < 0]


def _diagonal(term: Term) -> Term | None:
    """A table that is 0 wherever an iterator differs from another index fixes that iterator; what is left of it is its diagonal."""
    for f, t in _constants(term):
        table = _table(t)
        for axis, e in enumerate(f.index):
            i = next((i for i in term.sums if e == var(i.name)), None)
            for other, x in enumerate(f.index):
                if i is None or other == axis or i.name in x.names() or t.shape[axis] != t.shape[other] or not _only_diagonal(table, axis, other):
                    continue
                diagonal = np.moveaxis(np.diagonal(table, axis1=axis, axis2=other), -1, other - (axis < other))
                kept = tuple(y for k, y in enumerate(f.index) if k != axis)
                conds = _needed(term, [inequality(x - i.lo), inequality(i.hi - 1 - x)])
                left = replace(term, factors=(*_without(term.factors, [f]), Read(_tensor(diagonal), kept)))
                return left.substitute({i.name: x}, tuple(j for j in term.sums if j != i), conds)
    return None


def _only_diagonal(table: Table, axis: int, other: int) -> bool:
    """All values off the diagonal of two axes are 0."""
    moved = np.moveaxis(table, (axis, other), (0, 1))
    return all(not moved[a, b].any() if moved.ndim > 2 else moved[a, b] == 0 for a, b in np.ndindex(*moved.shape[:2]) if a != b)


def _fit(table: Table) -> tuple[list[int], int, Fraction] | None:
    """Slopes and offset of the place of the one nonzero value along the last axis, and that value; None where there is no such rule."""
    where: dict[tuple[int, ...], int] = {}
    values: set[Fraction] = set()
    for at in product(*map(range, table.shape[:-1])):
        found = [k for k in range(table.shape[-1]) if table[(*at, k)] != 0]
        if len(found) != 1:
            return None
        where[at] = found[0]
        values.add(table[(*at, found[0])])
    if len(values) != 1:
        return None
    rank = table.ndim - 1
    origin = (0,) * rank
    units = [tuple(int(k == axis) for k in range(rank)) for axis in range(rank)]
    slopes = [where[u] - where[origin] if u in where else 0 for u in units]
    if any(place != where[origin] + sum(s * x for s, x in zip(slopes, at, strict=True)) for at, place in where.items()):
        return None
    return slopes, where[origin], values.pop()
