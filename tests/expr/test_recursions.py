"""Recursions: text, key, exact values, and what is none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.errors import UsageError
from einnet.expr.recursions.recursion import Recursion
from einnet.expr.recursions.recursion_text import parse_recursion, recursion_text
from einnet.expr.recursions.recursion_values import evaluate_recursion

DELTA = """
K : f32[7,3]
V : f32[7,2]
B : f32[3,2]
c : f32[7,3]
u : f32[7,2]
S : f32[7,3,2]
y : f32[7,2]
last : f32[3,2]
before
c = L[t<7,k<3] 2*K[t,k]
at each of 7 times
u = L[t<7,v<2] V[t,v] + (-1)*select(t-1>=0, S[t-1,0,v], B[0,v])
S = L[t<7,k<3,v<2] select(t-1>=0, S[t-1,k,v], B[k,v]) + c[t,k]*u[t,v]
y = L[t<7,v<2] Σ[k<3] K[t,k]*S[t,k,v]
after
last = L[k<3,v<2] S[6,k,v]
gives last, y
"""

PAIR = """
A : f32[9]
p : f32[9]
q : f32[9]
at each of 9 times
p = L[t<9] p[t-1] + (-0.5)*q[t-1] + A[t]
q = L[t<9] q[t-1] + 0.5*p[t]
gives q
"""


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float64)


@pytest.mark.parametrize("text", [DELTA, PAIR])
def test_the_text_is_read_back(text: str) -> None:
    recursion = parse_recursion(text)
    assert parse_recursion(recursion_text(recursion)) == recursion
    assert recursion_text(recursion) == text.strip()


def test_exact_values_are_those_of_a_loop() -> None:
    given = {"K": numbers((7, 3), 1), "V": numbers((7, 2), 2), "B": numbers((3, 2), 3)}
    found = evaluate_recursion(parse_recursion(DELTA), given, "int")
    state, rows = given["B"], []
    for k, v in zip(given["K"], given["V"], strict=True):
        state = state + np.outer(2 * k, v - state[0])
        rows.append(k @ state)
    assert (found["y"] == np.stack(rows)).all()
    assert (found["last"] == state).all()


def test_two_states_each_read_by_the_other() -> None:
    given = {"A": numbers((9,), 4)}
    p = q = Fraction(0)
    rows = []
    for a in given["A"]:
        p = p - q / 2 + int(a)
        q = q + p / 2
        rows.append(q)
    found = evaluate_recursion(parse_recursion(PAIR), given, "int")["q"]
    assert all(Fraction(x) == y for x, y in zip(found, rows, strict=True))


def test_the_key_forgets_names_and_nothing_else() -> None:
    recursion = parse_recursion(DELTA)
    assert recursion.renamed({"S": "state", "K": "keys", "u": "new"}).key == recursion.key
    others = [
        DELTA.replace("2*K", "3*K"), DELTA.replace("S[6,", "S[5,"), DELTA.replace("gives last, y", "gives y, last"),
        DELTA.replace("c[t,k]*u", "K[t,k]*u"),
    ]  # fmt: skip
    assert len({recursion.key, *(parse_recursion(text).key for text in others)}) == 5


@pytest.mark.parametrize(("old", "new", "why"), [
    ("S[t-1,0,v]", "S[t,0,v]", "at a time at which it may not be known"),
    ("S[t-1,0,v]", "S[t+1,0,v]", "at a time at which it may not be known"),
    ("S[t-1,0,v]", "S[t//2,0,v]", "at a time at which it may not be known"),
    ("S[t-1,0,v]", "S[(t-1)/2,0,v]", "at a time at which it may not be known"),
    ("S[t-1,0,v]", "{L[a<7,b<2] S[a,0,b]}[t-1,v]", "a scope within the equation of u"),
    ("c = L[t<7,k<3] 2*K[t,k]", "c = L[t<7,k<3] u[t,0]*K[t,k]", "reads u"),
    ("u = L[t<7,v<2]", "u = L[t<7,v<3]", "not of the shape"),
    ("gives last, y", "gives z", "gives z"),
    ("at each of 7 times", "at each of 6 times", "the 6 times"),
])  # fmt: skip
def test_what_does_not_say_what_every_element_is(old: str, new: str, why: str) -> None:
    assert old in DELTA
    with pytest.raises(UsageError, match=why):
        parse_recursion(DELTA.replace(old, new))


@st.composite
def systems(draw: st.DrawFn) -> tuple[Recursion, np.ndarray]:
    """Linear systems of a few states, each read by any other at a time before it, with whole coefficients."""
    count, states, depth = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    table = np.array(draw(st.lists(st.integers(-2, 2), min_size=depth * states**2, max_size=depth * states**2))).reshape(depth, states, states)
    names = "pqr"[:states]
    lines = [f"A : f32[{count}]", *(f"{n} : f32[{count}]" for n in names), f"at each of {count} times"]
    for i, n in enumerate(names):
        terms = [f"{table[d, i, j]}*{names[j]}[t-{d + 1}]" for d in range(depth) for j in range(states)]
        lines.append(f"{n} = L[t<{count}] A[t] + {' + '.join(terms)}")
    return parse_recursion("\n".join([*lines, f"gives {', '.join(names)}"])), table


@settings(max_examples=40, deadline=None, derandomize=True)
@given(systems())
def test_linear_systems_are_products_of_matrices(drawn: tuple[Recursion, np.ndarray]) -> None:
    recursion, table = drawn
    assert parse_recursion(recursion_text(recursion)) == recursion
    given = numbers((recursion.count,), 5)
    found = evaluate_recursion(recursion, {"A": given}, "int")
    past = [np.zeros(table.shape[1], dtype=np.int64)] * len(table)
    for time, a in enumerate(given):
        now = sum((m @ x for m, x in zip(table, past, strict=True)), np.full(table.shape[1], int(a)))
        past = [now, *past][: len(table)]
        assert [found[n][time] for n in recursion.outputs] == list(now)
