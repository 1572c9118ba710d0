"""Forms of functions between sums, of sums over constant tables, and of iterators that are skewed: one for what is equal, two for what differs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from einnet.expr.nodes import Scope
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import by_bends
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate

DECLARED = "A : f32[5]\nB : f32[5]\nC : f32[5]\nX : f32[5,4]\nY : f32[5,4]\nZ : f32[9,7]\n"
TABLES = """T : weight f32[3] = [2, -1, 3]
U : weight f32[3,3] = [1, 2, 0, -1, 3, 1, 2, 2, 5]
I : weight f32[3,3] = [2, 0, 0, 0, 2, 0, 0, 0, 2]
D : weight f32[3,3] = [2, 0, 0, 0, 3, 0, 0, 0, 4]
O : weight f32[2,3] = [1, 1, 1, 1, 1, 1]
S : weight f32[2,3,4] = [5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 5, 0, 0, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 5]
R : weight f32[3,4] = [0, 0, 0, 7, 0, 0, 7, 0, 0, 7, 0, 0]
V : weight f32[2,2,2] = [1, 2, 0, 0, 0, 0, 3, 4]
W : weight f32[3,3] = [1, 0, 0, 0, 0, 1, 0, 1, 0]
H : weight f32[2] = [3, 3]
G : weight f32[1,3] = [0, 7, 0]
"""

SAME = (
    ("tanh(0-A)", "-1*tanh(A)"), ("tanh(-2*A+B)", "-1*tanh(2*A-B)"), ("cos(0-A)", "cos(A)"), ("sin(B-A)", "-1*sin(A-B)"),
    ("sigmoid(0-A)", "1-sigmoid(A)"), ("softplus(0-A)", "softplus(A)-A"), ("softplus(-3*A)", "softplus(3*A)+(-3)*A"), ("round(0-A)", "-1*round(A)"),
    ("floor(A+5/2)", "2+floor(A+1/2)"), ("floor(A+3)", "floor(A)+3"), ("floor(A-1/2)", "floor(A+1/2)-1"), ("ceil(A)", "-1*floor(0-A)"),
    ("ceil(A+2)", "ceil(A)+2"), ("floor(0-A)", "-1*ceil(A)"), ("floor(-1*A+5/2)", "-1*ceil(A-1/2)+2"), ("ceil(0-A-7/2)", "-1*floor(A+1/2)-3"),
    ("pow(A,2)", "A*A"), ("pow(A,1)", "A"), ("pow(A,4)", "A*A*A*A"), ("pow(A,-1)", "1/A"), ("pow(A,-2)", "1/(A*A)"), ("pow(A+B,2)", "A*A+2*A*B+B*B"),
    ("pow(A,1/2)", "sqrt(A)"), ("log(exp(A)*B)", "A+log(B)"), ("log(exp(A))", "A"), ("log(exp(A)*exp(B)*C)", "A+B+log(C)"),
    ("log(3*exp(A))", "A+log(3)"), ("log(1+exp(A))", "softplus(A)"), ("log(exp(A-B)+1)", "softplus(A-B)"), ("1/(1+exp(A))", "sigmoid(0-A)"),
    ("1/(1+exp(0-A))", "sigmoid(A)"), ("B/(1+exp(0-A))", "B*sigmoid(A)"), ("1/exp(A)", "exp(0-A)"), ("exp(A)/exp(B)", "exp(A-B)"),
    ("B/(2*exp(A))", "1/2*B*exp(0-A)"), ("1/(B*exp(A))", "exp(0-A)/B"), ("1/(-4*B)", "-1/4*(1/B)"),
    ("{L[i<5] Σ[j<4] exp(X[i,j]+A[i])}[i]", "exp(A)*{L[i<5] Σ[j<4] exp(X[i,j])}[i]"),
    ("log({L[i<5] Σ[j<4] exp(X[i,j]-A[i])}[i])", "log({L[i<5] Σ[j<4] exp(X[i,j])}[i])-A"),
    ("exp(B-A)/{L[i<5] Σ[j<4] exp(X[i,j]-A[i])}[i]", "exp(B)/{L[i<5] Σ[j<4] exp(X[i,j])}[i]"),
    ("1/{L[i<5] Σ[j<4] 2*A[i]*exp(X[i,j])}[i]", "1/2*(1/A)/{L[i<5] Σ[j<4] exp(X[i,j])}[i]"),
    ("1/{L[i<5] Σ[j<4] X[i,j]*exp(A[i])}[i]", "exp(0-A)/{L[i<5] Σ[j<4] X[i,j]}[i]"),
    ("1/{L[i<5] Σ[j<4] A[i]*X[i,j]}[i]", "1/A*(1/{L[i<5] Σ[j<4] X[i,j]}[i])"),
    ("1/{L[i<5] Σ[j<4] 2*X[i,j]}[i]", "1/2*(1/{L[i<5] Σ[j<4] X[i,j]}[i])"),
    ("tanh(1-A)", "-1*tanh(A-1)"), ("floor(1/2*A+5/2)", "floor(1/2*A+1/2)+2"),
)  # fmt: skip
OTHER = (
    ("tanh(A-B)", "tanh(B-A)"), ("sigmoid(0-A)", "sigmoid(A)"), ("softplus(0-A)", "softplus(A)"), ("floor(A+1/2)", "floor(A)"),
    ("floor(0-A)", "-1*floor(A)"), ("ceil(A)", "floor(A)"), ("floor(-1*A+5/2)", "-1*ceil(A+1/2)+2"), ("pow(A,3)", "A*A"), ("pow(A,-2)", "1/A"),
    ("pow(A,3/2)", "sqrt(A)"), ("pow(A,3/2)", "A*A*A"), ("pow(A,0)", "1/A"), ("pow(A,B)", "A*B"), ("log(exp(A)*B)", "A+B"),
    ("log(exp(A)+B)", "A+log(B)"), ("log(2+exp(A))", "softplus(A)"), ("log(1+2*exp(A))", "softplus(A)"), ("log(1-exp(A))", "softplus(A)"),
    ("log(1+exp(A)*B)", "softplus(A)"), ("log(1+exp(A)*exp(B)*C)", "softplus(A+B)"), ("1/(2+exp(A))", "sigmoid(0-A)"),
    ("1/(1+2*exp(A))", "sigmoid(0-A)"), ("1/(1+B*exp(A))", "sigmoid(0-A)"), ("1/(1+exp(A))", "sigmoid(A)"), ("1/(1+sin(A))", "sigmoid(0-A)"),
    ("1/exp(A)", "exp(A)"), ("1/(2*B)", "2*(1/B)"), ("1/(B+C)", "1/B+1/C"), ("log(1+select(i-1>=0,exp(A),0))", "softplus(A)"),
    ("1/(1+select(i-1>=0,exp(A),0))", "sigmoid(0-A)"), ("log(1+{L[i<5] Σ[j<4] exp(X[i,j])}[i])", "softplus({L[i<5] Σ[j<4] X[i,j]}[i])"),
    ("{L[i<5] Σ[j<4] exp(X[i,j]+A[i])}[i]", "{L[i<5] Σ[j<4] exp(X[i,j])}[i]"), ("1/{L[i<5] Σ[j<4] A[i]*X[i,j]}[i]", "1/{L[i<5] Σ[j<4] X[i,j]}[i]"),
    ("log({L[i<5] Σ[j<4] exp(X[i,j]+A[i])*Y[i,j]}[i])", "A+log({L[i<5] Σ[j<4] exp(X[i,j])}[i])"), ("log(exp(1/A)*B)", "log(B)"),
    ("exp(A)*exp(0-A)", "2"), ("exp(1/A)/exp(1/A)", "1"), ("1/(exp(A)+exp(B)+exp(C))", "exp(0-A)"),
    ("1/select(i-1>=0,exp(A),0)", "select(i-1>=0,exp(0-A),0)"), ("1/select(i%2==0,exp(A),0)", "select(i%2==0,exp(0-A),0)"),
)  # fmt: skip
LEFT = (("tanh(0-1/A)", "-1*tanh(1/A)"), ("softplus(B-1/A)", "softplus(1/A-B)+B-1/A"), ("floor(1/A+3)", "floor(1/A)+3"))
"""Functions of what may have no value are left as they are."""

LINEAR = (
    ("L[i<5] Σ[k<3] U[1,k]*T[k]*A[i]", "L[i<5] (-5)*1*A[i]+3*A[i]"), ("L[i<5] T[2]*A[i]", "L[i<5] 3*A[i]"), ("L[i<5] T[3]*A[i]", "L[i<5] 0"),
    ("L[i<5] T[0]*A[i] + U[2,2]*A[i]", "L[i<5] 7*A[i]"), ("L[i<5] Σ[k<3] T[k]*A[i]", "L[i<5] 4*A[i]"), ("L[i<5] Σ[k<2] T[k]*A[i]", "L[i<5] A[i]"),
    ("L[i<5] Σ[1<=k<7] T[k]*A[i]", "L[i<5] 2*A[i]"), ("L[i<5] Σ[-2<=k<1] T[k]*A[i]", "L[i<5] 2*A[i]"),
    ("L[i<5] Σ[k<3] T[k]*T[k]*A[i]", "L[i<5] 14*A[i]"), ("L[i<3,j<3] Σ[k<3] U[i,k]*U[k,j]", "L[i<3,j<3] {L[j<3,i<3] Σ[m<3] U[i,m]*U[m,j]}[j,i]"),
    ("L[i<3] Σ[k<3] I[i,k]*A[k]", "L[i<3] 2*A[i]"), ("L[i<5] Σ[k<3] I[i,k]*A[k]", "L[i<5] select(2-i>=0, 2*A[i], 0)"),
    ("L[i<3] Σ[1<=k<3] I[i,k]*A[k]", "L[i<3] select(i-1>=0, 2*A[i], 0)"), ("L[i<3] Σ[k<2] I[i,k]*A[k]", "L[i<3] select(1-i>=0, 2*A[i], 0)"),
    ("L[i<5] Σ[k<3] I[k,i-1]*A[k]", "L[i<5] select(i-1>=0 & 3-i>=0, 2*A[i-1], 0)"), ("L[i<3] Σ[k<3] D[i,k]*A[k]", "L[i<3] Σ[k<3] D[k,i]*A[i]"),
    ("L[i<3] Σ[1<=k<3] D[k,i]*A[k]", "L[i<3] select(i-1>=0, {L[i<3] Σ[k<3] D[i,k]*A[k]}[i], 0)"),
    ("L[i<3] Σ[k<2] D[k,i]*A[k]", "L[i<3] select(1-i>=0, {L[i<3] Σ[k<3] D[i,k]*A[k]}[i], 0)"),
    ("L[i<5] Σ[k<3] D[k,i-1]*A[k]", "L[i<5] {L[i<3] Σ[k<3] D[i,k]*A[k]}[i-1]"), ("L[i<2] Σ[k<3] O[i,k]*A[k]", "L[i<2] Σ[k<3] A[k]"),
    ("L[i<5] Σ[k<4] O[i,k]*A[k]", "L[i<5] Σ[k<3] select(1-i>=0, A[k], 0)"), ("L[i<5] O[i,1]*A[i]", "L[i<5] select(1-i>=0, A[i], 0)"),
    ("L[i<2,j<3] Σ[k<4] S[i,j,k]*A[k]", "L[i<2,j<3] 5*A[i+j]"), ("L[i<3] Σ[k<4] R[i,k]*A[k]", "L[i<3] 7*A[3-i]"),
    ("L[i<3] Σ[2<=k<4] R[i,k]*A[k]", "L[i<3] select(1-i>=0, 7*A[3-i], 0)"), ("L[i<3] Σ[k<3] R[i,k]*A[k]", "L[i<3] select(i-1>=0, 7*A[3-i], 0)"),
    ("L[i<5] Σ[k<4] R[i-1,k]*A[k]", "L[i<5] select(i-1>=0 & 3-i>=0, 7*A[4-i], 0)"),
    ("L[i<2,j<2] Σ[k<2] V[k,i,j]*A[k]", "L[i<2,j<2] Σ[k<2] V[i,k,j]*A[k]"),
    ("L[j<2] Σ[k<2,m<2] V[k,m,j]*A[k]*B[m]", "L[j<2] Σ[m<2] {L[i<2,j<2] Σ[k<2] V[k,i,j]*A[k]}[m,j]*B[m]"),
    ("L[i<5] Σ[k<3] T[k]*(1/A[i])", "L[i<5] 4*(1/A[i])"), ("L[i<5] T[2]*(1/A[i])", "L[i<5] 3*(1/A[i])"),
    ("L[i<5] T[3]*(1/A[i])", "L[i<5] 0*(1/A[i])"), ("L[i<5] Σ[-2<=k<0] T[k]*(1/A[i])", "L[i<5] 0*(1/A[i])"),
    ("L[i<5] Σ[k<3] U[k,i]*R[k,i]*A[i]", "L[i<5] A[i]*{L[i<3] Σ[k<3] R[k,i]*U[k,i]}[i]"), ("L[i<2] H[i]*A[i]", "L[i<2] 3*A[i]"),
    ("L[i<2] Σ[k<3] S[i,k,k]*A[k]", "L[i<2] Σ[k<3] A[k]*S[i,k,k]"), ("L[i<5] Σ[k<3] G[i,k]*A[k]", "L[i<5] select(i==0, 7*A[1], 0)"),
    ("L[i<5,j<5] Σ[k<3] G[i+j-2,k]*A[k]", "L[i<5,j<5] select(i+j-2==0, 7*A[1], 0)"),
)  # fmt: skip
UNLIKE = (
    ("L[i<5] T[1]*A[i]", "L[i<5] A[i]"), ("L[i<3] Σ[k<3] I[i,k]*A[k]", "L[i<3] A[i]"), ("L[i<3] Σ[k<3] D[i,k]*A[k]", "L[i<3] 2*A[i]"),
    ("L[i<3] Σ[k<3] U[i,k]*A[k]", "L[i<3] U[i,i]*A[i]"), ("L[i<3] Σ[k<3] I[i,k]*A[k]", "L[i<3] 2*A[2-i]"),
    ("L[i<2,j<3] Σ[k<4] S[i,j,k]*A[k]", "L[i<2,j<3] 5*A[j]"), ("L[i<3] Σ[k<3] W[i,k]*A[k]", "L[i<3] A[i]"),
    ("L[i<3] Σ[k<3] W[i,k]*A[k]", "L[i<3] W[i,i]*A[i]"), ("L[i<2,j<2] Σ[k<2] V[k,i,j]*A[k]", "L[i<2,j<2] V[i,0,j]*A[i]"),
    ("L[i<5] O[i,1]*A[i]", "L[i<5] A[i]"), ("L[i<5] max[k<3] T[k]*A[i]", "L[i<5] 4*A[i]"), ("L[i<5] Σ[k<3] T[k]*(1/A[i+k])", "L[i<5] 4*(1/A[i])"),
    ("L[i<5] Σ[k<3] T[k]*A[i+k]", "L[i<5] 4*A[i]"), ("L[i<5] Σ[k<3] (T[k]|1)*A[i]", "L[i<5] 0"), ("L[i<4] Σ[k<6] (T[k]|1)*A[i]", "L[i<4] 4*A[i]"),
    ("L[i<5] Σ[k<6] T[k/2]*A[i]", "L[i<5] 5*A[i]"), ("L[i<5] T[i/2]*A[i]", "L[i<5] T[i]*A[i]"),
    ("L[i<5] Σ[k<3] select(k-1>=0,T[k],0)*A[i]", "L[i<5] 4*A[i]"), ("L[i<5] Σ[k<3] select(k%2==0,T[k],0)*A[i]", "L[i<5] 4*A[i]"),
    ("L[i<5] Σ[k<3] U[k,k]*A[i]", "L[i<5] 4*A[i]"), ("L[i<5] max[k<3] T[k]", "L[i<5] 4"),
    ("L[i<5] Σ[k<3] T[k]*(1/A[i])*select(i-3>=0,B[i],-inf)", "L[i<5] 4*(1/A[i])*select(i-3>=0,B[i],-inf)"),
)  # fmt: skip

SKEWED = (
    ("L[] Σ[i<5,j<4] X[i,j]*B[i]", "L[] Σ[j<4,i<5] B[4-i]*X[4-i,j]"), ("L[h<3] Σ[r<3,s<4] Z[h+2*r,s]*T[r]", "L[h<3] Σ[s<4,r<3] Z[h+4-2*r,s]*T[2-r]"),
    ("L[] Σ[i<3,j<3] Z[i+j,j]*B[i]", "L[] Σ[j<3,3<=t<6] Z[5-t+j,j]*B[5-t]"),
    ("L[] Σ[i<3,j<3] Z[2*i+3*j,i+j]", "L[] Σ[t<5,j<3] select(t-j>=0 & 2+j-t>=0, Z[2*t+j,t], 0)"),
    ("L[] Σ[i<4,j<3] Z[2*i,j]*B[i]", "L[] Σ[2<=i<6,j<3] Z[2*i-4,2-j]*B[i-2]"),
    ("L[] Σ[i<9] {L[i<9] Σ[j<7] relu(Z[i,j])}[i]*{L[i<9] Σ[j<7] Z[i,j]}[8-i]",
     "L[] Σ[i<9] {L[i<9] Σ[j<7] relu(Z[8-i,6-j])}[i]*{L[i<9] Σ[j<7] Z[i,j]}[i]"),
    ("L[] Σ[i<3] relu({L[i<3] Σ[s<2] Z[i+s,s]}[i])", "L[] Σ[i<3] relu({L[i<3] Σ[s<2] Z[i+s,s]}[2-i])"),
    ("L[h<3] Σ[j<3] relu({L[h<3,j<3] Σ[s<2] Z[j+(h+s)//2,s]}[h,j])", "L[h<3] Σ[j<3] relu({L[h<3,j<3] Σ[s<2] Z[j+(h+s)//2,s]}[h,2-j])"),
    ("L[h<3] Σ[i<4] Z[2*i+4*h-4,i]", "L[h<3] Σ[t<8] select(t-2*h>=0 & 3+2*h-t>=0, Z[2*t-4,t-2*h], 0)"),
    ("L[h<3] Σ[i<4] Z[2*i+3*h-4,i]", "L[h<3] Σ[t<8] select(t-h>=0 & 3+h-t>=0, Z[2*t+h-4,t-h], 0)"),
    ("L[h<5] Σ[k<6] A[k//2]*B[k%2]", "L[h<5] Σ[a<3,b<2] A[a]*B[b]"),
    ("L[h<5] Σ[k<6] A[(k+1)//2]*B[h]", "L[h<5] Σ[k<7] select(k-1>=0, A[k//2]*B[h], 0)"),
)  # fmt: skip
APART = (
    ("L[] Σ[i<5,j<4] X[i,j]*B[i]", "L[] Σ[j<4,i<5] B[4-i]*X[i,j]"), ("L[] Σ[i<4,j<3] Z[2*i,j]*B[i]", "L[] Σ[i<4,j<3] Z[2*i+1,j]*B[i]"),
    ("L[] Σ[i<4,j<3] Z[2*i,j]", "L[] Σ[i<7,j<3] Z[i,j]"), ("L[] Σ[i<3,j<3] Z[i+j,j]*B[i]", "L[] Σ[i<3,j<3] Z[i+j,i]*B[i]"),
    ("L[] Σ[i<3,j<3] Z[2*i+3*j,i+j]", "L[] Σ[i<3,j<3] Z[3*i+3*j,i+j]"), ("L[h<5] Σ[k<6] A[k//2]*B[k%2]", "L[h<5] Σ[k<6] A[k//2]*B[k%3]"),
)  # fmt: skip


def scope(text: str) -> Scope:
    """A scope, or a body over i<5 in which A, B and C are read at i."""
    if not text.startswith("L"):
        for name in "ABC":
            text = text.replace(f"{name}[i]", name).replace(name, f"{name}[i]")
        text = f"L[i<5] {text}"
    return parse(DECLARED + TABLES + text)


def same(left: str, right: str) -> bool:
    return inline(scope(left)).key == inline(scope(right)).key


@pytest.mark.parametrize(("left", "right"), [*LINEAR, *SKEWED])
def test_what_is_equal_has_one_form(left: str, right: str) -> None:
    assert same(left, right)


@pytest.mark.parametrize(("left", "right"), [*UNLIKE, *APART])
def test_what_differs_has_two_forms(left: str, right: str) -> None:
    assert not same(left, right)


@pytest.mark.parametrize(("left", "right"), SAME)
def test_equations_of_functions_hold_where_they_are_asked(left: str, right: str) -> None:
    with by_bends():
        assert same(left, right)


@pytest.mark.parametrize(("left", "right"), [*OTHER, *LEFT])
def test_functions_that_differ_have_two_forms(left: str, right: str) -> None:
    with by_bends():
        assert not same(left, right)


@pytest.mark.parametrize("text", [t for pair in (*LINEAR, *UNLIKE, *SKEWED, *APART) for t in pair if "1/A" not in t])
def test_forms_of_sums_keep_every_value(text: str) -> None:
    """Exactly."""
    shapes = {"A": (5,), "B": (5,), "C": (5,), "X": (5, 4), "Y": (5, 4), "Z": (9, 7)}
    values = {n: np.vectorize(Fraction)(np.arange(1, 1 + np.prod(s)).reshape(s) ** 2 % 23 - 7) for n, s in shapes.items()}
    before = scope(text)
    np.testing.assert_array_equal(evaluate(inline(before), values, "int"), evaluate(before, values, "int"))


@pytest.mark.parametrize("text", [t for pair in (*SAME, *OTHER, *LEFT) for t in pair])
def test_forms_of_functions_keep_every_value(text: str) -> None:
    """In double precision, NaN where there is no value."""
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(s) for n, s in {"A": 5, "B": 5, "C": 5, "X": (5, 4), "Y": (5, 4)}.items()}
    before = scope(text)
    with by_bends():
        after = inline(before)
    np.testing.assert_allclose(evaluate(after, values), evaluate(before, values), rtol=1e-9, atol=1e-12)
