"""Products of terms: sums named apart, conditions beside what need not be a number, and functions of which a product is one of the kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from einnet.expr import sets
from einnet.expr.index import Range
from einnet.expr.nodes import Add, Body, Call, Mul
from einnet.expr.normal.factors import apart
from einnet.expr.normal.limits import MOST_TERMS, OutOfReach
from einnet.expr.normal.terms import Term, product_body
from einnet.expr.normal.totals import partial

Box = Mapping[str, Range]
Expand = Callable[[Body, Box], list[Term]]
"""The terms, not yet canonical, that add up to a body over some iterators."""


def product(left: list[Term], right: list[Term], box: Box, expand: Expand) -> list[Term]:
    """All products, the sums of the right factors named apart."""
    if len(left) * len(right) > MOST_TERMS:
        raise OutOfReach(f"more than {MOST_TERMS} terms")
    if not left or not right:
        return [replace(t, coefficient=Fraction(0), factors=partial(t.factors)) for t in left or right if partial(t.factors)]
    result = []
    for a in left:
        taken = {*box, *(i.name for i in a.sums)}
        for b in right:
            one, other = _beside(a, c := apart(b, taken), box), _beside(c, a, box)
            both = Term(
                one.coefficient * other.coefficient, one.sums + other.sums, one.conds + other.conds, one.divisors + other.divisors,
                one.factors + other.factors,
            )  # fmt: skip
            result += _merged(both, box, expand) if one.factors and other.factors else [both]
    return result


def _beside(term: Term, other: Term, box: Box) -> Term:
    """The term in a product with another: where that need not be a number, the product has no value where the term's conditions do not hold, too.

    Then they stay in a factor of their own, unless the other has no value but 0 without them.
    """
    if not (term.conds or term.divisors) or not partial(other.factors):
        return term
    ranges = {**term.ranges(box), **other.ranges(box)}
    if {*term.divisors} <= {*other.divisors} and all(sets.implied(c, other.conds, ranges) for c in term.conds):
        return term
    conds = tuple(c for c in term.conds if not sets.implied(c, (), ranges))
    return Term(term.coefficient, term.sums, factors=(product_body(replace(term, conds=conds)),))


def _merged(term: Term, box: Box, expand: Expand) -> list[Term]:
    """exp(x)·exp(y) is exp(x + y), |x|·|x| is x·x."""
    powers = [f.args[0] for f in term.factors if isinstance(f, Call) and f.name == "exp"]
    twice = next((f for f in term.factors if isinstance(f, Call) and f.name == "abs" and term.factors.count(f) > 1), None)
    if len(powers) < 2 and twice is None:
        return [term]
    ranges = {**box, **{i.name: i.range for i in term.sums}}
    if twice is None:
        left = tuple(f for f in term.factors if not (isinstance(f, Call) and f.name == "exp"))
        return product([replace(term, factors=left)], expand(Call("exp", (Add(tuple(powers)),)), ranges), ranges, expand)
    others = list(term.factors)
    others.remove(twice)
    others.remove(twice)
    return product([replace(term, factors=tuple(others))], expand(Mul(twice.args * 2), ranges), ranges, expand)
