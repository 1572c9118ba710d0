"""relayout: copy an operand in the order in which it is read. im2col, space-to-depth, residue classes, transposes and padding are instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from einnet.derivation.facts import hull
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, Range, var
from einnet.expr.nodes import Iter, Read, Scope, Tensor, fresh, indices, map_reads, reads
from einnet.expr.notation.printing import print_index


@rule("relayout", order=110, guard="the operand is a tensor that is not read in the iterators' own order already", roles=("converging",))
def relayout(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[y] A[τ(σ(x,y))]*g = L[x] Σ[y] {L[u] A[τ(u)]}[σ(x,y)]*g, u in the box hull of σ

    σ is all iterators that the index uses, or the digits of its dimensions: 2*h'+h''+2*r is 2*u+h'' with u = h'+r. On weights the copy
    is made at compile time.
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
        if any(factor(ix, e.ranges) for ix in r.index) and not repeated(r):
            found = True
            yield relayout_read(e, r, order, [f for ix in r.index for f in digits(ix, factor(ix, e.ranges))])
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


def factor(ix: Index, ranges: Mapping[str, Range]) -> int:
    """The greatest coefficient under which other iterators of an affine index fit as a smaller digit, beside a sum of multiples; 0 if none."""
    return max((abs(c) for _, c in ix.terms if abs(c) > 1 and _fits(ix, abs(c), ranges)), default=0) if ix.is_affine else 0


def _fits(ix: Index, d: int, ranges: Mapping[str, Range]) -> bool:
    """Two iterators or more are multiples of d, and all others together reach less far than d."""
    fine = [(abs(c), ranges[str(a)]) for a, c in ix.terms if c % d]
    return bool(fine) and len(ix.terms) > len(fine) + 1 and sum(c * (hi - lo - 1) for c, (lo, hi) in fine) < d


def digits(ix: Index, d: int) -> list[Index]:
    """ix = d·u + v + a constant below d: u and the iterators of v. The index itself where d is 0."""
    if not d:
        return [ix] if ix.terms else []
    coarse = Index(tuple((a, c // d) for a, c in ix.terms if c % d == 0), ix.const // d)
    return [*(var(str(a)) for a, c in ix.terms if c % d), coarse]


def repeated(read: Read) -> str:
    """An iterator that moves two dimensions at once, or ''."""
    seen: set[str] = set()
    for ix in read.index:
        again = sorted(seen & ix.names())
        if again:
            return again[0]
        seen |= ix.names()
    return ""
