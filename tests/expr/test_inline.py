"""The inlining normal form keeps the value, and forgets what it should."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given

from einnet.derivation.checker.draws import GENERIC, SMALL, Choice, Draw
from einnet.expr.nodes import Scope, nested
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach, at_most
from einnet.expr.notation.text import parse
from einnet.expr.values.points import values_at
from einnet.expr.values.rationals import Rationals
from tests.strategies import repeatable, scopes

MANY = repeatable(80)


def everywhere(scope: Scope) -> np.ndarray:
    return np.asarray(list(product(*(range(lo, hi) for lo, hi in scope.box))), dtype=np.int64).reshape(prod(scope.shape), len(scope.shape))


@MANY
@given(scopes(depth=2))
def test_inlining_keeps_every_value(scope: Scope) -> None:
    try:
        flat = inline(scope)
    except OutOfReach:
        return
    assert flat.box == scope.box
    for palette in (SMALL, GENERIC):
        draw = Draw("", Choice(palette, "inline"))
        found, wanted = (values_at(s, everywhere(scope), Rationals(), draw.rationals) for s in (flat, scope))
        assert all(a == b or (a != a and b != b) for a, b in zip(found, wanted, strict=True))


@MANY
@given(scopes(depth=1))
def test_the_normal_form_is_read_back(scope: Scope) -> None:
    try:
        flat = inline(scope)
    except OutOfReach:
        return
    assert parse(str(flat)).key == flat.key


CONV = "L[h<56,w<56,f<64] Σ[c<64,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]"
A_K = "A : f32[56,56,64]\nK : f32[3,3,64,64]\n"
LINE = "A : f32[8]\nK : f32[3]\nB : f32[8]\n"


@pytest.mark.parametrize(
    "other",
    [
        "L[h<56,w<56,f<64] Σ[s<3,r<3] {L[f<64,h<56,w<56,r<3,s<3] Σ[c<64] K[r,s,f,c]*A[h+r-1,w+s-1,c]}[f,h,w,r,s]",
        "L[h<56,w<56,f<64] Σ[r<3,s<3] {L[t<58,u<58,f<64,r<3,s<3] Σ[c<64] A[t-1,u-1,c]*K[r,s,f,c]}[h+r,w+s,f,r,s]",
        "L[h<56,w<56,f<64] Σ[c<64,r<3,s<3] A[h-r+1,w-s+1,c]*K[2-r,2-s,f,c]",
        "L[h<56,w<56,f<64] Σ[k<576] {L[h<56,w<56,k<576] A[h+k//3%3-1,w+k%3-1,k//9]}[h,w,k]*K[k//3%3,k%3,f,k//9]",
        "L[h<56,w<56,f<64] Σ[c<64,t<56,u<56] A[t,u,c]*K[t-h+1,u-w+1,f,c]",
        "L[h<56,w<56,f<64] Σ[c<64,r<6,s<8] A[h+r-1,w+s-1,c]*K[r,s,f,c]",
        "L[h<56,w<56,f<64] Σ[c<64,r<3,s<3,r'<2] A[h+2*r+r'-1,w+s-1,c]*K[2*r+r',s,f,c]",
        "L[h<56,w<56,f<64] {L[a<14,b<4,w<56,f<64] Σ[c<64,r<3,s<3] A[4*a+b+r-1,w+s-1,c]*K[r,s,f,c]}[h//4,h%4,w,f]",
        "L[h<56,w<56,f<64] {" + CONV + "}[h,w,f]*3 - 2*{" + CONV + "}[h,w,f]",
    ],
)
def test_one_form_for_all_ways_to_write_a_convolution(other: str) -> None:
    assert inline(parse(A_K + other)).key == inline(parse(A_K + CONV)).key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("L[h<8] relu(2*A[h-1])", "L[h<8] {L[h<8] relu(A[h]*2)}[h-1]"),
        ("L[h<16] Σ[r<3] A[(h-r)/2]*K[r]", "L[h<16] Σ[r<3] {L[t<8,r<3] A[t]*K[r]}[(h-r)/2,r]"),
        ("L[h<8] A[h]*(B[h]+3)", "L[h<8] 3*A[h] + B[h]*A[h]"),
        ("L[h<8] A[h]/(2*B[h])", "L[h<8] 0.5*{L[h<8] A[7-h]/B[7-h]}[7-h]"),
        ("L[h<8] select(h-3>=0, A[h], B[h])", "L[h<8] {L[3<=h<8] A[h]}[h] + {L[h<3] B[h]}[h]"),
        ("L[h<8] max[r<4] A[h+r-1]|-inf", "L[h<8] max[a<2] {L[h<10] max[b<2] A[h+b-1]|-inf}[h+2*a]|-inf"),
        ("L[h<8] A[h] - A[h]", "L[h<8] 0"),
        ("L[h<8] Σ[r<5] A[h]", "L[h<8] 5*A[h]"),
        ("L[h<8] val(2*h+1)*A[h]", "L[h<8] 2*val(h)*A[h] + A[h]"),
        ("L[h<4] {L[4<=i<8] exp(val(i))*A[i]}[h+4]", "L[h<4] exp(val(h+4))*A[h+4]"),
        ("L[h<4] {L[4<=i<8] tanh({L[4<=i<8] Σ[r<3] exp(val(i-r))*K[r]}[i])}[h+4]", "L[h<4] tanh({L[h<4] Σ[r<3] exp(val(h-r+4))*K[r]}[h])"),
    ],
)
def test_equal_expressions_have_equal_forms(left: str, right: str) -> None:
    assert inline(parse(LINE + left)).key == inline(parse(LINE + right)).key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("L[b<4,m<8] {L[i<32] val(i)*T[i]}[8*b+m]", "L[b<4,m<8] 8*val(b)*T[8*b+m] + val(m)*T[8*b+m]"),
        ("L[b<4,m<8] {L[i<32] exp(val(i%8))*T[i]}[8*b+m]", "L[b<4,m<8] exp(val(m))*T[8*b+m]"),
        (
            "L[b<4,m<8] {L[i<32] tanh({L[i<32] Σ[k<8] exp(val(i%8)-val(k))*X[i//8,k]}[i])}[8*b+m]",
            "L[b<4,m<8] tanh({L[b<4,m<8] Σ[k<8] exp(val(m-k))*X[b,k]}[b,m])",
        ),
        (
            "L[b<4,m<8] {L[i<32] relu({L[i<32] max[k<8] val(i%8)*X[i//8,k]}[i])}[8*b+m]",
            "L[b<4,m<8] relu({L[b<4,m<8] max[k<8] val(m)*X[b,k]}[b,m])",
        ),
    ],
)
def test_the_value_of_a_place_is_that_of_its_digits(left: str, right: str) -> None:
    """Two dimensions read as one and one as two: numbers that depend on the place, in functions and in reductions inside them, are the same."""
    head = "T : f32[32]\nX : f32[4,8]\n"
    assert inline(parse(head + left)).key == inline(parse(head + right)).key
    moved = left.replace("8*b+m", "8*b+7-m")
    assert inline(parse(head + moved)).key != inline(parse(head + right)).key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("L[h<8] relu(A[h-1]+1)", "L[h<8] {L[h<8] relu(A[h]+1)}[h-1]"),
        ("L[h<8] Σ[r<3] B[h+r-1]*K[r]", "L[h<8] Σ[r<3] {L[t<8] B[t]}[h+r]*K[r]"),
        ("L[h<8] Σ[r<3] {L[t<8] B[t+1]}[h+r-2]*K[r]", "L[h<8] Σ[r<3] B[h+r-1]*K[r]"),
        ("L[h<16] A[h/2]", "L[h<16] A[h//2]"),
        ("L[h<8] max[r<3] A[h+r-1]|-inf", "L[h<8] max[r<3] A[h+r-1]"),
        ("L[h<8] Σ[r<3] A[h+r]", "L[h<8] Σ[r<4] A[h+r]"),
    ],
)
def test_different_expressions_have_different_forms(left: str, right: str) -> None:
    assert inline(parse(LINE + left)).key != inline(parse(LINE + right)).key


def test_padding_between_two_convolutions_stays() -> None:
    text = "L[h<8] Σ[q<3] {L[h<8] Σ[r<3] A[h+r-1]*K[r]}[h+q-1]*K[q]"
    flat = inline(parse(LINE + text))
    assert "select" in flat.text()
    assert not list(nested(flat))


ROW = "{L[m<4] Σ[n<6] A[m,n]*A[m,n]}[m]"


def test_what_is_multiplied_by_zeros_is_not_expanded() -> None:
    long = "*".join(f"(A[m,{n}] + {ROW} + {n + 1})" for n in range(6))
    zeros = parse(f"A : f32[4,6]\nL[m<4] {{L[m<4] {long}}}[m]*{{L[x<9] 0}}[m]")
    with at_most(20):
        assert inline(zeros).key == parse("L[m<4] 0").key


@pytest.mark.parametrize("other", ["1/A[m,0]", f"1/{ROW}", "log(A[m,0])"])
def test_what_need_not_be_a_number_is_not_multiplied_away(other: str) -> None:
    assert inline(parse(f"A : f32[4,6]\nL[m<4] {{L[x<9] 0}}[m]*({other})")).key != parse("L[m<4] 0").key


def test_zeros_that_end_are_what_is_beyond_them() -> None:
    assert inline(parse("A : f32[4,6]\nL[m<4] {L[x<2] 0}[m]|3*A[m,0]")).key != parse("L[m<4] 0").key
