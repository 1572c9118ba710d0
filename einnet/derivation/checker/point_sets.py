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

from einnet.expr import sets
from einnet.expr.index import Index, Range, var
from einnet.expr.nodes import Body, Iter, Scope, index_functions, map_indices, reads, rename_apart, substitute_body
from einnet.expr.normal.canonical import profile
from einnet.expr.normal.inline import OutOfReach, terms_of
from einnet.expr.normal.terms import Term, divisor_condition, supports

MOST_TERMS = 12
"""Terms of a side that are looked at."""

Kind = tuple[Fraction, tuple[Body, ...], tuple[int, ...]]
"""What terms must have in common: the coefficient, the factors at one place, and the denominators of their index functions."""


def equal_as_sets(before: Scope, after: Scope) -> bool:
    """Both sides add up the same products over the same places."""
    try:
        sides = terms_of(before), terms_of(_named_alike(after, before.loops))
    except OutOfReach:
        return False
    if any(len(terms) > MOST_TERMS for terms in sides) or not all(map(_readable, (*sides[0], *sides[1]))):
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


def _readable(term: Term) -> bool:
    """All that the term reads are tensors: what a scope within a function adds up is not among the places."""
    return term.absorbing == 0 and not any(isinstance(r.base, Scope) for f in term.factors for r in reads(f))


def _ordered(term: Term) -> list[Body]:
    """The factors, alike ones as they stand."""
    return sorted(term.factors, key=profile)


def _place(term: Term) -> tuple[Index, ...]:
    return tuple(e for f in _ordered(term) for e in index_functions(f))


def _grouped(terms: Iterable[Term]) -> dict[Kind, list[Term]]:
    groups: dict[Kind, list[Term]] = {}
    for t in terms:
        nowhere = tuple(map_indices(f, lambda _: Index()) for f in _ordered(t))
        groups.setdefault((t.coefficient, nowhere, tuple(e.den for e in _place(t))), []).append(t)
    return groups


def _same_places(left: Sequence[Term], right: Sequence[Term], box: Mapping[str, Range]) -> bool:
    """The unions of both sides are equal, and on each side every place is reached once."""
    images = [[_image(t, box) for t in side] for side in (left, right)]
    for side in images:
        if not all(map(sets.once, side)) or not all(sets.apart(a, b) for a, b in combinations(side, 2)):
            return False
    return sets.same_union(*images)


def _image(term: Term, box: Mapping[str, Range]) -> sets.Image:
    """The points of the loops and sums, and the place of each beside its loops."""
    conds, divisors = supports(term.factors, term.absorbing)
    given = (*term.conds, *conds, *map(divisor_condition, (*term.divisors, *divisors)))
    return sets.Image(tuple(term.ranges(box).items()), (*map(var, box), *_place(term)), frozenset(given))
