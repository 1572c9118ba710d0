"""Scopes beside those that a rule is known to take or to refuse: where a guard that is off by one lets through what is false."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import count
from math import prod
from random import Random

from einnet.derivation.facts import factors
from einnet.derivation.steps import replace_at, subscope
from einnet.expr.index import Index, var
from einnet.expr.nodes import (
    Body,
    Call,
    Cond,
    Iter,
    Read,
    Scope,
    Select,
    index_functions,
    make_add,
    make_mul,
    map_indices,
    map_reads,
    reads,
    substitute_body,
    walk,
)
from einnet.expr.values.points import work
from tests.search.mutations import paths

MOST_WORK = 20_000
"""Evaluations of bodies: sources that need more are left out."""

ADDED = ("t", "u", "p", "z", "i", "j", "a", "b", "k", "m")
"""Names that rules like to give."""


def small(scope: Scope) -> bool:
    return work(scope, points := prod(scope.shape)) <= MOST_WORK and points <= 400


def perturbed(rng: Random, scope: Scope) -> Scope:
    """The scope with one to three small changes, in it or in what it reads."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        path = rng.choice(list(paths(scope)))
        changed = rng.choice(CHANGES)(rng, subscope(scope, path))
        whole = replace_at(scope, path, changed)
        scope = whole if small(whole) else scope
    return scope


def other_range(rng: Random, s: Scope) -> Scope:
    """An iterator that is longer or shorter, of one value or two, or begins elsewhere."""
    if not s.ranges:
        return s
    name = rng.choice(sorted(s.ranges))

    def moved(i: Iter) -> Iter:
        lo = i.lo + rng.choice((-1, 0, 0, 0, 1, 2))
        return Iter(i.name, lo, lo + max(1, rng.choice((1, 2, i.extent - 1, i.extent, i.extent + 1)))) if i.name == name else i

    return replace(s, loops=tuple(map(moved, s.loops)), sums=tuple(map(moved, s.sums)))


def other_index(rng: Random, s: Scope) -> Scope:
    """An index function, of a read or of a condition, that is moved, turned round, scaled, divided, or has another iterator in it."""
    total = sum(1 for _ in index_functions(s.body))
    if not total or not s.ranges:
        return s
    at, places = rng.randrange(total), count()
    name, shift = rng.choice(sorted(s.ranges)), rng.choice((-1, 1))
    how = rng.randrange(8)

    def moved(e: Index) -> Index:
        if next(places) != at:
            return e
        return (e + shift, e + shift, shift - e, 2 * e, e + var(name), e - var(name), e // 2, var(name) + shift)[how]

    return replace(s, body=map_indices(s.body, moved))


def other_condition(rng: Random, s: Scope) -> Scope:
    """A choice of regions with an equation for an inequality, or without one of its conditions, or with its sides exchanged."""
    how = rng.randrange(3)

    def changed(body: Body) -> Body:
        if not isinstance(body, Select):
            return body
        first, *rest = body.conds
        if how == 2:
            return Select(body.conds, body.other, body.then)
        return Select((Cond(first.index, not first.equal), *rest) if how or not rest else tuple(rest), body.then, body.other)

    return replace(s, body=make_mul(map(changed, factors(s.body))))


def other_read(rng: Random, s: Scope) -> Scope:
    """A read with another fill, or of what stands elsewhere in the body."""
    found = list(reads(s.body))
    if not found:
        return s
    one, two = rng.choice(found), rng.choice(found)
    new = Read(two.base, one.index, one.fill) if len(two.index) == len(one.index) and rng.randrange(2) else Read(one.base, one.index, Fraction(1))
    return replace(s, body=map_reads(s.body, lambda r: new if r == one else r))


def other_body(rng: Random, s: Scope) -> Scope:
    """A body with an operand once more, as a factor or as a term, or in a function."""
    found = list(reads(s.body))
    more = rng.choice(found) if found else s.body
    return replace(s, body=rng.choice((make_mul((s.body, more)), make_add((s.body, more)), Call("relu", (s.body,)))))


def other_name(rng: Random, s: Scope) -> Scope:
    """An iterator that is named as one of what is read, or as rules name what they add."""
    if not s.ranges:
        return s
    old = rng.choice(sorted(s.ranges))
    new = rng.choice(sorted({*ADDED, f"{old}'", f"{old}''", *(n for t in walk(s) for n in t.ranges)} - s.ranges.keys()))
    loops, sums = (tuple(Iter(new, i.lo, i.hi) if i.name == old else i for i in iters) for iters in (s.loops, s.sums))
    return replace(s, loops=loops, sums=sums, body=substitute_body(s.body, {old: var(new)}))


def other_reduction(rng: Random, s: Scope) -> Scope:
    """A maximum for a sum, or one that sums nothing."""
    if not s.sums:
        return s
    return replace(s, reduce=rng.choice(("max", "min", "sum")))


CHANGES: tuple[Callable[[Random, Scope], Scope], ...] = (
    other_range, other_range, other_range, other_index, other_index, other_index, other_condition, other_read, other_body, other_name,
    other_reduction,
)  # fmt: skip
