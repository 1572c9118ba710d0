"""share-sum: a long sum in equal parts, which are computed side by side and added at the end."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import simplify, var
from einnet.expr.nodes import Iter, Read, Scope, fresh, indices, map_indices, reads, substitute_body

PARTS = (2, 4, 8)
"""Into how many parts a sum is cut: more of them move more partial sums than their shortness gains."""

FEWEST = 8
"""Terms of a part at least."""


@rule(
    "share-sum", order=15, guard="one iterator is summed, the parts divide its range and hold together no more elements than what is read",
    kind="reassociation", roles=("parallel",),
)  # fmt: skip
def share_sum(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[k<K] f(k) = L[x] Σ[p<P] {L[p,x] Σ[j<K/P] f(K/P*p+j)}[p,x]

    A device with more processors than a result has tiles waits for the sum, one term after the other: the parts are a batch of shorter ones.
    """
    yield from (o if isinstance(o, Refused) else Rewrite(in_parts(e, *o), told(*o)) for o in ways(e))


def ways(e: Scope) -> Iterator[tuple[Iter, int] | Refused]:
    """The iterator that is summed and the numbers of parts that it may be cut into, or why not."""
    room = sum(prod(hi - lo for lo, hi in box) for box in {r.base: r.base.box for r in reads(e.body)}.values())
    if len(e.sums) != 1:
        yield Refused("it is not reduced over one iterator")
        return
    (k,) = e.sums
    cuts = [parts for parts in PARTS if k.extent % parts == 0 and k.extent >= FEWEST * parts]
    if not cuts:
        yield Refused("the sum is too short, or no number of parts divides it")
    for parts in cuts:
        fits = parts * prod(e.shape) <= room
        yield (k, parts) if fits else Refused(f"{parts} parts would hold more elements than what is read")


def told(k: Iter, parts: int) -> str:
    """The parameters that repeat it."""
    return f"{k.name}={parts}"


def in_parts(e: Scope, k: Iter, parts: int) -> Scope:
    """The right-hand side: the parts of e, added."""
    inner = parts_of(e, k, parts)
    part = inner.loops[0]
    return Scope(e.loops, (part,), Read(inner, indices(inner.loops)), e.reduce)


def parts_of(e: Scope, k: Iter, parts: int) -> Scope:
    """e for each of so many parts of the iterator k: the first loop counts them."""
    used = {i.name for i in (*e.loops, k)}
    part = Iter(fresh("p", used), 0, parts)
    term = Iter(fresh(k.name + "'", used | {part.name}), 0, k.extent // parts)
    loops = (part, *e.loops)
    ranges = {i.name: i.range for i in (*loops, term)}
    place = {k.name: term.extent * var(part.name) + var(term.name) + k.lo}
    body = map_indices(substitute_body(e.body, place), lambda ix: simplify(ix, ranges))
    return Scope(loops, (term,), body, e.reduce)
