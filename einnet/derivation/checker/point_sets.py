"""Proof by sets of points: sums of one function over the same places, however the places are walked.

A term of a normal form adds up a product over the points of a polyhedron. What it reads at a point are index functions of it: the point's place. Of
terms with the same coefficient and the same factors, index functions forgotten, only the places matter: where no two points of one term have one
place, and no place belongs to two terms, the terms add up the product over the union of their places, each once. Two sides with equal unions are
equal, whether one walks the places in blocks, chunks, triangles or along diagonals. A place at which a factor is 0 says nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import lcm

from einnet.expr import sets
from einnet.expr.index import ZERO, Index, Range, var
from einnet.expr.nodes import (
    Add,
    Body,
    Const,
    Iter,
    Mul,
    Scope,
    Val,
    children,
    index_functions,
    make_add,
    make_mul,
    map_indices,
    rebuild,
    rename_apart,
    substitute_body,
)  # fmt: skip
from einnet.expr.normal.canonical import profile
from einnet.expr.normal.infinities import infinities
from einnet.expr.normal.inline import terms_of
from einnet.expr.normal.limits import OutOfReach
from einnet.expr.normal.terms import Term, divisor_condition, supports

ONE = Const(Fraction(1))

MOST_TERMS = 12
"""Terms of a side that are looked at."""

Kind = tuple[Fraction, tuple[Body, ...]]
"""What terms must have in common: the coefficient, and the factors at one place."""


def equal_as_sets(before: Scope, after: Scope) -> bool:
    """Both sides add up the same products over the same places."""
    try:
        sides = terms_of(before), terms_of(_named_alike(after, before.loops))
    except OutOfReach:
        return False
    if any(len(terms) > MOST_TERMS for terms in sides):
        return False
    box = {i.name: i.range for i in before.loops}
    left, right = map(_grouped, sides)
    return left.keys() == right.keys() and all(_same_places(left[k], right[k], box) for k in left)


def _named_alike(scope: Scope, loops: Sequence[Iter]) -> Scope:
    """The scope over these loops."""
    if scope.loops == tuple(loops):
        return scope
    apart = rename_apart(scope, {i.name for i in loops})
    mapping = {old.name: var(new.name) for old, new in zip(apart.loops, loops, strict=True)}
    return Scope(tuple(loops), apart.sums, substitute_body(apart.body, mapping), apart.reduce)


def _ordered(term: Term) -> list[Body]:
    """The factors, alike ones as they stand."""
    return sorted(map(gathered, term.factors), key=profile)


def _place(term: Term) -> tuple[Index, ...]:
    return tuple(e for f in _ordered(term) for e in index_functions(f))


def gathered(body: Body) -> Body:
    """The body with one index function for all that is the same multiple of one: c*val(e) + d*val(f) is val(c*e + d*f).

    What may be infinite stays as it is written.
    """
    args = tuple(map(gathered, children(body)))
    body = rebuild(body, args) if args else body
    if not isinstance(body, (Add, Mul)) or any(map(infinities, args)):
        return body
    parts: dict[tuple[Body, ...], Index] = {}
    for term in body.args if isinstance(body, Add) else (body,):
        rest, index = _multiple(term)
        parts[rest] = parts.get(rest, ZERO) + index
    return make_add(_product(rest, index) for rest, index in parts.items())


def _multiple(term: Body) -> tuple[tuple[Body, ...], Index]:
    """A term as an index function times what has none."""
    index, rest = Index((), 1), []
    for f in term.args if isinstance(term, Mul) else (term,):
        if isinstance(f, Const) and isinstance(f.value, Fraction):
            index = index * f.value.numerator / f.value.denominator
        elif isinstance(f, Val) and index.is_const:
            index = f.index * index.const / index.den
        else:
            rest.append(f)
    return tuple(rest), index


def _product(rest: tuple[Body, ...], index: Index) -> Body:
    if index.is_const:
        number = Const(Fraction(index.const, index.den))
        return make_mul((number, *rest)) if number != ONE or not rest else make_mul(rest)
    return make_mul((Val(index), *rest))


def _grouped(terms: Iterable[Term]) -> dict[Kind, list[Term]]:
    groups: dict[Kind, list[Term]] = {}
    for t in terms:
        nowhere = tuple(map_indices(f, lambda _: Index()) for f in _ordered(t))
        groups.setdefault((t.coefficient, nowhere), []).append(t)
    return groups


def _same_places(left: Sequence[Term], right: Sequence[Term], box: Mapping[str, Range]) -> bool:
    """The unions of both sides are equal, and on each side every place is reached once. Fractions are compared as multiples of one."""
    scales = [lcm(*(e.den for e in column)) for column in zip(*map(_place, (*left, *right)))]
    images = [[_image(t, box, scales) for t in side] for side in (left, right)]
    for side in images:
        if not all(map(sets.once, side)) or not all(sets.apart(a, b) for a, b in combinations(side, 2)):
            return False
    return sets.same_union(*images)


def _image(term: Term, box: Mapping[str, Range], scales: Sequence[int]) -> sets.Image:
    """The points of the loops and sums, and the place of each beside its loops."""
    conds, divisors = supports(term.factors, term.absorbing)
    given = (*term.conds, *conds, *map(divisor_condition, (*term.divisors, *divisors)))
    place = tuple(e * scale for e, scale in zip(_place(term), scales, strict=True))
    return sets.Image(tuple(term.ranges(box).items()), (*map(var, box), *place), frozenset(given))
