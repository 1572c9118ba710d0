"""Maxima and comparisons by where they bend, truth values and choices: forms keep every value, and are one for what is equal."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.expr.nodes import Body
from einnet.expr.normal.inline import _Forms, inline
from einnet.expr.normal.limits import OutOfReach, by_bends
from einnet.expr.normal.piecewise import Line, Piecewise, positive_part, upper_envelope
from einnet.expr.normal.truths import as_sum, is_truth, known
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from tests.expr.test_order import DECLARED, VALUES, bodies, scope
from tests.strategies import repeatable

SAME = (
    ("relu(2*A)", "2*relu(A)"), ("relu(0-A)", "relu(A)-A"), ("relu(-2*A+2*B)", "2*relu(A-B)-2*A+2*B"), ("abs(A)", "2*relu(A)-A"),
    ("abs(0-3*A)", "3*abs(A)"), ("max(A,B)", "B+relu(A-B)"), ("min(A,B)", "A-relu(A-B)"), ("max(A+C,B+C)", "C+max(A,B)"),
    ("min(2*A,2*B)", "2*min(A,B)"), ("less(A,B)", "less(A-B,0)"), ("less(2*A,2*B)", "less(A,B)"), ("less(0-A,0)", "less(0,A)"),
    ("sign(A)", "less(0,A)-less(A,0)"), ("sign(-5*A)", "-1*sign(A)"), ("equal(A,B)", "1-less(A,B)-less(B,A)"), ("equal(A,B)", "equal(2*B,2*A)"),
    ("not(A)", "equal(A,0)"), ("not(less(A,B))", "1-less(A,B)"), ("less(abs(A),0)", "0"), ("less(0-1-abs(A),0)", "1"), ("less(0,1+A*A)", "1"),
    ("less(A*A,0)", "0"), ("less(exp(A),0)", "0"), ("less(0-exp(A),0)", "1"), ("relu(relu(A)-1)", "relu(A-1)"),
    ("relu(1-relu(A))", "1-relu(A)+relu(A-1)"), ("min(relu(A),6)", "relu(A)-relu(A-6)"), ("relu(min(A,6))", "min(relu(A),6)"),
    ("relu(3-relu(2*A)-relu(A))", "3-3*relu(A)+3*relu(A-1)"), ("max(max(A,B),C)", "max(B,max(C,A))"), ("max(max(A,B),max(A,C))", "max(C,max(A,B))"),
    ("max(2*max(A,B),2*C)", "2*max(A,max(B,C))"), ("max(A+relu(B),C)", "max(max(A,A+B),C)"), ("max(max(A+1,B+1),C+1)", "max(A,max(B,C))+1"),
    ("max(A,A-abs(B))", "A"), ("max(A,max(B,A-1))", "max(B,A)"), ("max(exp(A),exp(B))", "exp(max(A,B))"),
    ("max(2*tanh(A),2*tanh(B))", "2*tanh(max(A,B))"), ("max(tanh(A),0)", "tanh(relu(A))"),
    ("max(sigmoid(A),max(sigmoid(B),sigmoid(C)))", "sigmoid(max(max(A,C),B))"), ("relu(select(i-3>=0,A,0))", "select(i-3>=0,relu(A),0)"),
    ("relu(select(i%2==0,2*A,0))", "select(i%2==0,2*relu(A),0)"), ("less(select(i-3>=0,A,0),0)", "select(i-3>=0,less(A,0),0)"),
    ("relu(select(i-3>=0,A,0)-select(i-3>=0,B,0))", "select(i-3>=0,relu(A-B),0)"),
    ("relu(select(i-3>=0,A,0)-select(i-5>=0,B,0))", "select(i-3>=0,relu(A-select(i-5>=0,B,0)),0)"),
    ("less(select(i-3>=0,A,0),select(i-5>=0,B,0))", "select(i-3>=0,less(A,select(i-5>=0,B,0)),0)"),
    ("relu(select(i%2==0,A,0)-3*select(i%2==0 & i-5>=0,B,0))", "select(i%2==0,relu(A-3*select(i-5>=0,B,0)),0)"),
    ("choose(less(A,B),A,B)", "less(A,B)*A+B-less(A,B)*B"),
    ("choose(A,B,B)", "B"), ("choose(3,A,B)", "A"), ("choose(0,A,B)", "B"), ("isnan(A+B)", "0"), ("choose(1+A*A,B,C)", "B"),
    ("choose(less(A,B)*less(B,C),A,0)", "less(A,B)*less(B,C)*A"), ("choose(A,B,C)", "C+(1-not(A))*(B-C)"),
    ("max(max(A,max(B,C)),A+1)", "max(B,max(C,A+1))"), ("max(2*A,max(A,max(B,C)))", "max(max(2*A,C),max(B,A))"),
    ("max(max(A,B),B-relu(C))", "max(A,B)"), ("relu(2*exp(A)-relu(exp(A)-3))", "2*exp(A)-relu(exp(A)-3)"),
    ("max(max(2*A,10*B),0)", "2*max(max(A,5*B),0)"), ("max(max(3*A-9*B,12*C),B)", "3*max(max(A-3*B,4*C),1/3*B)"),
    ("max(max(A,3*A),B)", "1/2*max(max(2*A,6*A),2*B)"),
    ("relu(relu(A-2*B)-A+2*B)", "relu(2*B-A)"), ("relu(relu(2*A-B)-2*A+B)", "relu(B-2*A)"),
    ("relu(relu(3*B-2*C)-3*B+2*C)", "relu(2*C-3*B)"),
    ("relu(relu(2*C-3*A)-4*C+6*A)", "2*relu(3*A-2*C)"), ("max(max(A,3*A),0)", "3*relu(A)"),
    ("max(max(B,A+B),B-2*A)", "B-2*A+3*relu(A)-relu(A)+relu(A)"),
    ("max(max(A,1/4*A),1/4*max(A,1/4*A))", "max(A,1/16*A)"), ("max(max(A,1),2*A-3)", "1+relu(A-1)+relu(A-3)"),
    ("max(max(A,1),2*A-1)", "1+2*relu(A-1)"),
    ("max(max(A*B+3*A,2*A*B+6*A),0)", "2*relu(A*B+3*A)"), ("relu(2*A*B+6*A-relu(A*B+3*A))", "relu(A*B+3*A)"),
    ("relu(2*exp(A)-6*val(i)-relu(exp(A)-3*val(i)))", "relu(exp(A)-3*val(i))"),
    ("max(max(exp(A)-3*val(i),2*exp(A)-6*val(i)),0)", "2*relu(exp(A)-3*val(i))"),
    ("relu(2-relu(A-1)-relu(2*A-6))", "2-relu(A-1)+relu(A-3)"), ("max(max(0-A,B-1-A),2*B-1-A)", "max(0,2*B-1)-A"),
    ("max(1+2*A-3*B,max(0,3*A-9/2*B))", "max(0,max(1+2*A-3*B,3*A-9/2*B))"),
)  # fmt: skip
OTHER = (
    ("relu(0-2*A)", "2*relu(A)"), ("abs(A)", "A"), ("max(A,B)", "A+relu(A-B)"), ("min(A,B)", "A-relu(B-A)"), ("less(A,B)", "less(B,A)"),
    ("sign(A)", "less(A,0)"), ("equal(A,B)", "1-less(A,B)"), ("not(A)", "1-A"), ("less(A*A,1)", "0"), ("less(0,A*A)", "1"), ("less(0,abs(A))", "1"),
    ("relu(relu(A)-1)", "relu(A)"), ("relu(1-relu(A))", "1-relu(A)"), ("relu(relu(A)+relu(A-1)-3)", "2*relu(A-3/2)"),
    ("relu(abs(A)-1)", "relu(A-1)"), ("relu(abs(A-B)-2)", "abs(A-B)-2"), ("relu(abs(A)-abs(B))", "abs(A)-abs(B)"),
    ("relu(relu(A)+relu(B)-1)", "relu(A+B-1)"), ("relu(relu(A)-B)", "relu(A-B)"), ("relu(relu(A)-2*A-B)", "0"), ("max(max(A,B),C)", "max(A,B)"),
    ("max(2*max(A,B),C)", "2*max(A,max(B,C))"), ("max(A,A-B)", "A"), ("max(A,A+abs(B))", "A"), ("max(A,A-abs(B)+1)", "A"),
    ("max(exp(A),2*exp(B))", "exp(max(A,B))"), ("max(exp(A),tanh(B))", "exp(max(A,B))"), ("max(0-exp(A),0-exp(B))", "0-exp(max(A,B))"),
    ("relu(sigmoid(A)-1/2)", "sigmoid(relu(A))-1/2"), ("max(exp(A)-1,0)", "exp(relu(A))"), ("max(abs(A),abs(B))", "abs(max(A,B))"),
    ("max(max(A,3*A),0-1)", "max(0-1,3*A)"),
    ("max(max(A,2*A),A*A)", "max(A,A*A)"),
    ("max(sin(A),sin(B))", "sin(max(A,B))"), ("relu(select(i-3>=0,A,1))", "select(i-3>=0,relu(A),0)"),
    ("relu(select(i-3>=0,A,0)-select(i-4>=0,B,0))", "select(i-3>=0,relu(A-B),0)"), ("relu(select(i-3>=0,A,0)+B)", "select(i-3>=0,relu(A+B),0)"),
    ("choose(A,B,C)", "A*B+C-A*C"), ("choose(A*A,B,C)", "B"), ("choose(less(A,B),A,B)", "B"), ("isnan(1/A)", "0"), ("isnan(log(A))", "0"),
    ("pow(select(i-3>=0,A,-inf),1/2)", "sqrt(select(i-3>=0,A,-inf))"), ("sign(3)", "3*sign(1)"),
    ("choose(1/A,B,B)", "B"), ("choose(1/(1+A),1,C)", "1"), ("choose(less(A,B),1/A,0)", "less(A,B)*(1/A)"),
)  # fmt: skip

VALUED = (
    "relu(relu(A)+relu(A-1)-3)", "relu(abs(A-B)-2)", "relu(abs(abs(A)-2)-1)", "relu(2*relu(A)-A)", "min(exp(A),exp(B))", "relu(3*floor(1/2*A))",
    "relu(3-relu(A)-relu(B))", "relu(1-relu(A)+2*relu(A-1)-3*relu(A-2))", "relu(2-abs(abs(A-1)-1))",
    "relu(1-max(max(A,B),0))", "relu(3-relu(A-1)-relu(A+1))", "relu(select(i%2==0,A,0)-B)", "relu(A-select(i%2==0,B,0))",
    "less(select(i%2==0,B,0),C)", "less(A,select(i%3==0,C,0)+B)",
)  # fmt: skip
TRUTHS = (
    "0", "1", "less(A,B)", "not(A)", "isnan(A)", "less(A,B)*equal(B,C)", "max(less(A,B),not(C))", "min(less(A,B),1)", "1-less(A,B)",
    "choose(A,less(A,B),0)", "truth[i]", "truth[i]|1", "{L[i<27] less(A,B)}[i]", "{L[i<27] max[r<2] less(A[i],val(r))}[i]|1", "1-less(A,B)*not(C)",
    "-1*less(A,B)+1",
)  # fmt: skip
NO_TRUTHS = (
    "2", "A", "less(A,B)+less(B,A)", "less(A,B)*A", "max(less(A,B),A)", "2-less(A,B)", "1+less(A,B)", "1-2*less(A,B)", "1-A",
    "choose(less(A,B),A,0)", "-1*less(A,B)", "A[i]|1", "truth[i]|2", "truth[i]|-inf", "{L[i<27] less(A,B)}[i]|2",
    "{L[i<27] Σ[r<2] less(A[i],val(r))}[i]", "{L[i<27] A}[i]", "sign(A)", "relu(less(A,B))", "less(A,B)/2", "1/2-less(A,B)", "less(A,B)-less(A,C)",
    "choose(A,less(A,B),2)",
)  # fmt: skip


def same(left: str, right: str) -> bool:
    with by_bends():
        return inline(scope(left)).key == inline(scope(right)).key


@pytest.mark.parametrize(("left", "right"), SAME)
def test_one_form_by_bends(left: str, right: str) -> None:
    assert same(left, right)


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_two_forms_by_bends(left: str, right: str) -> None:
    assert not same(left, right)


@repeatable(120)
@given(bodies(3))
def test_forms_by_bends_keep_every_value(text: str) -> None:
    """Exactly, at all 27 orders of three numbers."""
    before = scope(text)
    with by_bends():
        after = inline(before)
    np.testing.assert_array_equal(evaluate(before, VALUES, "int"), evaluate(after, VALUES, "int"), err_msg=after.text())


@pytest.mark.parametrize("text", [*VALUED, *(t for pair in (*SAME, *OTHER) for t in pair)])
def test_written_forms_by_bends_keep_every_value(text: str) -> None:
    """In double precision, at all 27 orders; NaN where there is no value."""
    before = scope(text)
    with by_bends():
        after = inline(before)
    values = {name: v.astype(float) for name, v in VALUES.items()}
    np.testing.assert_allclose(evaluate(after, values), evaluate(before, values), rtol=1e-12, atol=1e-12)


REDUCED = (
    ("max[k<4] exp(X[i,k])", "exp({L[i<5] max[k<4] X[i,k]}[i])", True), ("min[k<4] relu(X[i,k])", "relu({L[i<5] min[k<4] X[i,k]}[i])", True),
    ("max[k<4] X[i,k]-B[i]", "{L[i<5] max[k<4] X[i,k]}[i]-B[i]", True), ("max[k<4] -2*X[i,k]", "-2*{L[i<5] min[k<4] X[i,k]}[i]", True),
    ("max[k<4] sin(X[i,k])", "sin({L[i<5] max[k<4] X[i,k]}[i])", False), ("max[k<4] abs(X[i,k])", "abs({L[i<5] max[k<4] X[i,k]}[i])", False),
    ("max[k<4] select(k>=3,exp(X[i,k]),0)", "exp({L[i<5] max[k<4] X[i,k]}[i])", False),
    ("max[k<4] select(k%2==0,relu(X[i,k]),0)", "relu({L[i<5] max[k<4] X[i,k]}[i])", False),
    ("max[k<4] {L[i<5,k<4] Σ[r<2] exp(X[i,k]*val(r+1))}[i,k]", "exp({L[i<5] max[k<4] X[i,k]}[i])", False),
    ("max[k<4] select(k>=i,X[i,k],-inf)", "max[k<4] X[i,k]+select(k>=i,0,-inf)", True),
    ("max[k<2] {L[i<5,j<2] max[l<2] X[i,2*j+l]}[i,k]", "max[k<2,l<2] X[i,2*k+l]", True),
    ("max[k<2] {L[i<5,j<2] min[l<2] X[i,2*j+l]}[i,k]", "max[k<2,l<2] X[i,2*k+l]", False),
    ("max[k<4] X[i,k+i]|-inf", "max[k<4] select(k+i<4,X[i,k+i],-inf)", True), ("max[k<4] X[i,k+3]", "max[k<4] select(k+3<4,X[i,k+3],-inf)", False),
    ("max[k<4] select(k%2==0,X[i,k]|-inf,-inf)", "max[k<2] X[i,2*k]", True), ("max[k<7] X[i,k/2]|-inf", "max[k<4] X[i,k]", True),
    ("max[k<4] select(k>=i,X[i,k],-inf)+max(X[i,k+1]|-inf,3)", "max[k<4] select(k>=i,X[i,k]+max(X[i,k+1]|-inf,3),-inf)", True),
    ("max[k<4] {L[i<5,k<4] max[l<2] X[i,k+i]|-inf}[i,k]+B[i]", "max[k<4] select(k+i<4,X[i,k+i]+B[i],-inf)", True),
    ("max[k<4] {L[i<5,k<4] max[l<2] X[i,k+i]|-inf}[i,k]+1/X[i,k]", "max[k<4] select(k+i<4,X[i,k+i]+1/X[i,k],-inf)", False),
    ("max[k<4] relu(select(k>=2,-2*X[i,k],-inf))", "2*relu(0-{L[i<5] min[2<=k<4] X[i,k]}[i])", True),
    ("max[k<4] 1/2*X[i,k]", "1/2*{L[i<5] max[k<4] X[i,k]}[i]", True), ("max[k<4] -3/2*X[i,k]", "-3/2*{L[i<5] min[k<4] X[i,k]}[i]", True),
    ("max[k<4] select(k>=1,2*X[i,k],-inf)", "2*{L[i<5] max[1<=k<4] X[i,k]}[i]", True),
    ("max[k<4] select(k>=1,exp(X[i,k]),-inf)", "exp({L[i<5] max[1<=k<4] X[i,k]}[i])", True),
    ("max[k<4] select(k>=i,exp(X[i,k]),-inf)", "exp({L[i<5] max[k<4] select(k>=i,X[i,k],-inf)}[i])", False),
    ("max[k<4] exp(X[i,k])*exp(B[i]*X[i,k])", "exp({L[i<5] max[k<4] X[i,k]}[i])", False),
    ("max[k<4] X[i,3-k]+1/2*X[i,k]", "{L[i<5] max[k<4] X[i,k]+1/2*X[i,3-k]+B[i]}[i]-B[i]", True),
    ("max[k<4] -2*X[i,3-k]-3*X[i,k]", "-1*{L[i<5] min[k<4] 2*X[i,k]+3*X[i,3-k]}[i]", True),
    ("max[k<4] 2*X[i,3-k]-3*X[i,k]", "-1*{L[i<5] min[k<4] 3*X[i,3-k]-2*X[i,k]}[i]", True),
    ("min[k<4] X[i,3-k]-X[i,k]", "-1/3*{L[i<5] max[k<4] 3*X[i,3-k]-3*X[i,k]}[i]", True),
    ("max[k<4] X[i,3-k]-X[i,k]", "min[k<4] X[i,3-k]-X[i,k]", False),
)  # fmt: skip


@pytest.mark.parametrize(("left", "right", "alike"), REDUCED)
def test_what_leaves_a_reduction_by_bends(left: str, right: str, alike: bool) -> None:
    """A function that keeps the order leaves where it stands alone; forms keep every value."""
    before, other = (parse(f"X : f32[5,4]\nB : f32[5]\nL[i<5] {text}") for text in (left, right))
    with by_bends():
        after = inline(before)
        assert (after.key == inline(other).key) == alike
    values = {"X": (np.arange(20.0).reshape(5, 4) * 7 % 11 - 5) / 2, "B": np.arange(5.0) - 2}
    np.testing.assert_allclose(evaluate(after, values), evaluate(before, values), rtol=1e-12)
    assert np.allclose(evaluate(other, values), evaluate(before, values)) == alike


NUMBERS = st.fractions(-4, 4, max_denominator=3)


@repeatable(100)
@given(NUMBERS, NUMBERS, st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4, unique_by=lambda bend: bend[0]))
def test_positive_parts_of_broken_lines(slope: Fraction, constant: Fraction, bends: list[tuple[Fraction, Fraction]]) -> None:
    """They are relu of the line everywhere, and bend at increasing places only."""
    line = Line(slope, constant, tuple(sorted(bends)))
    found = positive_part(line)
    places = {Fraction(n, 6) for n in range(-30, 31, 3)} | {
        at + e for at, _ in (*line.bends, *found.bends) for e in (Fraction(-1, 99), 0, Fraction(1, 99))
    }
    assert all(found(u) == max(line(u), 0) for u in places | {Fraction(-1000), Fraction(1000)})
    assert all(change for _, change in found.bends) and all(a < b for (a, _), (b, _) in pairwise(found.bends))


def test_all_arguments_of_a_maximum_are_its_own() -> None:
    """Of max(0, max(x, y)) three, of relu(x) two."""
    forms = _Forms({"i": (0, 27)})
    with by_bends():
        terms = forms.expanded(body("max(A,max(B,C))"))
        inner = next(found for t in terms if (found := Piecewise(forms).arguments(t)))
        (bend,) = forms.expanded(body("relu(A-B)"))
    assert len(inner) == 3 and () in inner and all(Piecewise(forms).arguments(t) is None for x in inner for t in x)
    assert Piecewise(forms).arguments(bend) == [(), forms.expanded(body("A-B"))]


LINES = (
    (2, -3, ()), (-1, 0, ((0, 2),)), (1, 1, ((0, -2), (3, 4))), (0, -1, ()), (0, 2, ()), (0, -1, ((1, 1), (4, -2))), (-2, -1, ((-1, 1), (2, 3))),
    (1, 0, ((0, -1),)), (3, 2, ((1, -3), (2, -5), (7, 5))), (0, 0, ((1, 1),)), (0, 0, ((1, -1), (2, 3))),
)  # fmt: skip
"""Slope, constant and bends; some are 0 just where they bend, or between two bends."""


@pytest.mark.parametrize(("slope", "constant", "bends"), LINES)
def test_positive_parts_of_lines_that_touch_zero(slope: int, constant: int, bends: tuple[tuple[int, int], ...]) -> None:
    line = Line(Fraction(slope), Fraction(constant), tuple((Fraction(at), Fraction(change)) for at, change in bends))
    found = positive_part(line)
    for u in (Fraction(n, 6) for n in range(-60, 90)):
        assert found(u) == max(slope * u + constant + sum(c * max(u - at, 0) for at, c in bends), 0)
    assert all(change for _, change in found.bends) and all(a < b for (a, _), (b, _) in pairwise(found.bends))


SETS = (
    ((0, 0), (1, 0), (3, 0)), ((1, -1), (0, 0), (2, -3)), ((0, 1), (0, 0), (1, 0)), ((-1, 0), (1, 0), (0, -5)), ((-1, 0), (1, 0), (0, 0)),
    ((2, 1), (2, 3), (-1, 0), (5, -20)), ((0, 2), (0, 1)), ((1, 0), (2, -1), (3, -2)), ((-3, 7), (-2, 1), (4, 4), (1, 9)),
)  # fmt: skip


@pytest.mark.parametrize("lines", SETS)
def test_upper_envelopes(lines: tuple[tuple[int, int], ...]) -> None:
    """The greatest of the lines everywhere, with bends upwards at increasing places, whatever comes first."""
    for turned in (lines, lines[::-1], (*lines[1:], lines[0])):
        found = upper_envelope([(Fraction(a), Fraction(b)) for a, b in turned])
        assert all(found(Fraction(u, 6)) == max(a * Fraction(u, 6) + b for a, b in lines) for u in range(-90, 90))
        assert all(change > 0 for _, change in found.bends) and all(a < b for (a, _), (b, _) in pairwise(found.bends))


def body(text: str) -> Body:
    return parse(f"truth : bool[27]\n{DECLARED}L[i<27] {read(text)}").body


def read(text: str) -> str:
    """A, B and C are read at i."""
    for name in "ABC":
        text = text.replace(f"{name}[i]", name).replace(name, f"{name}[i]")
    return text


@pytest.mark.parametrize("text", TRUTHS)
def test_what_is_a_truth_value(text: str) -> None:
    assert is_truth(body(text))


@pytest.mark.parametrize("text", NO_TRUTHS)
def test_what_need_not_be_a_truth_value(text: str) -> None:
    assert not is_truth(body(text))


KNOWN = (
    ("isnan", "A", "0"), ("isnan", "1/A", None), ("isnan", "-inf", "0"), ("not", "less(A,B)", "1+-1*less(A,B)"), ("not", "A", None),
    ("not", "0-less(A,B)", None), ("choose", "A;B;B", "B"), ("choose", "1/A;B;B", None), ("choose", "0;A;B", "B"), ("choose", "3;A;B", "A"),
    ("choose", "-2;A;B", "A"), ("choose", "A;B;C", None), ("choose", "exp(A);B;C", "B"), ("choose", "A*A;B;C", None),
    ("choose", "log(A)*0;B;C", None), ("less", "A;A", None),
)  # fmt: skip


@pytest.mark.parametrize(("name", "args", "value"), KNOWN)
def test_what_is_known_of_choices(name: str, args: str, value: str | None) -> None:
    assert known(name, tuple(map(body, args.split(";")))) == (None if value is None else body(value))


@pytest.mark.parametrize(("condition", "numbers"), [("less(A,B)", True), ("A", True), ("1-less(A,B)", True), ("1/A", False)])
def test_choices_as_sums(condition: str, numbers: bool) -> None:
    found = as_sum(body(condition), body("B+1"), body("C-2"))
    assert (
        (found is not None) == numbers
        and as_sum(body("less(A,B)"), body("1/B"), body("C")) is None
        and as_sum(body("A"), body("B"), body("log(C)")) is None
    )
    if found is not None:
        chosen = scope(f"choose({condition},B+1,C-2)")
        np.testing.assert_array_equal(evaluate(type(chosen)(chosen.loops, (), found), VALUES, "int"), evaluate(chosen, VALUES, "int"))


def test_forms_that_lead_to_each_other_are_out_of_reach() -> None:
    """Again where it is asked for again, and nothing of it stays under way: what comes after it has its form."""
    text = "relu(relu(X[i,3-k]-1/3*X[i,k])*-1+X[i,k]-13/3*X[i,3-k]+B[i])"
    for kind in ("max", "min", "max"):
        with by_bends(), pytest.raises(OutOfReach, match="lead to each other"):
            inline(parse(f"X : f32[5,4]\nB : f32[5]\nL[i<5] {kind}[k<4] {text}"))
    with by_bends():
        assert inline(parse("X : f32[5,4]\nL[i<5] max[k<4] 2*X[i,k]")).reduce == "sum"
