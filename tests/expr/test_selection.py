"""Sums of which one term is taken: they have the value of that term, and nothing else is taken for one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from einnet.expr.index import var
from einnet.expr.nodes import Iter, Read, Scope
from einnet.expr.notation.text import parse
from einnet.expr.selection import Selection, make, selection
from einnet.expr.values.evaluate import evaluate

DECLARED = "X : f32[6]\nW : f32[9]\n"
PLACE = parse(f"{DECLARED}L[i<6] X[i]").body
TERM = parse(f"{DECLARED}L[2<=v<7] W[v]").body
OVER = Iter("v", 2, 7)
OTHER = (
    "max[2<=v<7] choose(equal(X[i],val(v)),W[v],0)", "Σ[2<=v<7,w<2] choose(equal(X[i],val(v)),W[v],0)", "choose(equal(X[i],val(i)),W[i],0)",
    "Σ[2<=v<7] choose(equal(X[i],val(v)),W[v],1)", "Σ[2<=v<7] choose(less(X[i],val(v)),W[v],0)", "Σ[2<=v<7] choose(equal(X[i],val(2*v)),W[v],0)",
    "Σ[2<=v<7] choose(equal(X[i],val(v-1)),W[v],0)", "Σ[2<=v<7] choose(equal(X[v-2],val(v)),W[v],0)", "Σ[2<=v<7] choose(equal(X[i],val(i)),W[v],0)",
    "Σ[2<=v<7] W[v]",
)  # fmt: skip


def taken() -> Scope:
    return Scope((Iter("i", 0, 6),), (OVER,), make(OVER, PLACE, TERM))


def test_a_selection_is_the_term_at_its_place_and_zero_elsewhere() -> None:
    """At both ends of the range, beside them, and at what is no whole number."""
    x = [Fraction(n, 2) for n in (4, 12, 2, 14, 7, 10)]
    w = [Fraction(n * n + 1) for n in range(9)]
    found = evaluate(taken(), {"X": np.array(x, dtype=object), "W": np.array(w, dtype=object)}, "int")
    assert found.tolist() == [w[2], w[6], 0, 0, 0, w[5]]


def test_what_is_made_is_a_selection_however_its_equation_stands() -> None:
    assert selection(taken()) == Selection(OVER, PLACE, TERM)
    other = parse(f"{DECLARED}L[i<6] Σ[2<=v<7] choose(equal(val(v),X[i]),W[v],0)")
    assert selection(other) == selection(taken()) and other != taken()


@pytest.mark.parametrize("text", OTHER)
def test_what_is_no_selection(text: str) -> None:
    assert selection(parse(f"{DECLARED}L[i<6] {text}")) is None


def test_a_place_may_be_any_number_that_the_iterator_does_not_change() -> None:
    scope = parse(f"{DECLARED}L[i<6] Σ[2<=v<7] choose(equal({{L[j<6] Σ[v<6] X[v]*val(j)}}[i],val(v)),val(v+i),0)")
    found = selection(scope)
    assert found is not None and isinstance(found.place, Read) and found.place.index == (var("i"),)
