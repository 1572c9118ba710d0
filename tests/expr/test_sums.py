"""Forms of sums under conditions: iterators fixed by equations, cut by floors and residues, joined, shrunk. Values stay, equal sums have one form."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from einnet.expr.nodes import Scope
from einnet.expr.normal.inline import inline
from einnet.expr.notation.text import parse
from tests.expr.brute import Brute

DECLARED = "A : f32[5]\nB : f32[5]\nX : f32[5,4]\nQ : f32[1,5]\nZ : f32[9,7]\n"
SHAPES = {"A": (5,), "B": (5,), "X": (5, 4), "Q": (1, 5), "Z": (9, 7)}
VALUES = {n: np.vectorize(Fraction)(np.arange(1, 1 + np.prod(s)).reshape(s) ** 2 % 23 - 7) for n, s in SHAPES.items()}

SAME = (
    ("L[] {L[] Σ[k<3] A[k]}[]*{L[] Σ[k<3,k'<2] X[k,k']}[]", "L[] Σ[a<3,b<3,c<2] A[a]*X[b,c]"),
    ("L[i<4] {L[i<5] relu(select(3-i>=0, A[i], B[i]))}[i]", "L[i<4] relu(A[i])"),
    ("L[i<9] select(i//2-2>=0, B[2], 0)", "L[i<9] select(i-4>=0, B[2], 0)"), ("L[i<9] select(2-i//3>=0, B[2], 0)", "L[i<9] B[2]"),
    ("L[] Σ[k<9] relu({L[i<9] Σ[q<4] X[i,q]*B[q]}[k])", "L[] Σ[k<5] relu({L[i<5] Σ[q<4] X[i,q]*B[q]}[k])"),
    ("L[i<5] relu(A[i]|3)", "L[i<5] relu(A[i])"),
    ("L[i<5] max[k<4] select(k-i>=0, X[i,k], -inf)", "L[i<5] max[k<4] select(3-k-i>=0, X[i,3-k], -inf)"),
    ("L[i<5] select(i-3>=0, A[i]+B[i], -inf)", "L[i<5] select(i-3>=0, B[i], -inf)+A[i]"),
    ("L[i<5] Σ[k<4] select(i-k-1==0 & k-2>=0, X[i,k], 0)", "L[i<5] select(i-3>=0, X[i,i-1], 0)"),
    ("L[4<=i<9] Σ[k<9] select(2*k-i==0, A[k-2], 0)", "L[4<=i<9] Σ[2<=k<5] select(2*k-i==0, A[k-2], 0)"),
    ("L[4<=i<9] Σ[k<9] select(i-2*k==0, A[k-2], 0)", "L[4<=i<9] Σ[2<=k<5] select(i-2*k==0, A[k-2], 0)"),
    ("L[i<5] Σ[k<3] select(i%2==0, A[k]*B[i], 0)", "L[i<5] select(i%2==0, {L[i<5] Σ[q<3] A[q]*B[i]}[i], 0)"),
    ("L[i<5] Σ[k<3] select((2*k+i)%4==0, A[k]*B[i], 0)", "L[i<5] Σ[q<3] select((i+2*q)%4==0, B[i]*A[q], 0)"),
    ("L[i<5,j<4] select(i-j>=0 & j-i>=0, X[i,j], 0)", "L[i<5,j<4] select(j-i>=0 & i-j>=0, X[i,j], 0)"),
    ("L[i<5,j<4] select(i-j>=0 & j-i>=0, X[i,j], 0)", "L[i<5,j<4] select(i-j==0, X[i,j], 0)"),
    ("L[i<5,j<4] select(2*i-j-1>=0 & 1+j-2*i>=0, X[i,j], 0)", "L[i<5,j<4] select(2*i-j-1==0, X[i,j], 0)"),
    ("L[i<5] Σ[r<3] Q[r-1,i]*A[r]", "L[i<5] Q[0,i]*A[1]"), ("L[i<5] Q[i-2,i]", "L[i<5] select(i-2==0, Q[0,i], 0)"),
    ("L[i<5] Σ[r<3,q<3] Q[r-q,i]*A[r]*B[q]", "L[i<5] Σ[r<3] Q[0,i]*A[r]*B[r]"),
    ("L[i<9] Σ[k<5] select(2*k-i==0, A[k], 0)", "L[i<9] Σ[k<7] select(2*k-i==0, A[k], 0)"),
    ("L[i<9] Σ[k<9] select(i-3*k-1==0, A[k], 0)", "L[i<9] Σ[k<3] select(i-3*k-1==0, A[k], 0)"),
    ("L[i<5] Σ[k<4] select(i-k-1==0, X[i,k], 0)", "L[i<5] X[i,i-1]"),
    ("L[i<5] Σ[1<=k<3] select(4-i-k==0, X[i,k], 0)", "L[i<5] select(i-2>=0 & 3-i>=0, X[i,4-i], 0)"),
    ("L[] Σ[2<=k<7] A[k//2]", "L[] Σ[k<5] A[(k+2)//2]"), ("L[] Σ[k<6] A[k//2]", "L[] Σ[k<3] 2*A[k]"),
    ("L[] Σ[k<6] A[k//2]*B[k%2]", "L[] Σ[a<3,b<2] A[a]*B[b]"), ("L[] Σ[k<9] A[k//2]", "L[] Σ[r<2,k<5] select(8-r-2*k>=0, A[k], 0)"),
    ("L[] Σ[1<=k<8] A[k//2]*B[k//2]", "L[] Σ[a<4,b<2] select(2*a+b-1>=0, A[a]*B[a], 0)"),
    ("L[] Σ[k<9] select(k%2==0, A[k/2], 0)", "L[] Σ[k<5] A[k]"), ("L[] Σ[k<5] select((k+1)%2==0, A[k], 0)", "L[] Σ[k<2] A[2*k+1]"),
    ("L[i<3] Σ[k<5] select((k+i)%3==0, A[k], 0)", "L[i<3] Σ[q<2] A[3*q+(-i)%3]"),
    ("L[i<3] Σ[k<5] select((2*k+i)%3==0, A[k], 0)", "L[i<3] Σ[q<2] A[3*q+i%3]"), ("L[] Σ[k<15] A[k/3]", "L[] Σ[k<5] A[k]"),
    ("L[] Σ[a<3,b<2] Z[2*a+b,3]", "L[] Σ[k<6] Z[k,3]"), ("L[] Σ[a<3,b<2] Z[7-2*a-b,3]", "L[] Σ[2<=k<8] Z[k,3]"),
    ("L[] Σ[a<3,1<=b<3] Z[2*a-b+2,3]", "L[] Σ[k<6] Z[k,3]"), ("L[i<5] Σ[k<9] A[i]", "L[i<5] 9*A[i]"),
    ("L[i<5] Σ[2<=k<9,-1<=r<2] A[i]", "L[i<5] 21*A[i]"), ("L[i<5] max[k<9,r<4] X[i,r]", "L[i<5] max[r<4] X[i,r]"),
    ("L[i<5] Σ[k<9] select(k-2>=0 & 6-k>=0, A[i], 0)", "L[i<5] 5*A[i]"), ("L[i<9] Σ[k<5] select(i-2*k>=0 & 2*k+1-i>=0, B[2], 0)", "L[i<9] B[2]"),
    ("L[i<11] Σ[k<5] select(i-2*k>=0 & 2*k+1-i>=0, B[2], 0)", "L[i<11] select(9-i>=0, B[2], 0)"),
    ("L[i<9] Σ[1<=k<5] select(i-2*k>=0 & 2*k+1-i>=0, B[2], 0)", "L[i<9] select(i-2>=0, B[2], 0)"),
    ("L[i<5] Σ[k<9] A[i+k-3]*B[k]", "L[i<5] Σ[k<5] A[i+k-3]*B[k]"), ("L[i<5] Σ[k<20] X[i,7-k]", "L[i<5] Σ[k<4] X[i,k]"),
    ("L[i<5] Σ[k<9] select(2*k-5>=0 & 13-2*k>=0, A[i]*B[k-2], 0)", "L[i<5] Σ[1<=k<5] A[i]*B[k]"), ("L[i<5] Σ[k<9] A[i+9]*B[k]", "L[i<5] 0"),
    ("L[i<5] Σ[k<4] select(k-i-5>=0, X[i,k], 0)", "L[i<5] 0"), ("L[i<5,j<5] Σ[k<5] select(k-i-1>=0 & j-k-1>=0 & i-j>=0, A[k], 0)", "L[i<5,j<5] 0"),
    ("L[i<9] A[i]*A[i-5]", "L[i<9] 0"), ("L[i<5] X[i,i]*X[i,i-4]", "L[i<5] 0"), ("L[i<9] select((2*i+1)%2==0, A[i], 0)", "L[i<9] 0"),
    ("L[i<9] A[(2*i+1)/2]", "L[i<9] 0"), ("L[i<9] select(i%4==0, A[i/2], 0)", "L[i<9] select(i%4==0 & i%2==0, A[i/2], 0)"),
    ("L[i<9] select((3*i)%6==0, A[i/2], 0)", "L[i<9] A[i/2]"), ("L[i<5] Σ[k<9] select(k-1>=0, B[k]*(1/A[i]), 0)", "L[i<5] Σ[1<=k<5] B[k]*(1/A[i])"),
    ("L[i<5] Σ[k<9] B[k-2]*(1/A[i])", "L[i<5] Σ[k<5] B[k]*(1/A[i])"),
    ("L[i<5] Σ[k<9,r<9] B[k]*X[k,r]*log(A[i])", "L[i<5] Σ[k<5,r<4] B[k]*X[k,r]*log(A[i])"),
    ("L[i<5] Σ[k<3] {L[i<5] Σ[q<4] relu(X[i,q])}[i+k-1]", "L[i<5] Σ[q<4,k<3] relu(X[i+k-1,3-q])"),
)  # fmt: skip
OTHER = (
    ("L[i<5] relu(A[i-1]|3)", "L[i<5] relu(A[i-1])"), ("L[i<5] select(i-3>=0, A[i], -inf)", "L[i<5] select(i-3>=0, A[i], 0)"),
    ("L[i<4] {L[i<5] relu(select(2-i>=0, A[i], B[i]))}[i]", "L[i<4] relu(A[i])"),
    ("L[i<9] select(i//2-2>=0, B[2], 0)", "L[i<9] select(i-5>=0, B[2], 0)"), ("L[i<5] Σ[k<9] select((k+1)%7==0, B[k]*(1/A[i]), 0)", "L[i<5] 0"),
    ("L[i<5] max[r<3] Q[r-1,i]", "L[i<5] Q[0,i]"), ("L[i<5] Σ[k<9] A[i]", "L[i<5] A[i]"), ("L[i<5] Q[i-2,i]", "L[i<5] Q[0,i]"),
    ("L[i<9] Σ[k<5] select(2*k-i==0, A[k], 0)", "L[i<9] A[i]"),
    ("L[i<5,j<4] select(i-j>=0 & j-i+1>=0, X[i,j], 0)", "L[i<5,j<4] select(i-j==0, X[i,j], 0)"),
    ("L[i<9] Σ[k<5] select(i-2*k>=0 & 2*k+2-i>=0, B[2], 0)", "L[i<9] B[2]"), ("L[] Σ[a<3,b<3] Z[2*a+b,3]", "L[] Σ[k<7] Z[k,3]"),
    ("L[i<5] Σ[k<3] 1/(A[i]+B[k])", "L[i<5] 3/(A[i]+B[0])"), ("L[i<9] select(i%4==0, A[i/2], 0)", "L[i<9] A[i/2]"),
    ("L[i<9] A[i]*A[i-4]", "L[i<9] 0"), ("L[] Σ[k<9] A[k//2]", "L[] Σ[k<4] 2*A[k]"), ("L[] Σ[k<6] A[k//2]*B[k%2]", "L[] Σ[k<6] A[k//2]*B[k//3]"),
    ("L[] Σ[k<5,r<5] select(k-r>=0, B[k+2]*(1/A[r]), 0)", "L[] Σ[k<3,r<3] select(k-r>=0, B[k+2]*(1/A[r]), 0)"),
    ("L[] Σ[k<5,r<5] select((k+r)%2==0, B[k-4]*(1/A[r]), 0)", "L[] Σ[r<5] select(r%2==0, B[0]*(1/A[r]), 0)"),
    ("L[i<5] Σ[k<5] B[k+1]*(1/A[k])", "L[i<5] Σ[k<4] B[k+1]*(1/A[k])"), ("L[i<5] Σ[5<=k<9] B[k]*(1/A[i])", "L[i<5] 0"),
    ("L[i<5] Σ[k<9] A[i+k-3]*B[k]", "L[i<5] Σ[k<4] A[i+k-3]*B[k]"),
    ("L[i<5] Σ[k<4] select(k-i>=0, X[i,k], 0)", "L[i<5] Σ[k<4] select(k-i-1>=0, X[i,k], 0)"),
)  # fmt: skip


def scope(text: str) -> Scope:
    return parse(DECLARED + text)


@pytest.mark.parametrize(("left", "right"), SAME)
def test_equal_sums_have_one_form(left: str, right: str) -> None:
    one, other = inline(scope(left)), inline(scope(right))
    assert one.key == other.key, f"{one.text()} | {other.text()}"


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_other_sums_have_two_forms(left: str, right: str) -> None:
    assert inline(scope(left)).key != inline(scope(right)).key


def table(given: Scope) -> dict[tuple[int, ...], object]:
    return dict(Brute(VALUES).table(given))


@pytest.mark.parametrize(
    "text", [t for pair in (*SAME, *OTHER) for t in pair if "1/(" not in t and "/A" not in t and "3/(" not in t and "log" not in t]
)
def test_forms_of_sums_keep_every_value(text: str) -> None:
    assert table(inline(scope(text))) == table(scope(text))


def drawn(rng: Random) -> str:
    """A sum over two iterators, with conditions and indices of every kind that normal forms cut iterators by."""

    def index(names: str) -> str:
        parts = [f"{c:+d}*{n}" for n in names if (c := rng.choice((0, 1, 1, -1, 2, -2)))]
        return f"{rng.randint(-3, 3)}{''.join(parts)}"

    def condition() -> str:
        e = index("kri")
        return rng.choice((f"{e}>=0", f"{e}==0", f"({e})%{rng.choice((2, 3, 4))}==0", f"{e}-2*(({index('k')})//{rng.choice((2, 3))})>=0"))

    def place(names: str) -> str:
        e = index(names)
        return rng.choice((e, e, f"({e})//{rng.choice((2, 3))}", f"({e})/{rng.choice((2, 3))}", f"({e})%{rng.choice((3, 5))}"))

    kinds = (f"A[{place('k')}]", f"B[{place('ki')}]", f"X[{place('i')},{place('kr')}]", f"Q[{index('kr')},i]", f"val({index('ki')})")
    factors = [rng.choice(kinds) for _ in range(2)]
    conds = [condition() for _ in range(rng.randint(0, 2))]
    low, start = rng.randint(-2, 2), rng.randint(-1, 1)
    body = "*".join(factors)
    body = f"select({' & '.join(conds)}, {body}, 0)" if conds else body
    reduce = rng.choice(("Σ", "Σ", "Σ", "Σ", "max", "min"))
    return f"L[{start}<=i<{start + 4}] {reduce}[{low}<=k<{low + rng.randint(1, 6)},r<{rng.randint(1, 3)}] {body}"


@pytest.mark.parametrize("seed", range(50))
def test_random_sums_keep_every_value(seed: int) -> None:
    rng = Random(seed)
    for _ in range(4):
        given = scope(drawn(rng))
        assert table(inline(given)) == table(given)
