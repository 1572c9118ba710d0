"""Sums of which one term is taken: Σ[v] choose(equal(x, v), f(v), 0) is f(x), where x is a whole number in the range of v, and 0 elsewhere.

That is how the language says what is read at an index that is data, as of an embedding: index functions know iterators only.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Call, Const, Iter, Scope, Val, used_names


class Selection(NamedTuple):
    """The iterator, the number that says which term is taken, and the term."""

    over: Iter
    place: Body
    term: Body


def make(over: Iter, place: Body, term: Body) -> Body:
    """The body of such a sum."""
    return Call("choose", (Call("equal", (place, Val(var(over.name)))), term, Const(Fraction(0))))


def selection(scope: Scope) -> Selection | None:
    """The scope as such a sum; None if it is another."""
    if scope.reduce != "sum" or len(scope.sums) != 1:
        return None
    (over,) = scope.sums
    match scope.body:
        case Call("choose", (Call("equal", (a, b)), term, Const(Fraction(numerator=0)))):
            for place, own in ((a, b), (b, a)):
                if isinstance(own, Val) and own.index == Index(((over.name, 1),), 0) and over.name not in used_names(place):
                    return Selection(over, place, term)
    return None
