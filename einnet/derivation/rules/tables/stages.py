"""stages: a sum with a table that is a product of smaller ones over digits of its indices, as two sums, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import prod
from typing import TypeGuard

from einnet.derivation.facts import factors, has_values, without, zero_outside
from einnet.derivation.matrix_steps import has_matrix, matrix_steps
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.forced.merge import merge_read
from einnet.derivation.rules.substitute import split, split_sum_iterator, wrapped
from einnet.derivation.rules.sum_split import split_sum
from einnet.expr.index import Floor, Index, substitute, var
from einnet.expr.nodes import Body, Iter, Read, Scope, index_functions, indices, is_weight, make_mul, map_reads, nested, used_names


@rule("stages", order=45, guard="an operand is a product of tables, indexed by digits of a sum's iterator and of a loop", kind="reassociation")
def stages(e: Scope) -> Iterator[Outcome]:
    """L[k] Σ[n] f(n)*{L[k,n] Σ[r] a(k1,n,r)*b(k,n2,r)}[k,n] = L[k] {L[k1,k2] Σ[n2,r] b*{L[k1,n2,r] Σ[n1] a*f}[k1,n2,r]}[k1,k2]

    (k1,k2) and (n1,n2) are the digits of k and n that the table reads, as k%K and k//K. Where the tables are such products again, so is each stage:
    as far as that goes is one step, the first, and each stage is one.
    """
    if e.reduce != "sum" or not e.sums:
        yield Refused("it is no sum")
        return
    found = False
    for place, table in enumerate(factors(e.body)):
        if is_product(table):
            ways = list(in_stages(e, table))
            whole = all_stages(ways[0][0], e) if ways else e
            if ways and whole != ways[0][0]:
                yield Rewrite(whole, f"factor={place} all", "reassociation")
            for staged, text in ways:
                found = True
                yield Rewrite(staged, f"factor={place} {text}", "reassociation")
    if not found:
        yield Refused("no operand is a product of tables by digits of which one sum needs a part")


def is_product(table: Body) -> TypeGuard[Read]:
    """A weight that is a product of others, read at a place."""
    return isinstance(table, Read) and isinstance(table.base, Scope) and is_weight(table) and len(factors(table.base.body)) > 1


def all_stages(e: Scope, given: Scope) -> Scope:
    """A scope and those that it reads in stages, again and again, each in the way that takes the fewest products; what was read before stays."""
    before = {given, *nested(given)}

    def inside(r: Read) -> Read:
        return replace(r, base=all_stages(r.base, given)) if isinstance(r.base, Scope) and r.base not in before and not is_weight(r) else r

    e = replace(e, body=map_reads(e.body, inside))
    ways = [staged for table in factors(e.body) if is_product(table) for staged, _ in in_stages(e, table)] if e.reduce == "sum" and e.sums else []
    return all_stages(min(ways, key=products), given) if ways else e


def in_stages(e: Scope, table: Read) -> Iterator[tuple[Scope, str]]:
    """The ways to sum over what only a part of the table's factors has before the rest, those that take no more products."""
    merged = merge_read(e, table)
    walked = {n for ix in table.index for n in ix.names()}
    if isinstance(merged, Refused) or not (digit_sizes(merged, walked) or any(isinstance(f, Read) and has_values(f) for f in factors(merged.body))):
        return
    found = in_digits(merged, walked)
    if found is None:
        return
    inner, forward = found
    for outside in sums_apart(inner):
        staged = split_sum(inner, outside)
        if products(staged) <= products(e, inside=False):
            names = ",".join(i.name for i in inner.sums if i not in outside)
            yield Scope(e.loops, (), Read(staged, forward)), f"first={names}"


def sums_apart(e: Scope) -> Iterator[tuple[Iter, ...]]:
    """Sums over what one of several weights has, where the others and data have more: what is summed before is no table."""
    parts = factors(e.body)
    for place, last in enumerate(parts):
        outside = tuple(i for i in e.sums if i.name in used_names(last))
        before = {i.name for i in e.sums if i not in outside}
        rest = without(parts, place)
        data = any(not is_weight(f) and before & used_names(f) for f in rest)
        if is_weight(last) and outside and data and any(is_weight(f) for f in rest):
            yield outside


def in_digits(merged: Scope, walked: Collection[str]) -> tuple[Scope, tuple[Index, ...]] | None:
    """The scope with the iterators at which a table was read as digits, and digits of these, and where it is read then; None where a sum has none."""
    inner, forward, left = merged, tuple(var(i.name) for i in merged.loops), set(walked)
    while sizes := digit_sizes(inner, left):
        before = {i.name for i in (*inner.loops, *inner.sums)}
        for i in inner.sums:
            if i.name in sizes:
                outcome = split_sum_iterator(ending(inner, i, sizes[i.name]), i, sizes[i.name])
                if not isinstance(outcome, Rewrite):
                    return None
                inner = outcome.scope
        for i in inner.loops:
            if i.name in sizes and i.lo == 0:
                mapping = dict(zip((k.name for k in inner.loops), forward))
                inner, onward = wrapped(split(inner, i, sizes[i.name]).scope)
                forward = tuple(substitute(ix, mapping) for ix in onward)
        left = {i.name for i in (*inner.loops, *inner.sums)} - before
    return inner, forward


def ending(e: Scope, i: Iter, size: int) -> Scope:
    """A product in which the data is 0 beyond the last place of an iterator that digits of a size go beyond: what is read there is a part of more."""
    parts = factors(e.body)
    if i.extent % size == 0 or zero_outside(e.body, i.name, i.range, e.ranges):
        return e
    data = next((n for n, f in enumerate(parts) if not is_weight(f) and i.name in used_names(f)), None)
    if data is None:
        return e
    loops = tuple(k for k in (*e.loops, *e.sums) if k.name in used_names(parts[data]))
    return replace(e, body=make_mul((Read(Scope(loops, (), parts[data]), indices(loops)), *without(parts, data))))


def digit_sizes(merged: Scope, walked: Collection[str]) -> dict[str, int]:
    """By what weights divide the iterators at which a table was read, for each the smallest."""
    found: dict[str, int] = {}
    for weight in filter(is_weight, factors(merged.body)):
        for ix in index_functions(weight):
            for atom, _ in ix.terms:
                name = single(atom.num) if isinstance(atom, Floor) else None
                if isinstance(atom, Floor) and name is not None and name in walked:
                    found[name] = min(atom.den, found.get(name, atom.den))
    return found


def single(ix: Index) -> str | None:
    """The iterator that an index is."""
    names = tuple(ix.names())
    return names[0] if len(names) == 1 and ix == var(names[0]) else None


def products(staged: Scope, inside: bool = True) -> int:
    """Products that a scope takes and those `inside` of it that are read; sums of a matrix that carries its values are shared."""
    own = matrix_steps(staged) if has_matrix(staged) else prod(i.extent for i in (*staged.loops, *staged.sums))
    return own + sum(products(s, inside=False) for s in nested(staged) if not is_weight(s)) if inside else own
