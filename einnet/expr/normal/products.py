"""Products of terms: sums named apart, conditions beside what need not be a number, and functions of which a product is one of the kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

from einnet.expr import sets
from einnet.expr.index import Range
from einnet.expr.nodes import Add, Body, Call, Iter, Mul
from einnet.expr.normal.factors import apart
from einnet.expr.normal.infinities import unbounded
from einnet.expr.normal.limits import MOST_TERMS, OutOfReach
from einnet.expr.normal.piecewise import Sum
from einnet.expr.normal.terms import Term, product_body
from einnet.expr.normal.totals import partial

Box = Mapping[str, Range]


class Forms(Protocol):
    """How bodies become terms over the iterators of a box, and terms bodies."""

    @property
    def box(self) -> Box:
        """The ranges of the iterators."""

    def terms(self, body: Body) -> list[Term]:
        """Terms, not yet canonical, that add up to a body."""

    def collected(self, terms: Sequence[Term]) -> Sum:
        """Canonical terms, like ones added up, in one order."""

    def body(self, terms: Sum) -> Body:
        """Canonical terms as a body."""

    def over(self, sums: Sequence[Iter]) -> Forms:
        """Forms over these iterators, too."""


def product(left: list[Term], right: list[Term], forms: Forms) -> list[Term]:
    """All products, the sums of the right factors named apart."""
    left, right = _beside_infinities(left, right, forms), _beside_infinities(right, left, forms)
    box = forms.box
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
            result += _merged(both, forms) if one.factors and other.factors else [both]
    return result


def _beside_infinities(terms: list[Term], others: list[Term], forms: Forms) -> list[Term]:
    """The terms in a product with others: one sum where another factor may be infinite, since infinity times a sum is no sum of infinities."""
    if (len(terms) < 2 and not any(t.sums for t in terms)) or not any(unbounded(o, o.ranges(forms.box)) for o in others):
        return terms
    found = forms.collected(terms)
    if not found or (len(found) == 1 and not found[0].sums):
        return list(found)
    return [Term(factors=(forms.body(found),))]


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


def _merged(term: Term, forms: Forms) -> list[Term]:
    """exp(x)·exp(y) is exp(x + y), |x|·|x| is x·x."""
    powers = [f.args[0] for f in term.factors if isinstance(f, Call) and f.name == "exp"]
    twice = next((f for f in term.factors if isinstance(f, Call) and f.name == "abs" and term.factors.count(f) > 1), None)
    if len(powers) < 2 and twice is None:
        return [term]
    inner = forms.over(term.sums)
    if twice is None:
        left = tuple(f for f in term.factors if not (isinstance(f, Call) and f.name == "exp"))
        return enclosed(term, product([Term(factors=left)], inner.terms(Call("exp", (Add(tuple(powers)),))), inner))
    others = list(term.factors)
    others.remove(twice)
    others.remove(twice)
    return enclosed(term, product([Term(factors=tuple(others))], inner.terms(Mul(twice.args * 2)), inner))


def enclosed(term: Term, terms: Sequence[Term]) -> list[Term]:
    """What the factors of a term are in terms, in its sums and where its conditions hold: these are no factor, as what they enclose uses them."""
    return [
        replace(
            t, coefficient=term.coefficient * t.coefficient, sums=term.sums + t.sums, conds=term.conds + t.conds,
            divisors=term.divisors + t.divisors,
        )
        for t in terms
    ]  # fmt: skip
