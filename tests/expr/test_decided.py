"""Choices that are known where they stand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from einnet.expr.decided import decided
from einnet.expr.index import var
from einnet.expr.nodes import Body, Cond, Scope, Select
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate

HEAD = "A : f32[9]\nB : f32[9]\n"


def decided_scope(text: str) -> tuple[Scope, Scope]:
    scope = parse(HEAD + text)
    return scope, replace(scope, body=decided(scope.body, scope.ranges))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("L[i<9] select(i-4>=0, select(i-3>=0, A[i], 0)*B[i], 1)", "L[i<9] select(i-4>=0, A[i]*B[i], 1)"),
        ("L[i<9] select(i-4>=0, A[i], B[i] + select(-i+3>=0, A[i], 7))", "L[i<9] select(i-4>=0, A[i], B[i] + A[i])"),
        ("L[i<9] select(i-4>=0, A[i], select(i-4>=0, 1, B[i]))", "L[i<9] select(i-4>=0, A[i], B[i])"),
        ("L[i<9] select(i-4>=0, select(-i+3>=0, A[i], B[i]), 0)", "L[i<9] select(i-4>=0, B[i], 0)"),
        ("L[i<9] relu(select(i>=0, A[i], 0))", "L[i<9] relu(A[i])"),
        ("L[i<9] select(i-4>=0 & -i+8>=0, A[i], 0)", "L[i<9] select(i-4>=0, A[i], 0)"),
    ],
)
def test_what_is_known_is_left_out(text: str, left: str) -> None:
    assert decided_scope(text)[1].body == parse(HEAD + left).body


@pytest.mark.parametrize(
    "text",
    [
        "L[i<9] select(i-4>=0, select(i-5>=0, A[i], 0), 1)",
        "L[i<9] select(i-4>=0, A[i], select(-i+2>=0, A[i], 7))",
        "L[i<9] select(i-4>=0 & -i+6>=0, A[i], select(-i+3>=0, A[i], 7))",
        "L[i<9] select(i-4==0, A[i], select(-i+3>=0, A[i], 7))",
        "L[i<9] select(i/2-2>=0, A[i], select(-i/2+1>=0, A[i], 7))",
    ],
)
def test_what_is_not_known_stays(text: str) -> None:
    scope, found = decided_scope(text)
    assert found == scope


def test_choices_in_choices_have_the_values_that_they_had() -> None:
    rng = Random(3)
    leaves, index = [parse(HEAD + f"L[i<9] {t}[i]").body for t in "AB"], var("i")

    def body(depth: int) -> Body:
        if depth == 0:
            return rng.choice(leaves)
        conds = tuple(Cond(rng.choice((1, -1)) * index + rng.randint(-6, 6), rng.random() < 0.2) for _ in range(rng.choice((1, 1, 2))))
        return Select(conds, body(depth - 1), body(depth - 1))

    scope = parse(HEAD + "L[i<9] A[i]")
    values = {"A": np.arange(9, dtype=np.float64), "B": -np.arange(9, dtype=np.float64)}
    fewer = 0
    for _ in range(200):
        before = replace(scope, body=body(4))
        after = replace(before, body=decided(before.body, before.ranges))
        np.testing.assert_array_equal(evaluate(before, values), evaluate(after, values))
        fewer += after.text() != before.text()
    assert fewer > 150
