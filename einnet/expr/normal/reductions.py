"""Maxima and minima: reductions of one kind right below each other are one, and what leaves one over some place at least stands outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from einnet.expr import sets
from einnet.expr.nodes import Body, Call, Cond, Const, Read, Scope, Select, Tensor, indices, neutral, rename_apart, substitute_body
from einnet.expr.normal.piecewise import NONDECREASING, Forms, Piecewise, Sum
from einnet.expr.normal.terms import Term, box_conditions, divisor_condition, split_conditions
from einnet.expr.normal.totals import total


def merged(scope: Scope, body: Body, bends: bool) -> Term:
    """The term of a max or min scope with this body, the conditions and reductions of its kind right below it taken in."""
    term = Term(sums=scope.sums, factors=(body,), absorbing=neutral(scope.reduce))
    following: Term | None = term
    while following is not None:
        term, following = following, _opened(scope, following, bends)
    return term


def _opened(scope: Scope, term: Term, bends: bool) -> Term | None:
    """The term with what stands right below it taken in; None where that is neither a condition nor such a reduction."""
    zero, (body,) = term.absorbing, term.factors
    if isinstance(body, Select) and body.other == Const(zero):
        conds, divisors = split_conditions(body.conds)
        return replace(term, conds=(*term.conds, *conds), divisors=(*term.divisors, *divisors), factors=(body.then,))
    if not isinstance(body, Read):
        return None
    if isinstance(body.base, Scope) and body.base.reduce == scope.reduce:
        inner = rename_apart(body.base, {*scope.ranges, *(i.name for i in term.sums)})
        mapping = dict(zip((i.name for i in inner.loops), body.index, strict=True))
        return replace(term, sums=(*term.sums, *inner.sums), factors=(substitute_body(inner.body, mapping),))
    if isinstance(body.base, Tensor) and body.fill == zero and bends:
        conds, divisors = box_conditions(body.index, body.base.box, term.ranges({i.name: i.range for i in scope.loops}))
        return replace(term, conds=term.conds + conds, divisors=term.divisors + divisors, factors=(replace(body, fill=Fraction(0)),))
    return None


def outside(scope: Scope, term: Term, forms: Forms) -> Sum | None:
    """The collected terms of a maximum or minimum of which something leaves: terms without its iterators, a scale, a function that keeps the order.

    It leaves where all are numbers and there is some place at least; None where nothing does. `forms` are those over the loops of the scope.
    """
    names, inner = {i.name for i in term.sums}, forms.over(term.sums)
    (body,) = term.factors
    terms = inner.expanded(body) if total(body) else ()
    moving = tuple(t for t in terms if t.names() & names)
    ranges = term.ranges({i.name: i.range for i in scope.loops})
    if not moving or not sets.reached(_conditions(term), ranges, names):
        return None
    free, first = [t for t in terms if not t.names() & names], _scale(scope.reduce, Piecewise(inner).leading(moving))
    if free or first != 1:
        own = replace(term, factors=(inner.body(tuple(replace(t, coefficient=t.coefficient / first) for t in moving)),))
        found = _extreme(scope, scope.reduce if first > 0 else "min" if scope.reduce == "max" else "max", own, forms)
        return forms.collected([*free, *(replace(t, coefficient=first * t.coefficient) for t in found)])
    call = _kept_order(moving)
    if call is None:
        return None
    return forms.expanded(Call(call.name, (forms.body(_extreme(scope, scope.reduce, replace(term, factors=call.args), forms)),)))


def _scale(reduce: str, leading: Sequence[Fraction]) -> Fraction:
    """What leaves a reduction as its scale: the same for all ways to write it, whose sums may run either way and exchange the terms that lead.

    It is the least of their coefficients, or its opposite where all are negative, and under a minimum where some are.
    """
    least = min(map(abs, leading))
    positive = [c > 0 for c in leading]
    return least if all(positive) or (any(positive) and reduce == "max") else -least


def _kept_order(terms: Sum) -> Call | None:
    """The function that keeps the order of numbers, where the terms are one such and nothing else."""
    (only,) = terms if len(terms) == 1 else (Term(),)
    call = only.factors[0] if len(only.factors) == 1 else None
    alone = not (only.sums or only.conds or only.divisors)
    return call if isinstance(call, Call) and alone and call.name in NONDECREASING | {"relu"} else None


def _extreme(scope: Scope, reduce: str, term: Term, forms: Forms) -> Sum:
    """A maximum or minimum over the scope's loops as terms."""
    zero, conds = neutral(reduce), _conditions(term)
    body = Select(conds, term.factors[0], Const(zero)) if conds else term.factors[0]
    return forms.expanded(Read(Scope(scope.loops, term.sums, body, reduce), indices(scope.loops)))


def _conditions(term: Term) -> tuple[Cond, ...]:
    return (*term.conds, *map(divisor_condition, term.divisors))
