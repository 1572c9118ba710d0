"""Which ranges hold the values of bodies, and which bodies have values: each value lies in its range, and ranges are as narrow as they are told."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import inf, isfinite, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.expr.functions.record import Span
from einnet.expr.nodes import Body, Scope, tensors
from einnet.expr.normal.edges import explicit
from einnet.expr.normal.totals import BELOW, BROKEN, FINITE, span, state, total
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from tests.strategies import repeatable, scopes

DECLARED = "A : f32[9]\nB : f32[9]\nE : f32[10]\nT : weight f32[3] = [1, 2, 4]\nN : weight f32[3] = [-4, -1, -2]\n"
PAIRS = list(product((-2, 0, 3), repeat=2))
VALUES = {name: np.array([Fraction(p[k]) for p in PAIRS], dtype=object) for k, name in enumerate("AB")}

RANGES = {
    "A": "(-inf, inf)", "3/2": "[3/2, 3/2]", "relu(A)": "[0, inf)", "relu(A)+2": "[2, inf)", "abs(A)": "[0, inf)", "exp(A)": "(0, inf)",
    "A*A": "[0, inf)", "0-A*A": "(-inf, 0]", "A*A*A": "(-inf, inf)", "exp(A)*exp(A)": "(0, inf)", "exp(A)*exp(A)*exp(A)": "(0, inf)",
    "relu(A)*relu(A)*relu(A)": "[0, inf)", "A*A*exp(B)": "[0, inf)", "exp(A)*relu(B)": "[0, inf)", "relu(A)*(0-exp(B))": "(-inf, 0]",
    "(0-relu(A))*relu(B)": "(-inf, 0]", "(0-exp(A))*(0-exp(B)-1)": "(0, inf)", "0-2*exp(A)": "(-inf, 0)", "5*A*A": "[0, inf)",
    "A*relu(B)": "(-inf, inf)", "exp(A)/(1+exp(B))": "(0, inf)", "1/(1+abs(A))": "(0, inf)", "0-2/(1+abs(A))": "(-inf, 0)", "relu(A)/1": "[0, inf)",
    "A*A/1": "[0, inf)", "relu(A)/exp(B)": "[0, inf)", "sigmoid(A)": "(0, 1)", "3-2*sigmoid(A)": "(1, 3)", "0-sign(A)+1/2": "[-1/2, 3/2]",
    "tanh(A)+relu(B)": "(-1, inf)", "tanh(exp(A))": "(0, 1)", "erf(relu(A))": "[0, 1)", "erf(-exp(A))": "(-1, 0)",
    "tanh(exp(A|-inf))": "[0, 1)", "tanh(-relu(A))": "(-1, 0]", "erf(A|-inf)": "[-1, 1)",
    "max(A,3)": "[3, inf)", "min(A,3)": "(-inf, 3]", "max(min(A,3),2)": "[2, 3]", "max(abs(A),-inf)": "[0, inf)",
    "select(i-3>=0, 2, -1)": "[-1, 2]", "select(i-3>=0, exp(A), 1)": "(0, inf)", "choose(less(A,B),2,5)": "[2, 5]", "choose(2,A*A,B)": "[0, inf)",
    "choose(0,B,A*A)": "[0, inf)", "exp(select(i-1>=0,A,-inf))": "[0, inf)", "sigmoid(select(i-1>=0,A,-inf))": "[0, 1)", "relu(A-1)-A": "[-1, inf)",
    "2*relu(A-1)-A": "[-1, inf)", "relu(2*A-2)-A": "[-1, inf)", "relu(2*A-2)+(-2)*A": "[-2, inf)", "relu(2*A-2)+(-3)*A": "(-inf, inf)",
    "relu(A)+A": "(-inf, inf)", "-2*relu(A)+A": "(-inf, 0]", "-2*relu(A)+3*A": "(-inf, inf)", "relu(A+2*B)-A+(-2)*B": "[0, inf)",
    "relu(A+2*B)-A-B": "(-inf, inf)", "relu(A)-A+relu(B)-B+1": "[1, inf)", "relu(A*B)-A*B": "[0, inf)", "isnan(A)": "[0, 0]", "isnan(1/A)": "[0, 1]",
    "isnan(log(exp(A)))": "[0, 0]", "T[i]|1": "[1, 4]", "N[i]|-2": "[-4, -1]", "T[i]": "[0, 4]", "T[i]|5": "[1, 5]", "N[i]": "[-4, 0]",
    "E[i]": "(-inf, inf)", "{L[i<9] 2}[i]": "[2, 2]", "{L[i<3] 2}[i-1]": "[0, 2]", "{L[i<9] exp(A)}[i]": "(0, inf)", "{L[i<8] 2}[i]": "[0, 2]",
    "{L[i<8] 2}[i]|3": "[2, 3]", "{L[1<=i<9] 2}[i]": "[0, 2]", "select(7-i>=0,{L[i<8] 2}[i],1)": "[1, 2]",
    "select(7-i>=0,1,{L[i<8] 2}[i])": "[0, 2]", "select(i-1>=0,{L[i<8] 2}[i],1)": "[0, 2]", "{L[i<9] 1+{L[i<8] 2}[i]}[i]": "[1, 3]",
    "{L[i<9] Σ[r<2] {L[i<8] exp(A[i])}[i]}[i]": "[0, inf)", "{L[i<9] Σ[r<2] {L[i<9,r<2] exp(A[i])}[i,r]}[i]": "(0, inf)",
    "{L[i<9] 0-2}[2*i]": "[-2, 0]", "{L[j<9] 2}[i/2]": "[0, 2]", "{L[i<9] Σ[r<4] 1/2}[i]": "[2, 2]",
    "{L[i<9] Σ[r<4] 1-sigmoid(E[i+r])}[i]": "(0, 4)", "{L[i<9] Σ[r<0] A[i]}[i]": "[0, 0]", "{L[i<9] max[r<4] sigmoid(E[i+r])}[i]": "(0, 1)",
    "{L[i<9] Σ[r<2] A[i]*A[i]}[i]": "[0, inf)", "{L[i<9] Σ[r<10] select(r-i==0,exp(A[i]),0)}[i]": "(0, inf)",
    "{L[i<9] Σ[r<9] select(r-i-1==0,exp(A[i]),0)}[i]": "[0, inf)", "{L[i<9] Σ[r<10] exp(select(r-i>=0,E[r],-inf))}[i]": "(0, inf)",
    "{L[i<9] Σ[r<8] exp(select(r-i>=0,E[r],-inf))}[i]": "[0, inf)", "{L[i<9] Σ[r<2] exp(E[i+r]|-inf)}[i]": "(0, inf)",
    "{L[i<9] Σ[r<2] exp(E[i+r+1]|-inf)}[i]": "(0, inf)", "{L[i<9] Σ[r<2] exp(E[i+r+2]|-inf)}[i]": "[0, inf)",
    "{L[i<9] Σ[r<2] exp(E[i+r-1]|-inf)}[i]": "(0, inf)", "{L[i<9] Σ[r<2] exp(E[i+r-2]|-inf)}[i]": "[0, inf)",
    "{L[i<9] Σ[r<2] exp(E[(i+r)/2]|-inf)}[i]": "(0, inf)", "{L[i<9] Σ[r<2] exp(E[(i+2*r)/2]|-inf)}[i]": "[0, inf)",
    "{L[i<9] Σ[r<2] exp(E[i+r+1]|-inf+B[i])*exp(A[i])}[i]": "(0, inf)",
    "{L[i<9] Σ[r<2] exp(E[i+r+2]|-inf)*exp(A[i])}[i]": "[0, inf)", "{L[i<9] Σ[r<10] select(r-i==0,1+A[i]*A[i],0)}[i]": "(0, inf)",
    "0*A": "[0, 0]", "1/2*exp(A)": "(0, inf)", "(relu(A)+2)/1": "[2, inf)", "val(i)": "(-inf, inf)", "relu(2)-A": "(-inf, inf)",
    "relu(A-A)+relu(B)": "[0, inf)", "relu(A-A)+A": "(-inf, inf)", "relu(2*sigmoid(A)+B)-sigmoid(A)": "(-1, inf)", "-2*relu(A)+2*A": "(-inf, 0]",
    "-2*relu(A)+1/2*A": "(-inf, 0]", "-3*relu(A)+2*A": "(-inf, 0]", "sigmoid(A)-sigmoid(A)": "(-1, 1)", "exp(A)*sign(B)": "(-inf, inf)",
    "sign(A)*exp(B)": "(-inf, inf)", "isnan(A)*B": "(-inf, inf)", "relu({L[i<8] 2}[i])": "[0, 2]",
}  # fmt: skip

STATES = {
    "A": FINITE, "-inf": BELOW, "inf": BROKEN, "A|-inf": BELOW, "val(i)": FINITE, "A+(B|-inf)": BELOW, "A+log(B)": BROKEN,
    "select(i-1>=0,A,-inf)": BELOW, "A*(B|-inf)": BROKEN, "A/B": BROKEN, "A/(1+B*B)": FINITE, "(A|-inf)/(1+B*B)": BROKEN, "1/exp(A|-inf)": BROKEN,
    "1/exp(A)": FINITE, "exp(A|-inf)": FINITE, "relu(A|-inf)": FINITE, "tanh(A|-inf)": FINITE,
    "log(A|-inf)": BROKEN, "softplus(A|-inf)": BROKEN, "max(A|-inf,B)": FINITE, "max(A|-inf,B|-inf)": BELOW,
    "min(A|-inf,B)": BELOW, "max(1/A,B)": BROKEN, "exp(1/A)": BROKEN, "log(A)": BROKEN, "log(exp(A))": FINITE, "sqrt(A*A)": FINITE,
    "sqrt(A)": BROKEN, "less(A|-inf,B)": FINITE, "less(1/A,B)": BROKEN, "isnan(1/A)": FINITE, "choose(less(A,B),A,B|-inf)": BELOW,
    "choose(0,1/A,B)": FINITE, "choose(1,B,1/A)": FINITE, "choose(1,1/A,B)": BROKEN, "choose(0,B,1/A)": BROKEN, "choose(exp(A),B,1/A)": FINITE,
    "choose(1/A,B,B)": BROKEN, "1/{L[i<9] exp(A[i])}[i]": FINITE, "1/{L[i<8] exp(A[i])}[i]": BROKEN, "{L[i<9] 1/{L[i<8] exp(A[i])}[i]}[i]": BROKEN,
    "{L[i<9] 1/({L[i<8] exp(A[i])}[i]|3)}[i]": FINITE, "select(7-i>=0,1/{L[i<8] exp(A[i])}[i],A)": FINITE, "{L[i<9] max[r<2] E[i+r]}[i]": FINITE,
    "{L[i<9] max[r<2] {L[i<10] exp(E[i])}[i+r]|-inf}[i]": FINITE, "{L[i<9] max[r<2] {L[1<=i<10] exp(E[i])}[i+r]|-inf}[i]": FINITE,
    "{L[i<9] max[r<2] {L[2<=i<10] exp(E[i])}[i+r]|-inf}[i]": BELOW, "{L[i<9] max[r<2] {L[i<9] A[i]}[i+r]|-inf}[i]": FINITE,
    "{L[i<9] max[r<2] {L[i<8] A[i]}[i+r]|-inf}[i]": BELOW, "{L[i<9] max[r<2] {L[i<10] 1/E[i]}[i+r]|-inf}[i]": BROKEN,
    "{L[i<9] max[r<2] {L[i<10] max[q<2] E[i+q+9]|-inf}[i+r]|-inf}[i]": BELOW, "{L[i<9] max[r<2] {L[i<5] A[i]}[(i+r)/2]|-inf}[i]": FINITE,
    "{L[i<9] max[r<2] {L[i<5] A[i]}[(i+2*r)/2]|-inf}[i]": BELOW, "{L[i<9] max[r<2] {L[1<=i<6] A[i]}[(i+r+2)/2]|-inf}[i]": FINITE,
    "{L[i<9] max[r<2] {L[1<=i<6] A[i]}[(i+r)/2]|-inf}[i]": BELOW, "{L[i<9] max[r<2] {L[1<=i<5] A[i]}[(i+r+2)/2]|-inf}[i]": BELOW,
    "{L[i<9] max[r<2] E[i+r+1]|-inf}[i]": FINITE, "{L[i<9] max[r<2] E[i+r+2]|-inf}[i]": BELOW, "{L[i<9] max[r<0] A[i]}[i]": BELOW,
    "{L[i<9] min[r<0] A[i]}[i]": BROKEN, "{L[i<9] min[r<2] E[i+r+1]|-inf}[i]": BROKEN, "{L[i<9] Σ[r<2] E[i+r+1]|-inf}[i]": BELOW,
    "{L[i<9] max[r<4] {L[x<12] select(x-3>=0,E[x],-inf)}[i+r]|-inf}[i]": FINITE,
    "{L[i<9] max[r<3] {L[x<12] select(x-3>=0,E[x],-inf)}[i+r]|-inf}[i]": BELOW,
    "{L[i<9] max[r<4] {L[x<11] select(x-3>=0,E[x],-inf)}[i+r+3]|-inf}[i]": BELOW,
    "{L[i<9] max[r<2] {L[x<10] Σ[k<3] select(k-x>=0,E[k],-inf)}[i+r]}[i]": BELOW,
    "1/{L[i<9] Σ[r<4] {L[x<12] exp(select(x-3>=0,E[x],-inf))}[i+r]}[i]": FINITE,
    "1/{L[i<9] Σ[r<3] {L[x<12] exp(select(x-3>=0,E[x],-inf))}[i+r]}[i]": BROKEN,
    "1/{L[i<9] Σ[r<2] {L[x<10] Σ[k<3] exp(select(k-x>=0,0,-inf))}[i+r]}[i]": BROKEN,
    "{L[i<9] Σ[r<2] 1/A[i]}[i]": BROKEN, "{L[i<9] max[r<2] select(r-1>=0,E[i+r],-inf)}[i]": FINITE,
    "{L[i<9] max[r<2] select(r-2>=0,E[i+r],-inf)}[i]": BELOW, "{L[i<9] max[r<2] (E[i+r+1]|-inf)+B[i]}[i]": FINITE, "{L[i<9] A[i]}[i-1]|-inf": BELOW,
    "choose(less(A,B),A|-inf,B)": BELOW, "{L[i<9] max[r<2] (E[i+r+2]|-inf)+B[i]}[i]": BELOW,
    "{L[i<9] max[r<2] (E[i+r+1]|-inf)+exp(B[i])}[i]": FINITE, "1/{L[i<9] Σ[r<2] {L[x<10] relu(E[x])}[i+r]}[i]": BROKEN,
    "1/{L[i<9] Σ[r<8] {L[x<10] exp(select(x-3>=0,E[x],-inf))}[i+r]}[i]": FINITE,
    "1/{L[i<9] Σ[r<8] {L[x<10] exp(select(x-3>=0,E[x],-inf))}[(i+r)/2]}[i]": BROKEN,
    "1/{L[i<9] Σ[r<8] {L[x<10,y<10] exp(select(x-3>=0,E[x]+E[y],-inf))}[(i+r)/2,i]}[i]": BROKEN,
}  # fmt: skip


def scope(text: str) -> Scope:
    for name in "AB":
        text = text.replace(f"{name}[i]", name).replace(name, f"{name}[i]")
    return parse(f"{DECLARED}L[i<9] {text}")


def body(text: str) -> Body:
    """Its reads of scopes at their own loops stay inside, or are choices."""
    return explicit(scope(text).body, scope(text).ranges)


def told(s: Span) -> str:
    lo, hi = ("-inf" if s.lo == -inf else str(s.lo)), ("inf" if s.hi == inf else str(s.hi))
    return f"{'(' if s.lo_open or s.lo == -inf else '['}{lo}, {hi}{')' if s.hi_open or s.hi == inf else ']'}"


@pytest.mark.parametrize("text", RANGES)
def test_ranges(text: str) -> None:
    assert told(span(body(text))) == RANGES[text]


@pytest.mark.parametrize("text", STATES)
def test_which_values_are_numbers(text: str) -> None:
    assert state(body(text)) == STATES[text]
    assert total(body(text)) == (STATES[text] == FINITE)


LEAVES = ("A", "B", "0", "1", "3", "(0-2)", "(A+B)", "(A-1)", "select(i-3>=0,A,2)", "{L[i<9] Σ[r<2] A[i]*A[i]}[i]", "{L[i<8] 2}[i]")


def bodies(depth: int) -> st.SearchStrategy[str]:
    leaves = st.sampled_from(LEAVES)
    if not depth:
        return leaves
    inner = bodies(depth - 1)
    two = st.tuples(st.sampled_from(("max", "min", "less", "equal")), inner, inner).map(lambda t: f"{t[0]}({t[1]},{t[2]})")
    one = st.tuples(st.sampled_from(("relu", "abs", "sign", "not", "(0-2)*relu", "3/2*relu")), inner).map(lambda t: f"({t[0]}({t[1]}))")
    sums = st.tuples(inner, st.sampled_from(("+", "-", "*", "*")), inner).map(lambda t: f"({''.join(t)})")
    slopes = st.sampled_from(("1", "2", "1/2", "(-1)", "(-2)", "(-3)"))
    hinges = st.tuples(inner, slopes).map(lambda t: f"(2*relu({t[0]})+{t[1]}*({t[0]}))")
    choices = st.tuples(inner, inner, inner).map(lambda t: f"choose({t[0]},{t[1]},{t[2]})")
    return st.one_of(leaves, two, one, sums, sums, hinges, choices)


@repeatable(200)
@given(bodies(3))
def test_every_value_lies_in_its_range(text: str) -> None:
    """Exactly, and what is said not to be 0 is not."""
    given = body(text)
    found = span(given)
    values = evaluate(scope(text), VALUES, "int").reshape(-1)
    assert state(given) == FINITE and all(isfinite(v) for v in values)
    for v in values:
        assert found.lo <= v <= found.hi and not (v == found.lo and found.lo_open) and not (v == found.hi and found.hi_open)
        assert not (v == 0 and found.nonzero) and not (v <= 0 and found.positive) and found.point in (None, v)


@repeatable(60)
@given(scopes(depth=2))
def test_choices_at_the_edges_are_what_is_read(given: Scope) -> None:
    made = replace(given, body=explicit(given.body, given.ranges))
    values = {name: np.vectorize(Fraction)(np.arange(prod(t.shape)).reshape(t.shape) * 3 % 7 - 2) for name, t in tensors(given).items()}
    np.testing.assert_array_equal(evaluate(made, values), evaluate(given, values))
