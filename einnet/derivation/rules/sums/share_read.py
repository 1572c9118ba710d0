"""share-read: a long sum that another sum reads, in equal parts, which the one that reads them adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from einnet.derivation.facts import factors, without
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.sums.share_sum import parts_of, told, ways
from einnet.expr.index import var
from einnet.expr.nodes import Iter, Read, Scope, fresh, inside, is_weight, make_mul, neutral


@rule(
    "share-read", order=16, guard="one iterator is summed where it is read, once as a factor of a sum, and its parts are those of share-sum",
    kind="reassociation", roles=("parallel",),
)  # fmt: skip
def share_read(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] g*{L[z] Σ[k<K] f(k)}[φ] = L[x] Σ[p<P,y] g*{L[p,z] Σ[j<K/P] f(K/P*p+j)}[p,φ]

    A sum of sums is one sum: no kernel of its own adds the parts.
    """
    found = list(read_sums(e))
    if not found:
        yield Refused("no sum has a sum as a factor")
    for n, r, read in found:
        for way in ways(read):
            yield way if isinstance(way, Refused) else Rewrite(read_in_parts(e, n, r, parts_of(read, *way)), f"factor={n} {told(*way)}")


def read_sums(e: Scope) -> Iterator[tuple[int, Read, Scope]]:
    """Reductions that a reduction by the same operation reads as a factor, each behind the factor and its place."""
    parts = factors(e.body) if e.reduce == "sum" else (e.body,)
    for n, r in enumerate(parts if e.sums else ()):
        if not isinstance(r, Read) or not isinstance(r.base, Scope) or r.base.reduce != e.reduce or is_weight(r.base):
            continue
        if r.fill == neutral(e.reduce) or inside(r, e.ranges):
            yield n, r, r.base


def read_in_parts(e: Scope, n: int, r: Read, parts: Scope) -> Scope:
    """The right-hand side: the n-th factor in parts, over which is summed."""
    (first, *_) = parts.loops
    part = Iter(fresh("p", e.ranges), first.lo, first.hi)
    read = Read(parts, (var(part.name), *r.index), r.fill)
    rest = without(factors(e.body), n) if e.reduce == "sum" else ()
    return replace(e, sums=(part, *e.sums), body=make_mul((read, *rest)))
