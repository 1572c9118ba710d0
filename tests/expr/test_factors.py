"""Single factors of normal forms, case by case: what is infinite, what is a place of several iterators, masks, and sums renamed apart."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from einnet.expr.index import var
from einnet.expr.nodes import INF, Add, Body, Call, Cond, Const, Div, Iter, Mul, Read, Select, Tensor, Val
from einnet.expr.normal.factors import apart, holds, infinite, joint, mask
from einnet.expr.normal.terms import Term
from einnet.expr.notation.text import parse

A = Tensor("A", (9, 9))
ONE, TWO, LEAST = Const(Fraction(1)), Const(Fraction(2)), Const(-INF)
READ = Read(A, (var("i"), var("j")))
FILLED = replace(READ, fill=-INF)
WHERE = (Cond(var("i")),)
INSIDE = parse("A : f32[9,9]\nL[i<9,j<9] max[k<9] A[i,k]*A[k,j]")
PLACES = parse("A : f32[9,9]\nL[i<9,j<9] Σ[k<9] exp(val(i-k))*A[k,j]")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (LEAST, True), (ONE, False), (FILLED, True), (READ, False), (Val(var("i")), False),
        (Add((ONE, LEAST)), True), (Mul((READ, FILLED)), True), (Call("max", (READ, LEAST)), True), (Add((ONE, READ)), False),
        (Div(ONE, FILLED), True), (Div(FILLED, READ), True), (Div(ONE, READ), False),
        (Select(WHERE, LEAST, ONE), True), (Select(WHERE, ONE, LEAST), True), (Select(WHERE, ONE, READ), False),
    ],
)  # fmt: skip
def test_what_may_be_infinite(body: Body, wanted: bool) -> None:
    assert infinite(body) is wanted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (Val(var("i") + var("j")), True), (Val(2 * var("i")), True), (Val(var("i") + 1), True), (Val(var("i")), False),
        (Read(INSIDE, (var("i") + var("j"), var("j"))), True), (Read(INSIDE, (var("i"), var("j"))), False),
        (Read(INSIDE, (var("i") + 1, var("j"))), False), (Read(PLACES, (var("i") + 1, var("j"))), True), (Read(PLACES, (var("i"), var("j"))), False),
        (Read(A, (var("i") + var("j"), var("j"))), False), (Read(A, (var("i") + var("j"), var("i") + var("j"))), False),
        (Add((READ, Val(var("i") + var("j")))), True), (Add((READ, ONE)), False),
    ],
)  # fmt: skip
def test_the_value_of_a_place_that_several_iterators_make(body: Body, wanted: bool) -> None:
    assert joint(body) is wanted


def test_a_mask_is_one_choice_between_what_is_finite_and_the_least() -> None:
    chosen = Select(WHERE, READ, LEAST)
    assert mask(Term(factors=(chosen,))) is chosen
    for factors in ((READ,), (Select(WHERE, READ, ONE),), (Select(WHERE, FILLED, LEAST),), (chosen, READ), ()):
        assert mask(Term(factors=factors)) is None


def test_factors_among_others() -> None:
    both = Term(factors=(READ, TWO))
    assert holds(both, both) and holds(both, Term(factors=(READ,))) and holds(both, Term()) and not holds(Term(factors=(READ,)), both)


def test_sums_are_renamed_apart_from_what_is_taken_and_from_each_other() -> None:
    term = Term(sums=(Iter("i", 0, 3), Iter("i'", 0, 5), Iter("j", 0, 7)), factors=(Read(A, (var("i") + var("i'"), var("j"))),))
    found = apart(term, ("i", "i'"))
    names = [i.name for i in found.sums]
    assert len(set(names)) == 3 and not {"i", "i'"} & set(names) and names[2] == "j"
    assert [i.extent for i in found.sums] == [3, 5, 7]
    assert found.factors == (Read(A, (var(names[0]) + var(names[1]), var("j"))),)
    assert apart(term, ("k",)) is term
