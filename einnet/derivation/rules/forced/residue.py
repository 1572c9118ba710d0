"""residue: a sum over the residues of an exact division has one term."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import gcd

from einnet.derivation.facts import factors, zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, simplify
from einnet.expr.nodes import Iter, Read, Scope, map_indices, substitute_body


@rule(
    "residue", order=120,
    guard="a factor is read at (a·q + e)/d, a invertible mod d, 0 <= q < d; f is 0 at q beyond its range",
    kind="reassociation", roles=("forced",),
)  # fmt: skip
def residue(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[q<d] A[(q+e)/d]*f(q) = L[x] A[(q+e)/d]*f(q) at q = -e % d

    The read is outside, hence 0, for every other q.
    """
    result = collapsed(e)
    yield Refused("no summation iterator runs over the residues of an exact division") if result == e else Rewrite(result, "all", "reassociation")


@lru_cache(maxsize=1 << 14)
def collapsed(e: Scope) -> Scope:
    """All sums over residues replaced by their one term."""
    if e.reduce != "sum":
        return e
    for i in e.sums:
        found = _term(e, i)
        if found is not None:
            return collapsed(_with_value(e, i, found))
    return e


def _with_value(e: Scope, i: Iter, value: Index) -> Scope:
    ranges = {k: r for k, r in e.ranges.items() if k != i.name}
    body = map_indices(substitute_body(e.body, {i.name: value}), lambda ix: simplify(ix, ranges))
    return replace(e, sums=tuple(k for k in e.sums if k != i), body=body)


def _term(e: Scope, i: Iter) -> Index | None:
    """The one value of the iterator that can contribute."""
    if i.lo != 0 or i.extent < 2:
        return None
    for f in factors(e.body):
        if not isinstance(f, Read) or f.fill != 0:
            continue
        for ix in f.index:
            d, a = ix.den, ix.coefficient(i.name)
            if d == 1 or i.extent > d or not a or not _invertible(a, d):
                continue
            rest = Index(tuple((t, c) for t, c in ix.terms if t != i.name), ix.const)
            if i.name in rest.names():
                continue
            value = (-pow(a, -1, d) * rest) % d
            if i.extent == d or zero_outside(e.body, i.name, i.range, e.ranges):
                return value
    return None


def _invertible(a: int, d: int) -> bool:
    return gcd(a, d) == 1
