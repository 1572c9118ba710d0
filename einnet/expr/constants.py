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

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Cond, Read, Tensor, index_functions
from einnet.expr.terms import Term, inequality

_LARGEST = 1 << 14
"""Elements of a table."""

Table = NDArray[Any]


def without_constants(term: Term) -> Term | None:
    """One step: a number read, a sum over constants done, or a table that is an equation used; None where there is none."""
    if term.absorbing != 0 or not any(map(_is_constant, term.factors)):
        return None
    return _number(term) or _contracted(term) or _equation(term)


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
        plain, group = var(i.name), []
        for f, t in _constants(term):
            if plain in f.index:
                group.append((f, t))
        reads = [f for f, _ in group]
        others = [*(e for f in _without(term.factors, reads) for e in index_functions(f)), *(c.index for c in term.conds)]
        others += [*(num for num, _ in term.divisors), *(e for f in reads for e in f.index if e != plain)]
        if not group or any(i.name in e.names() for e in others):
            continue
        axes: dict[Index, int] = {plain: 0}
        for f in reads:
            for e in f.index:
                axes.setdefault(e, len(axes))
        extents = {e: min(n for f, t in group for d, n in zip(f.index, t.shape, strict=True) if d == e) for e in axes}
        if prod(extents.values()) > _LARGEST:
            continue
        operands: list[Any] = []
        for f, t in group:
            ends = [slice(max(i.lo, 0), max(0, min(i.hi, extents[e]))) if e == plain else slice(extents[e]) for e in f.index]
            operands += [_table(t)[tuple(ends)], [axes[e] for e in f.index]]
        kept = sorted((e for e in axes if e != plain), key=lambda e: axes[e])
        table = np.einsum(*operands, [axes[e] for e in kept], optimize=False)
        done = Read(_tensor(np.asarray(table, dtype=object)), tuple(kept))
        return replace(term, sums=tuple(j for j in term.sums if j != i), factors=(*_without(term.factors, reads), done))
    return None


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
            return left.substitute({i.name: at}, tuple(j for j in term.sums if j != i), conds)
    return None


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
