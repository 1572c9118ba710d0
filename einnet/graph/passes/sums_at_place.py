"""Sums over what one place of the data holds, before they are added up over the places that a result reads.

    Σ[c,s] x[c,e(w,s)]*W[c,s] = Σ[s] {Σ[c] x[c,f]*W[c,s]}[e(w,s),s]

A transposed convolution is such a sum: what it makes of every place is a product with a matrix, whatever overlaps then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Mul, Read, Scope, Tensor, fresh, indices, make_mul


@dataclass(frozen=True, slots=True)
class Apart:
    """A sum in two: `inner` at every place of the data, and the whole in terms of that."""

    inner: Scope
    whole: Scope
    index: tuple[Index, ...]

    def reading(self, made: Tensor) -> Scope:
        """The whole, which reads what the inner sum has made."""
        return replace(self.whole, body=Read(made, self.index))


def apart(scope: Scope, weights: Mapping[str, np.ndarray]) -> Apart | None:
    """A product of data and a weight so; None where it is none, all places are read as they lie, or that would take more products."""
    if scope.reduce != "sum" or not isinstance(scope.body, Mul) or len(scope.body.args) != 2:
        return None
    x, w = scope.body.args
    if not isinstance(x, Read) or not isinstance(w, Read) or not isinstance(x.base, Tensor) or not isinstance(w.base, Tensor):
        return None
    if w.base.name not in weights:
        return apart(replace(scope, body=Mul((w, x))), weights) if x.base.name in weights else None
    if x.fill or w.fill or not np.isfinite(weights[w.base.name]).all():
        return None
    found = _apart(scope, x, w)
    return found if found is not None and prod(i.extent for i in (*found.inner.loops, *found.inner.sums)) <= _points(scope) else None


def _apart(scope: Scope, x: Read, w: Read) -> Apart | None:
    early = tuple(i for i in scope.sums if _walks_alone(i, x) and _walks_alone(i, w))
    own = tuple(i for i in (*scope.loops, *scope.sums) if i not in early and any(i.name in ix.names() for ix in w.index))
    places = [p for p, ix in enumerate(x.index) if not any(ix == var(i.name) for i in early)]
    if not early or len(early) == len(scope.sums) or all(_plain(x.index[p], scope) for p in places):
        return None
    taken, at = {i.name for i in (*scope.loops, *scope.sums)}, list(x.index)
    loops: list[Iter] = []
    for p in places:
        name = fresh("f", taken)
        taken.add(name)
        loops.append(Iter(name, *x.base.box[p]))
        at[p] = var(name)
    inner = Scope((*loops, *own), early, make_mul((Read(x.base, tuple(at)), w)))
    later = tuple(i for i in scope.sums if i not in early)
    return Apart(inner, Scope(scope.loops, later, scope.body), (*(x.index[p] for p in places), *indices(own)))


def _walks_alone(i: Iter, read: Read) -> bool:
    """The iterator walks all of one dimension, and stands nowhere else."""
    where = [p for p, ix in enumerate(read.index) if i.name in ix.names()]
    return len(where) == 1 and read.index[where[0]] == var(i.name) and read.base.box[where[0]] == i.range


def _plain(place: Index, scope: Scope) -> bool:
    """The place of one loop, or one that is known."""
    return place.is_const or any(place == var(i.name) for i in scope.loops)


def _points(scope: Scope) -> int:
    return prod(i.extent for i in (*scope.loops, *scope.sums))
