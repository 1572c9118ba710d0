"""Normal forms of max, min, relu, abs, less and exp: what is equal for all numbers has one, what is not has not."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.expr.nodes import INF, Add, Body, Call, Const, Scope
from einnet.expr.normal.inline import inline
from einnet.expr.normal.ordering import compared, ordered
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from tests.strategies import repeatable

DECLARED = "A : f32[27]\nB : f32[27]\nC : f32[27]\n"
VALUES = {name: np.array([Fraction(v[k]) for v in product((-2, 0, 3), repeat=3)], dtype=object) for k, name in enumerate("ABC")}
"""Every order of three numbers, with ties and zeros."""

SAME = (
    ("max(A,max(C,B))", "max(max(B,A),C)"), ("relu(max(A,B))", "max(relu(A),relu(B))"), ("min(max(min(max(A,B),C),B),C)", "min(max(A,B),C)"),
    ("min(A,max(A,B))", "A"), ("max(A,min(B,A))", "A"), ("max(A,A)", "A"), ("min(max(A,0),6)", "max(min(A,6),0)"), ("max(relu(A),0-3)", "relu(A)"),
    ("max(A,-inf)", "A"), ("min(inf,A+B)", "B+A"), ("min(A,min(2,min(B,1)))", "min(B,min(A,1))"), ("less(A,A)", "0"), ("equal(A+B,B+A)", "1"),
    ("less(B,max(A,B))", "less(B,A)"), ("less(A,B)*less(A,C)", "less(A,min(B,C))"), ("less(A,C)*less(B,C)", "less(max(A,B),C)"),
    ("less(min(A,B),A)", "less(B,A)"), ("abs(A)*abs(A)", "A*A"), ("abs(A)*C*abs(A)*abs(A)", "A*A*C*abs(A)"), ("relu(2*A)", "2*relu(A)"),
    ("4*relu(1/2*A+3/2*B)", "2*relu(A+3*B)"), ("abs(0-3*A)", "3*abs(A)"), ("sign(7*A)", "sign(A)"), ("less(relu(A),B)", "less(A,B)*less(0,B)"),
    ("max(A,min(B,A+abs(C)))", "min(max(A,B),A+abs(C))"), ("max(A,A+2)", "A+2"), ("min(A,A+B*B)", "min(A+B*B,A)"), ("min(A+relu(B),A)", "A"),
    ("max(A+exp(B)+C,A+C)", "A+exp(B)+C"), ("max(0,abs(A))", "abs(A)"), ("relu(less(A,B))", "less(A,B)"),
    ("exp(A+2*select(i-3>=0,1/2*B,-inf))", "select(i-3>=0,exp(A+B),0)"), ("exp(A)*exp(B)*exp(C)", "exp(A+B+C)"),
    ("(exp(A)+1)*exp(B)", "exp(B)+exp(A+B)"), ("min(C,C+2*relu(A))", "C"), ("min(sin(A),sin(A)+exp(A))", "sin(A)"), ("max(A,A+1/2)", "A+1/2"),
    ("relu(min(A,0))", "0"), ("max(1/A,B)", "max(B,1/A)"), ("less(A,relu(B))", "less(A,B)+less(A,0)-less(A,B)*less(A,0)"),
)  # fmt: skip
OTHER = (
    ("max(A,min(B,C))", "min(max(A,B),C)"), ("relu(0-2*A)", "2*relu(A)"), ("min(max(A,0),6)", "max(min(A,6),1)"), ("min(A,1)", "1"),
    ("max(A,1)", "A"), ("max(A,inf)", "A"), ("less(A,max(A,B))", "less(B,A)"), ("less(A,min(B,C))", "less(A,B)"), ("abs(A)*abs(B)", "A*B"),
    ("sign(0-A)", "sign(A)"), ("equal(A,B)", "1"), ("exp(A)*exp(B)", "exp(A)+exp(B)"), ("min(relu(A),6)", "relu(min(A,5))"),
    ("less(A,B)", "less(B,A)"), ("max(A,A-2)", "A-2"), ("min(A,A+B)", "A"), ("min(A,A-abs(B))", "A"), ("max(A,A+B+abs(C))", "A+B+abs(C)"),
)  # fmt: skip
PARTIAL = (("less(1/A,1/A)", "0"), ("equal(log(A),log(A))", "1"), ("min(B,max(B,C/A))", "B"), ("max(-inf,min(A,A*(1/B)))", "A"))


def scope(text: str) -> Scope:
    for name in "ABC":
        text = text.replace(name, f"{name}[i]")
    return parse(f"{DECLARED}L[i<27] {text}")


@pytest.mark.parametrize(("left", "right"), SAME)
def test_what_is_equal_whatever_the_order_has_one_form(left: str, right: str) -> None:
    assert inline(scope(left)).key == inline(scope(right)).key


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_what_differs_has_two_forms(left: str, right: str) -> None:
    assert inline(scope(left)).key != inline(scope(right)).key


@pytest.mark.parametrize(("left", "right"), PARTIAL)
def test_what_may_have_no_value_is_not_left_out(left: str, right: str) -> None:
    assert inline(scope(left)).key != inline(scope(right)).key


DOWN, UP = "select(i-3>=0,A,-inf)", "select(i-4>=0,B,inf)"
VALUED = {
    "A+sin(B)": True, "1/A": False, "log(A)": False, "A+1/B": False, f"{DOWN}+A": True, f"{DOWN}+{UP}": False, f"A-{DOWN}": False,
    f"{DOWN}-{DOWN}": False,
    f"A*{DOWN}": False, "A*B": True, f"exp({DOWN})": True, f"max(A,{UP})": True, f"sin({DOWN})": False, "sin(A)": True, f"A*sin({DOWN})": False,
    "{L[i<27] 1/A}[i]": False, "{L[i<27] A}[i]": True, f"{{L[i<27] {DOWN}}}[i]": True, f"{{L[i<27] select(i-1>=0,{DOWN},inf)}}[i]": True,
    f"{{L[i<27] Σ[k<3] select(k-1>=0,{DOWN},inf)}}[i]": False, f"{{L[i<27] Σ[k<3] select(k-1>=0,{DOWN},0)}}[i]": True,
    f"{{L[i<27] max[k<3] select(k-1>=0,{DOWN},inf)}}[i]": True, "{L[i<27] Σ[k<3] A*val(k)}[i]": True, "{L[i<27] Σ[k<3] A/val(k)}[i]": False,
}  # fmt: skip


@pytest.mark.parametrize("text", VALUED)
def test_what_has_a_value_is_equal_to_itself(text: str) -> None:
    """Infinite or not: nowhere are infinities of two signs added up, or one is multiplied by what may be 0."""
    given = scope(text).body
    assert compared("equal", given, given) == (Const(Fraction(1)) if VALUED[text] else None)
    assert compared("less", given, given) == (Const(Fraction(0)) if VALUED[text] else None)


def nested(name: str, args: list[Body]) -> Body:
    return reduce(lambda left, right: Call(name, (left, right)), args)


LIMITS = (
    ("max", 11, 1, True), ("max", 1, 11, True), ("max", 12, 1, False), ("max", 1, 12, False), ("max", 13, 1, False), ("max", 1, 13, False),
    ("min", 12, 1, True), ("min", 2, 6, True), ("min", 7, 2, False), ("min", 13, 1, False), ("min", 1, 13, False),
)  # fmt: skip


@pytest.mark.parametrize(("name", "first", "second", "fits"), LIMITS)
def test_forms_have_twelve_bodies_at_most(name: str, first: int, second: int, fits: bool) -> None:
    """A call of the greatest of so many: where it has a form, that has another order."""
    bodies = [scope(f"sin({n}*A)").body for n in range(10 + first + second, 10, -1)]
    args = (nested("max", bodies[:first]), nested("max", bodies[first:]))
    assert (ordered(name, args) != Call(name, args)) == fits


def test_equal_bodies_are_one() -> None:
    a, b, zero = scope("A").body, scope("B").body, Const(Fraction(0))
    assert ordered("max", (Add((a, b)), Add((b, a)))) in (Add((a, b)), Add((b, a))) and ordered("min", (a, a)) == a
    assert ordered("max", (zero, zero)) == zero and ordered("max", (zero, a)) == Call("relu", (a,)) == ordered("relu", (a,))
    gone = scope("1/A").body
    assert ordered("max", (gone, b)) == ordered("max", (b, gone)), "nothing is left out that need not have a value"
    assert ordered("max", (a, Const(-INF))) == a == ordered("min", (Const(INF), a))


def bodies(depth: int) -> st.SearchStrategy[str]:
    leaves = st.sampled_from(("A", "B", "C", "0", "1", "3", "(0-2)", "(A+B)", "2*C", "(0-A)"))
    if not depth:
        return leaves
    inner = bodies(depth - 1)
    two = st.tuples(st.sampled_from(("max", "min", "less", "max", "min", "equal")), inner, inner).map(lambda t: f"{t[0]}({t[1]},{t[2]})")
    one = st.tuples(st.sampled_from(("relu", "abs", "sign", "3/2*relu")), inner).map(lambda t: f"{t[0]}({t[1]})")
    return st.one_of(leaves, two, two, one, st.tuples(inner, inner).map(lambda t: f"({t[0]}*{t[1]})"))


@repeatable(150)
@given(bodies(3))
def test_forms_keep_every_value(text: str) -> None:
    """Exactly, at all 27 orders."""
    before = scope(text)
    after = inline(before)
    np.testing.assert_array_equal(evaluate(before, VALUES, "int"), evaluate(after, VALUES, "int"), err_msg=after.text())
