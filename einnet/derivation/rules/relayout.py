"""relayout: copy an operand in the order in which it is read. im2col, space-to-depth, transposes and padding are instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from einnet.derivation.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.nodes import Iter, Read, Scope, Tensor, indices, map_reads, reads


@rule("relayout", guard="the operand is a tensor that is not read in the iterators' own order already")
def relayout(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] A[τ(x,y)]*g = L[x] Σ[y] {L[u] A[τ(u)]}[u]*g, u the iterators that τ uses

    On weights the copy is made at compile time.
    """
    found = False
    if not e.sums:
        yield Refused("nothing is reduced: the copy would be the whole expression")
        return
    for n, r in enumerate(dict.fromkeys(reads(e.body))):
        if not isinstance(r.base, Tensor):
            yield Refused(f"operand {n} is a scope, not a tensor")
            continue
        used = frozenset().union(*(ix.names() for ix in r.index)) if r.index else frozenset()
        order = tuple(i for i in (*e.loops, *e.sums) if i.name in used)
        if indices(order) == r.index and all(i.range == box for i, box in zip(order, r.base.box)):
            yield Refused(f"{r.base.name} is read in the iterators' order already")
            continue
        found = True
        yield relayout_read(e, r, order)
    if not found:
        yield Refused("no operand would change")


def relayout_read(e: Scope, r: Read, order: Sequence[Iter]) -> Rewrite:
    """Read r from a copy whose dimensions are the iterators `order`."""
    copy = Scope(tuple(order), (), r)
    new = Read(copy, indices(order))
    name = r.base.name if isinstance(r.base, Tensor) else "scope"
    body = map_reads(e.body, lambda other: new if other == r else other)
    return Rewrite(Scope(e.loops, e.sums, body, e.reduce), f"{name}[{','.join(i.name for i in order)}]")
