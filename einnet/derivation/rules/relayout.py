"""relayout: copy an operand in the order in which it is read. im2col, space-to-depth, transposes and padding are instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from einnet.derivation.facts import hull
from einnet.derivation.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, Tensor, fresh, indices, map_reads, reads
from einnet.expr.printing import print_index


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


def relayout_read(e: Scope, r: Read, order: Sequence[Iter], added: Sequence[Index] = ()) -> Rewrite:
    """Read r from a copy whose dimensions are the iterators `order`; those of a form in `added` make one dimension, at the place of the first.

    r must see the iterators of each form through a multiple of that form only.
    """
    used = {i.name for i in e.loops} | {i.name for i in e.sums}
    loops: list[Iter] = []
    forms: list[Index] = []
    index = r.index
    for i in order:
        form = next((f for f in added if i.name in f.names()), var(i.name))
        if form in forms:
            continue
        forms.append(form)
        if form == var(i.name):
            loops.append(i)
            continue
        name = fresh("u", used)
        used.add(name)
        loops.append(Iter(name, *hull((form,), e.ranges)[0]))
        index = tuple(gathered(ix, form, name) for ix in index)
    copy = Scope(tuple(loops), (), Read(r.base, index, r.fill))
    new = Read(copy, tuple(forms))
    name = r.base.name if isinstance(r.base, Tensor) else "scope"
    body = map_reads(e.body, lambda other: new if other == r else other)
    parameters = ",".join(print_index(f, [i.name for i in order]) for f in forms)
    return Rewrite(Scope(e.loops, e.sums, body, e.reduce), f"{name}[{parameters}]")


def gathered(ix: Index, form: Index, name: str) -> Index:
    """The index with k·form written as k·name, for whatever k."""
    atom, unit = form.terms[0]
    return ix + (ix.coefficient(atom) // unit) * (var(name) - form)
