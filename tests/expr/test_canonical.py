"""One canonical form for each term: ranges, conditions, divisors, floors and orders of factors that say the same, and values that stay."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.normal.inline import inline
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate

DECLARED = "V : f32[8]\nW : f32[19]\nU : f32[1]\n"
VALUES = {"V": np.arange(3.0, 11.0), "W": np.arange(19.0) * 7 % 20 - 9, "U": np.array([5.0])}

SAME = (
    ("Σ[k<0] V[k]*W[m]", "0"), ("Σ[k<5,j<0] V[k]", "0"), ("Σ[k<0] exp(val(k))*W[m]", "0"),
    ("Σ[k<0] sigmoid(val(k))", "0"), ("select(m%3==0, relu(select(m%6==0, V[m], 0)), 0)", "relu(select(m%6==0, V[m], 0))"),
    ("select(m%3==0, W[m/6], 0)", "W[m/6]"), ("select((m+2)%3==0, W[(m+2)/6], 0)", "W[(m+2)/6]"),
    ("select((2*m+4)%6==0, W[(m+2)/3], 0)", "W[(m+2)/3]"),
    ("Σ[k<3] W[m+k]*{L[m<8] Σ[j<0] V[j]}[m]", "0"),
    ("Σ[a<5,b<4] select(a<=1, V[4*a+b], 0)", "Σ[k<8] V[k]"), ("Σ[a<5,b<4] select(a<=2, W[m+4*a+b], 0)", "Σ[k<12] W[m+k]"),
    ("Σ[k<16] select(k<=7, W[k//8]*V[m], 0)", "8*W[0]*V[m]"), ("Σ[k<40] select(k>=16, select(k<=23, W[k//8]*V[m], 0), 0)", "8*W[2]*V[m]"),
    ("U[m-3]", "U[3-m]"), ("select(m==3, U[0], 0)", "U[3-m]"), ("U[2*m-6]*W[m]", "select(m==3, U[0]*W[m], 0)"),
    ("Σ[k<8] V[(k-3)//2]", "Σ[-3<=j<5] V[j//2]"), ("Σ[k<8] W[(k+3)//2]", "Σ[3<=j<11] W[j//2]"),
    ("Σ[k<20] select((2*k+m)%5==0, W[k], 0)", "Σ[-2<=q<5] W[5*q+(2*m)%5]"), ("Σ[k<20] select((3*k+m)%7==0, W[k], 0)", "Σ[-2<=q<5] W[7*q+(2*m)%7]"),
    ("Σ[k<30] select(k>=3, (1/V[m])*W[k], 0)", "Σ[3<=k<19] (1/V[m])*W[k]"),
    ("Σ[k<30,j<30] select(k-j>=3, (1/V[m])*W[k]*W[j], 0)", "Σ[k<19,j<19] select(k-j>=3, (1/V[m])*W[k]*W[j], 0)"),
    ("select(m%3==0, relu(select(m%3==0, V[m], 0)), 0)", "relu(select(m%3==0, V[m], 0))"),
    ("select((2*m+1)%5==0, V[m], 0)", "select((m+3)%5==0, V[m], 0)"), ("select((9*m+3)%12==0, W[m], 0)", "select((m+3)%4==0, W[m], 0)"),
    ("select((10*m+5)%15==0, W[2*m], 0)", "select((m+2)%3==0, W[2*m], 0)"), ("select((4*m+2*m*3)%12==0, W[m], 0)", "select((2*m)%12==0, W[m], 0)"),
    ("select((2*m)%5==0, relu(select(m%5==0, V[m], 0)), 0)", "relu(select(m%5==0, V[m], 0))"),
    ("Σ[k<19] W[k]*W[k+m]", "Σ[-9<=k<28] W[k-m]*W[k]"), ("Σ[k<19] W[k]*W[k+m]*W[k+2*m]", "Σ[-9<=k<28] W[k]*W[k-2*m]*W[k-m]"),
    ("Σ[y<5] select(m-2*y>=0, select(2*y-m+1>=0, V[m], 0), 0)", "V[m]"),
    ("relu(W[m-3] + select(m>=3, V[m], 0))", "select(m>=3, relu(W[m-3]+V[m]), 0)"),
    ("relu(W[m-3] + select(m>=2, V[m], 0))", "select(m>=2, relu(W[m-3]+V[m]), 0)"),
    ("tanh(W[2*m-3]*V[m] + select(m>=2, V[m], 0))", "select(m>=2, tanh(W[2*m-3]*V[m] + V[m]), 0)"),
    ("relu(select(m>=3, V[m], 0) + select(m>=5, W[m], 0))", "select(m>=3, relu(V[m] + select(m>=5, W[m], 0)), 0)"),
    ("relu(select(m>=3, V[m], 0) + select(m>=3 & m<=5, W[m], 0))", "select(m>=3, relu(V[m] + select(m<=5, W[m], 0)), 0)"),
    ("relu({L[m<8] Σ[k<3] select(m>=3, V[k]*W[m+k], 0)}[m])", "select(m>=3, relu({L[m<8] Σ[k<3] V[k]*W[m+k]}[m]), 0)"),
    ("abs({L[m<8] Σ[k<3] W[m-3]*V[k]*W[m+k]}[m] + select(m>=3, V[m], 0))", "select(m>=3, abs({L[m<8] Σ[k<3] W[m-3]*V[k]*W[m+k]}[m] + V[m]), 0)"),
    ("abs({L[m<8] Σ[k<3] V[m-5-k]}[m] + select(m>=5, W[m], 0))", "select(m>=5, abs({L[m<8] Σ[k<3] V[m-5-k]}[m] + W[m]), 0)"),
    ("relu(W[m/2] + select(m%2==0, V[m], 0))", "select(m%2==0, relu(W[m/2]+V[m]), 0)"),
    ("relu(select(m%2==0, V[m], 0) + 1/2*select(m%2==0 & m>=3, W[m], 0))", "select(m%2==0, relu(V[m] + 1/2*select(m>=3, W[m], 0)), 0)"),
    ("relu(2*W[m-3] + select(m>=3, 3*V[m], 0))", "2*select(m>=3, relu(W[m-3]+3/2*V[m]), 0)"),
    ("sign(tanh(W[m-3]+W[m-3]*V[m]) + select(m>=3, V[m], 0))", "select(m>=3, sign(tanh(W[m-3]+W[m-3]*V[m]) + V[m]), 0)"),
    ("abs(select(m>=3, W[m]-V[m], 0) + select(m>=3, V[m]-W[m], 0))", "0"),
    ("select(m>=3, abs(W[m-3]+W[m-3]*V[m]), 0)", "abs(W[m-3]+W[m-3]*V[m])"),
    ("Σ[k<3] {L[x<24] relu(select(x//3>=2, W[x//3]+V[x%3], 0))}[3*m+k]", "Σ[k<3] select(m>=2, relu(W[m]+V[k]), 0)"),
    ("Σ[k<3] {L[x<24] relu(select(x//3<=5, W[x//3]+V[x%3], 0))}[3*m+k]", "Σ[k<3] select(m<=5, relu(W[m]+V[k]), 0)"),
    ("Σ[k<3] select(3*m+k>=6, V[k]*W[m], 0)", "Σ[k<3] select(m>=2, V[k]*W[m], 0)"),
    ("Σ[a<4,b<3] select(3*a+b>=6, select(6>=3*a+b, V[a]*W[m+b], 0), 0)", "V[2]*W[m]"),
    ("Σ[a<4,b<3] select(3*a+b>=6, W[m+3*a+b], 0)", "Σ[6<=k<12] W[m+k]"), ("Σ[a<4,b<3] select(3*a+b>=7, W[m+3*a+b], 0)", "Σ[7<=k<12] W[m+k]"),
)  # fmt: skip
OTHER = (
    ("relu(W[m] + select(m>=3, V[m], 0))", "select(m>=3, relu(W[m]+V[m]), 0)"),
    ("abs(W[m-2] + select(m>=3, V[m], 0))", "select(m>=3, abs(W[m-2]+V[m]), 0)"),
    ("relu((V[m-3]|1) + select(m>=3, W[m], 0))", "select(m>=3, relu((V[m-3]|1)+W[m]), 0)"),
    ("relu(exp(W[m-3]) + select(m>=3, V[m], 0))", "select(m>=3, relu(exp(W[m-3])+V[m]), 0)"),
    ("sigmoid(W[m-3] + select(m>=3, V[m], 0))", "select(m>=3, sigmoid(W[m-3]+V[m]), 0)"),
    ("relu(select(m>=3, V[m], 0) + select(m>=5, W[m], 0))", "select(m>=5, relu(V[m] + select(m>=3, W[m], 0)), 0)"),
    ("relu(select(m>=3, V[m], 0) + select(m<=5, W[m], 0))", "select(m>=3 & m<=5, relu(V[m]+W[m]), 0)"),
    ("abs({L[m<8] Σ[k<3] V[m-5+k]}[m] + select(m>=5, W[m], 0))", "select(m>=5, abs({L[m<8] Σ[k<3] V[m-5+k]}[m] + W[m]), 0)"),
    ("abs({L[m<8] Σ[k<9] select(k>=3, V[m]*W[k], 0)}[m] + select(m>=3, V[m], 0))",
     "select(m>=3, abs({L[m<8] Σ[k<9] select(k>=3, V[m]*W[k], 0)}[m] + V[m]), 0)"),
    ("abs(W[m/2] + select(m%4==0, V[m], 0))", "select(m%4==0, abs(W[m/2]+V[m]), 0)"),
    ("abs(W[m] + select(m%2==0, V[m], 0))", "select(m%2==0, abs(W[m]+V[m]), 0)"),
    ("select(m>=3, abs(W[m-3]+V[m]), 0)", "abs(W[m-3]+V[m])"), ("select(m>=3, abs(W[m-3]+W[m-2]), 0)", "abs(W[m-3]+W[m-2])"),
    ("Σ[k<3] {L[x<27] relu(select(x//3>=2, W[x//3]+V[x%3], 0))}[3*m+k+1]", "Σ[k<3] select(m>=2, relu(W[m]+V[k]), 0)"),
    ("Σ[k<3] select(3*m+k>=7, V[k]*W[m], 0)", "Σ[k<3] select(m>=2, V[k]*W[m], 0)"),
    ("Σ[k<4] select(3*m+k>=6, V[k]*W[m], 0)", "Σ[k<4] select(m>=2, V[k]*W[m], 0)"),
    ("select(m%3==0, W[m/2], 0)", "W[m/2]"), ("select((m+1)%3==0, W[(m+2)/6], 0)", "W[(m+2)/6]"), ("select(m%6==0, W[m/3], 0)", "W[m/3]"),
    ("Σ[k<1] V[m]", "0"), ("Σ[a<5,b<4] select(a<=0, V[4*a+b], 0)", "Σ[k<8] V[k]"), ("U[m-3]", "U[m-2]"),
    ("Σ[k<8] V[(k-3)//2]", "Σ[k<8] V[(k-2)//2]"), ("Σ[k<8] W[(k+3)//2]", "Σ[k<8] W[(k+2)//2]"),
    ("Σ[k<20] select((2*k+m)%5==0, W[k], 0)", "Σ[-2<=q<5] W[5*q+(3*m)%5]"), ("Σ[k<30] select(k>=3, (1/V[m])*W[k], 0)", "Σ[4<=k<19] (1/V[m])*W[k]"),
    ("select(m%2==0, relu(select(m%3==0, V[m], 0)), 0)", "relu(select(m%3==0, V[m], 0))"), ("Σ[k<19] W[k]*W[k+m]", "Σ[k<19] W[k]*W[k-2*m]"),
    ("Σ[y<5] select(m-2*y>=0, select(2*y-m+1==0, V[m], 0), 0)", "V[m]"), ("Σ[y<5] select(m-2*y==0, select(2*y-m+1>=0, V[m], 0), 0)", "V[m]"),
    ("Σ[y<3] select(m-2*y>=0, select(2*y-m+1>=0, V[m], 0), 0)", "V[m]"),
    ("Σ[y<9] select(m-2*y>=0, select(2*y-m+1>=0, select(m==3, V[m], 0), 0), 0)", "V[m]"),
)  # fmt: skip


@pytest.mark.parametrize(("left", "right", "alike"), [*((*pair, True) for pair in SAME), *((*pair, False) for pair in OTHER)])
def test_one_form_where_two_sums_are_the_same(left: str, right: str, alike: bool) -> None:
    """Forms keep every value, and are one just where the values are."""
    first, second = (parse(f"{DECLARED}L[m<8] {text}") for text in (left, right))
    found, wanted = (evaluate(s, VALUES) for s in (first, second))
    assert np.allclose(found, wanted) == alike, "the pair itself"
    for scope in (first, second):
        np.testing.assert_allclose(evaluate(inline(scope), VALUES), evaluate(scope, VALUES), rtol=1e-12, atol=1e-12)
    assert (inline(first).key == inline(second).key) == alike
