"""Nests in a form that is easy to generate from: no floor division of a loop where a split removes it, adjacent loops joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import gcd, lcm

from einnet.expr.index import ZERO, Floor, Index, combine, substitute, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.codegen.ir import (
    Expr,
    Load,
    Nest,
    Number,
    Reduce,
    Use,
    children,
    conditions,
    expand,
    expanded,
    names,
    protect,
    rebuild,
    simplified,
    substitute_expr,
    walk,
)  # fmt: skip

LARGEST_SPLIT = 64
"""Divisors up to this one split a loop."""


def normalise(nest: Nest) -> Nest:
    """The same assignments over loops without avoidable `//`, `%` and exact division, and with nested strides joined."""
    nest = replace(nest, expr=simplified(nest.expr, nest.ranges))
    nest = replace(nest, expr=inlined(nest.expr, frozenset(i.name for i in nest.loops if i.extent > 1), single_uses(nest.expr)))
    left, functions = list(nest.loops), index_functions(nest)
    while left:
        i = left.pop()
        divisor = split_divisor(i, functions)
        if 1 < divisor < i.extent:
            before = nest.loops
            nest = split(nest, i, divisor)
            left, functions = [*left, *(j for j in nest.loops if j not in before)], index_functions(nest)
    return collapsed(nest)


def single_uses(e: Expr) -> frozenset[Use]:
    """Uses of functions that are used in one place only, those inside functions counted too, and by no reduction, where they stay."""
    places: dict[str, set[Use]] = {}
    for u in uses_within(e):
        places.setdefault(u.function.name, set()).add(u)
    reduced = {u for x, _ in expanded(e, {}) if isinstance(x, Reduce) for u in uses_within(x.body)}
    return frozenset(u for group in places.values() if len(group) == 1 for u in group if u not in reduced)


def inlined(e: Expr, loops: frozenset[str], single: frozenset[Use]) -> Expr:
    """Uses outside reductions that depend on every loop, and are the only ones of their function, replaced by their values."""
    if isinstance(e, Use):
        return inlined(expand(e), loops, single) if e in single and loops <= names(e) else e
    if isinstance(e, Reduce):
        return e
    args = children(e)
    return rebuild(e, tuple(inlined(a, loops, single) for a in args)) if args else e


def uses_within(e: Expr) -> Iterator[Use]:
    """All uses, those inside functions included, equal ones once."""
    yield from dict.fromkeys(x for x, _ in expanded(e, {}) if isinstance(x, Use))


def split(nest: Nest, i: Iter, factor: int, outer: str = ".q", inner: str = ".r") -> Nest:
    """i = factor*i.q + i.r; a remainder is guarded."""
    names = i.name + outer, i.name + inner
    expr, guards = nest.expr, nest.guards
    if i.extent % factor:
        rest = Cond(Index((), i.extent - 1) - var(i.name))
        expr, guards = protect(expr, (rest,), only=i.name), (*guards, rest)
    mapping = {i.name: combine((var(names[0]), factor), (var(names[1]), 1))}
    new = (Iter(names[0], 0, -(-i.extent // factor)), Iter(names[1], 0, factor))
    at = nest.loops.index(i)
    loops = (*nest.loops[:at], *new, *nest.loops[at + 1 :])
    carrier = substitute_expr(Load("", nest.address, guards), mapping)
    assert isinstance(carrier, Load)
    nest = replace(nest, loops=loops, address=carrier.address, guards=carrier.guards)
    expr = simplified(substitute_expr(expr, mapping), nest.ranges)
    if i.extent % factor:
        expr = needed_only(expr, Cond(substitute(rest.index, mapping)), (new[0], new[1]))
    return replace(nest, expr=expr)


def needed_only(e: Expr, rest: Cond, halves: tuple[Iter, Iter]) -> Expr:
    """Loads that depend on one half of a split loop only, without the guard of the remainder: at 0 of the other half they are inside the loop."""
    if isinstance(e, Load) and rest in e.guards:
        others = tuple(c for c in e.guards if c != rest)
        free = any(all(i.name not in x.names() for x in (e.address, *(c.index for c in others))) for i in halves)
        return replace(e, guards=others) if free else e
    args = children(e)
    return rebuild(e, tuple(needed_only(a, rest, halves) for a in args)) if args else e


def split_divisor(i: Iter, functions: Iterable[Index]) -> int:
    """The factor by which i has to be split for it to leave every floor division of these that it stands in, 1 if none."""
    found = {m for e in functions for m in divisors(e, i.name)}
    together = lcm(*found) if found else 1
    return together if together <= LARGEST_SPLIT else max((m for m in found if m <= LARGEST_SPLIT), default=1)


def divisors(e: Index, name: str) -> Iterator[int]:
    """Factors of splits of an iterator that take it out of floor divisions."""
    for atom, _ in e.terms:
        if isinstance(atom, Floor):
            c = atom.num.coefficient(name)
            if c:
                yield atom.den // gcd(c, atom.den)
            yield from divisors(atom.num, name)


def index_functions(nest: Nest) -> frozenset[Index]:
    """All index functions of the nest, those of the functions it uses included."""
    inside = (x for e, _ in expanded(nest.expr, nest.ranges) for x in own_index_functions(e))
    return frozenset((nest.address, *(c.index for c in nest.guards), *inside))


def own_index_functions(e: Expr) -> Iterator[Index]:
    match e:
        case Number(index):
            yield index
        case Load(address=address):
            yield address
        case Use(index=index):
            yield from index
    yield from (c.index for c in conditions(e))


def collapsed(nest: Nest) -> Nest:
    """Join loops that every index function walks as one."""
    ordered = sorted(nest.loops, key=lambda i: -abs(nest.address.coefficient(i.name)))
    used = [nest.address, *(c.index for c in nest.guards), *(x for e in walk(nest.expr) for x in own_index_functions(e))]
    for outer, inner in adjacent_pairs(ordered, used):
        mapping = {outer.name: ZERO, inner.name: var(inner.name)}
        joined = Iter(inner.name, 0, outer.extent * inner.extent)
        carrier = substitute_expr(Load("", nest.address, nest.guards), mapping)
        assert isinstance(carrier, Load)
        loops = tuple(joined if i == inner else i for i in nest.loops if i != outer)
        expr = substitute_expr(nest.expr, mapping)
        return collapsed(replace(nest, loops=loops, address=carrier.address, expr=expr, guards=carrier.guards))
    return nest


def collapsed_sums(sums: tuple[Iter, ...], body: Expr) -> tuple[tuple[Iter, ...], Expr]:
    """The same reduction with iterators joined that every index function walks as one."""
    used = [x for e in walk(body) for x in own_index_functions(e)]
    for outer, inner in adjacent_pairs(sums, used):
        if outer.lo == inner.lo == 0:
            joined = Iter(inner.name, 0, outer.extent * inner.extent)
            kept = tuple(joined if i == inner else i for i in sums if i != outer)
            return collapsed_sums(kept, substitute_expr(body, {outer.name: ZERO}))
    return sums, body


def adjacent_pairs(iters: Sequence[Iter], used: Iterable[Index]) -> Iterator[tuple[Iter, Iter]]:
    """Pairs (outer, inner) such that stride(outer) = extent(inner)·stride(inner) in every index function."""
    involved = list(dict.fromkeys(used))
    for outer in iters:
        for inner in iters:
            if outer is not inner and all(walks_as_one(e, outer, inner) for e in involved):
                yield outer, inner


def walks_as_one(e: Index, outer: Iter, inner: Iter) -> bool:
    """The index function walks both as one iterator: stride(outer) = extent(inner)·stride(inner)."""
    if any(isinstance(a, Floor) and not {outer.name, inner.name}.isdisjoint(a.num.names()) for a, _ in e.terms):
        return False
    return e.coefficient(outer.name) == inner.extent * e.coefficient(inner.name)
