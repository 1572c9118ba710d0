"""Which bodies may be infinite where the elements of tensors are numbers, and which of both infinities they may be."""

from __future__ import annotations

import pytest

from einnet.expr.normal.infinities import BOTH, HIGH, LOW, NEITHER, infinities, unbounded
from einnet.expr.normal.inline import inline
from einnet.expr.normal.terms import Term
from einnet.expr.notation.text import parse

DECLARED = "P : bool[9]\nV : f32[9]\nW : f32[9]\nY : f32[9,9]\n"
DOWN, UP = "select(m-3>=0, V[m], -inf)", "select(m-3>=0, V[m], inf)"
MASKED = "choose(P[k], Y[m,k], -inf)"
GREATEST = f"{{L[m<8] max[k<9] {MASKED}}}[m]"
DIAGONAL = MASKED.replace("k", "m")
RAISED = "choose(P[k], Y[m,k], inf)"


@pytest.mark.parametrize(("text", "found"), [
    ("V[m]", NEITHER), ("-inf", LOW), ("inf", HIGH), (DOWN, LOW), (UP, HIGH), ("V[m]|-inf", LOW), ("V[m]|inf", HIGH),
    ("val(m)", NEITHER), ("1/V[m]", NEITHER),
    (f"{DOWN} + V[m]", LOW), (f"{DOWN} + {UP}", BOTH), (f"V[m] - {DOWN}", HIGH), (f"1/2*{DOWN} + V[m]", LOW), (f"V[m] + (-1/2)*{UP}", LOW),
    (f"V[m]*{DOWN}", BOTH), ("V[m]*W[m]", NEITHER), (f"({DOWN})/V[m]", BOTH), (f"V[m]/({DOWN})", NEITHER),
    (f"exp({UP})", HIGH), (f"exp({DOWN} + 1/V[m])", NEITHER), (f"floor({DOWN})", LOW), (f"abs({DOWN})", HIGH), (f"less({UP}, W[m])", NEITHER),
    (f"max({DOWN}, W[m])", NEITHER), (f"max({DOWN}, 1/W[m])", LOW), ("exp(1/V[m])", NEITHER), (f"tanh(1/V[m] + {UP})", NEITHER),
    ("{L[m<8] max[k<0] Y[m,k]}[m]", LOW), ("{L[m<8] min[k<0] Y[m,k]}[m]", HIGH), ("{L[m<8] max[k<0,j<2] Y[m,k]}[m]", LOW),
    ("{L[m<8] Σ[k<0] Y[m,k]}[m]", NEITHER), ("{L[m<8] Σ[k<9] Y[m,k]}[m]|inf", HIGH), (f"{{L[m<8] {UP}}}[m]", HIGH), (GREATEST, LOW),
    (f"{{L[m<8] {UP}}}[m]|-inf", BOTH),
])  # fmt: skip
def test_which_infinities_a_body_may_be(text: str, found: int) -> None:
    e = parse(f"{DECLARED}L[m<8] {text}")
    assert infinities(e.body, e.ranges) == infinities(e.body) == found


@pytest.mark.parametrize(("text", "found"), [
    (f"{MASKED} - {GREATEST}", LOW), (f"2*{MASKED} + (-2)*{GREATEST}", LOW),
    (f"1/2*{GREATEST} + (-1/2)*{MASKED}", BOTH), (f"{MASKED} + (-2)*{GREATEST}", BOTH),
    (f"2*{MASKED} - {{L[m<8] max[k<9] 2*{MASKED}}}[m]", LOW), (f"{RAISED} - {GREATEST.replace(MASKED, RAISED)}", LOW),
    (f"{MASKED} - {GREATEST} + {UP}", BOTH), (f"{MASKED} - {GREATEST} + V[m]", LOW),
    (f"{MASKED} + V[m] - {{L[m<8] max[k<9] {MASKED} + W[k]}}[m]", BOTH), (f"{MASKED} + V[m] - {{L[m<8] max[k<9] {MASKED} + V[m]}}[m]", LOW),
    (f"{MASKED} - {{L[m<7] max[k<9] {MASKED}}}[m]", BOTH), (f"{MASKED} - {{L[1<=m<8] max[k<9] {MASKED}}}[m]", BOTH),
    (f"{MASKED} - {{L[m<8,n<1] max[k<9] {MASKED}}}[m,0]", LOW), (f"{MASKED} - {{L[m<8,n<1] max[k<9] {MASKED}}}[m,m]", BOTH),
    (f"{MASKED} - {{L[m<8] max[k<8] {MASKED}}}[m]", BOTH), (f"{MASKED} - {{L[m<8] max[1<=k<9] {MASKED}}}[m]", BOTH),
    (f"{MASKED} - {{L[m<8] min[k<9] {MASKED}}}[m]", BOTH), (f"{DIAGONAL} - {{L[m<8] max[k<8] {MASKED}}}[m]", LOW),
    (f"{MASKED} - {MASKED} + {GREATEST} - {GREATEST}", NEITHER),
])  # fmt: skip
def test_what_the_greatest_of_its_kind_is_taken_from_is_never_inf(text: str, found: int) -> None:
    e = parse(f"{DECLARED}L[m<8] Σ[k<9] {text}")
    assert infinities(e.body, e.ranges) == found


def test_a_fill_that_is_not_read_is_no_infinity() -> None:
    inside, beyond = (parse(f"{DECLARED}L[m<8] {text}") for text in ("V[m]|inf", "V[m+2]|inf"))
    assert not unbounded(Term(factors=(inside.body,)), inside.ranges) and unbounded(Term(factors=(beyond.body,)), beyond.ranges)


@pytest.mark.parametrize(("beside", "shorter"), [
    ("V[i]", True), ("(1/V[i])", True), ("log(V[i])*W[i]", True), (DOWN.replace("m", "i"), False), (f"{DOWN.replace('m', 'i')}*(1/W[i])", False),
    (f"log(W[i])*{UP.replace('m', 'i')}", False), ("V[i+2]|-inf*(1/W[i])", False),
])  # fmt: skip
def test_a_sum_beside_what_may_be_infinite_keeps_the_zeros_that_it_adds(beside: str, shorter: bool) -> None:
    """0 times a number is 0, whether or not the number exists; 0 times an infinity is none."""
    long, short = (inline(parse(f"{DECLARED}L[i<9] Σ[k<{n}] {beside}*W[k]")) for n in (12, 9))
    assert (long.key == short.key) == shorter
