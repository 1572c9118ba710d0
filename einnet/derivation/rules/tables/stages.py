"""stages: a sum with a table that is a product of smaller ones over digits of its indices, as two sums, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from einnet.derivation.facts import factors, without
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.forced.merge import merge_read
from einnet.derivation.rules.substitute import split, split_sum_iterator
from einnet.derivation.rules.sum_split import split_sum
from einnet.expr.index import Floor, Index, substitute, var
from einnet.expr.nodes import Read, Scope, index_functions, is_weight, nested, used_names


@rule("stages", order=45, guard="an operand is a product of tables, indexed by digits of a sum's iterator and of a loop", kind="reassociation")
def stages(e: Scope) -> Iterator[Outcome]:
    """L[k] Σ[n] f(n)*{L[k,n] Σ[r] a(k1,n,r)*b(k,n2,r)}[k,n] = L[k] {L[k1,k2] Σ[n2,r] b*{L[k1,n2,r] Σ[n1] a*f}[k1,n2,r]}[k1,k2]

    (k1,k2) and (n1,n2) are the digits of k and n that the table reads, as k%K and k//K. Where the tables are such products again, so is each stage.
    """
    if e.reduce != "sum" or not e.sums:
        yield Refused("it is no sum")
        return
    found = False
    for place, table in enumerate(factors(e.body)):
        if isinstance(table, Read) and isinstance(table.base, Scope) and is_weight(table) and len(factors(table.base.body)) > 1:
            for staged, text in in_stages(e, table):
                found = True
                yield Rewrite(staged, f"factor={place} {text}", "reassociation")
    if not found:
        yield Refused("no operand is a product of tables by digits of which one sum needs a part")


def in_stages(e: Scope, table: Read) -> Iterator[tuple[Scope, str]]:
    """The ways to sum over what only a part of the table's factors has before the rest, those that take no more products."""
    sizes = digit_sizes(table)
    merged = merge_read(e, table)
    found = None if not sizes or isinstance(merged, Refused) else in_digits(merged, sizes)
    if found is None:
        return
    inner, forward = found
    parts = factors(inner.body)
    for place, last in enumerate(parts):
        outside = tuple(i for i in inner.sums if i.name in used_names(last))
        if is_weight(last) and outside and len(outside) < len(inner.sums) and any(is_weight(f) for f in without(parts, place)):
            staged = split_sum(inner, outside)
            if products(staged) <= prod(i.extent for i in (*e.loops, *e.sums)):
                names = ",".join(i.name for i in inner.sums if i not in outside)
                yield Scope(e.loops, (), Read(staged, forward)), f"first={names}"


def in_digits(merged: Scope, sizes: Mapping[str, int]) -> tuple[Scope, tuple[Index, ...]] | None:
    """The scope with its iterators as digits of the sizes, and where it is read then; None where a sum has no such digits."""
    inner, forward = merged, tuple(var(i.name) for i in merged.loops)
    for i in merged.sums:
        if i.name in sizes:
            outcome = split_sum_iterator(inner, i, sizes[i.name])
            if not isinstance(outcome, Rewrite):
                return None
            inner = outcome.scope
    for i in merged.loops:
        if i.name in sizes and i.lo == 0:
            wrapped = split(inner, i, sizes[i.name]).scope.body
            assert isinstance(wrapped, Read) and isinstance(wrapped.base, Scope)
            mapping = dict(zip((k.name for k in inner.loops), forward))
            inner, forward = wrapped.base, tuple(substitute(ix, mapping) for ix in wrapped.index)
    return inner, forward


def digit_sizes(table: Read) -> dict[str, int]:
    """By what the product of tables divides the iterators at which it is read, for each the smallest."""
    assert isinstance(table.base, Scope)
    at = {i.name: ix for i, ix in zip(table.base.loops, table.index)}
    found: dict[str, int] = {}
    for ix in index_functions(table.base.body):
        for atom, _ in ix.terms:
            own = single(atom.num) if isinstance(atom, Floor) else None
            outer = single(at[own]) if own in at else None
            if isinstance(atom, Floor) and outer is not None:
                found[outer] = min(atom.den, found.get(outer, atom.den))
    return found


def single(ix: Index) -> str | None:
    """The iterator that an index is."""
    names = tuple(ix.names())
    return names[0] if len(names) == 1 and ix == var(names[0]) else None


def products(staged: Scope) -> int:
    """Products that two stages take."""
    own = prod(i.extent for i in (*staged.loops, *staged.sums))
    return own + sum(prod(i.extent for i in (*s.loops, *s.sums)) for s in nested(staged) if not is_weight(s))
