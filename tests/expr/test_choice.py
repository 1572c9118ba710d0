"""Choices by data and questions for NaN: what is proven of them, what is refuted, and what neither is."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.derivation.checker.check import Difference, check_equal
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate

TENSORS = "X : f32[4]\nY : f32[4]\nC : bool[4]\n"
SOFTMAX = "{L[i<4] exp(X[i] - {L[] max[k<4] X[k]}[])}[i]/{L[] Σ[i<4] {L[i<4] exp(X[i] - {L[] max[k<4] X[k]}[])}[i]}[]"

PROVEN = [
    (f"choose(isnan({SOFTMAX}), 0, {SOFTMAX})", SOFTMAX),
    ("choose(isnan(exp(X[i])), 1/Y[i], X[i])", "X[i]"),
    ("choose(less(X[i],Y[i]), 1, 2)", "2 - less(X[i],Y[i])"),
    ("not(not(C[i]))", "C[i]"),
    ("not(less(X[i],Y[i]))*X[i]", "X[i] - less(X[i],Y[i])*X[i]"),
    ("choose(C[i], X[i], Y[i])", "C[i]*X[i] + Y[i] - C[i]*Y[i]"),
    ("choose(not(C[i]), X[i], Y[i])", "choose(C[i], Y[i], X[i])"),
    ("choose(less(X[i],Y[i]), X[i], X[i])", "X[i]"),
    ("choose(less(X[i],0), 1/X[i], 1/X[i])", "1/X[i]"),
    ("choose(isnan(X[i]/Y[i]), 0, X[i]/Y[i])", "choose(isnan(X[i]*(1/Y[i])), 0, X[i]*(1/Y[i]))"),
    ("Y[i]*choose(less(X[i],0), 2, X[i])", "choose(less(X[i],0), 2*Y[i], X[i]*Y[i])"),
]
REFUTED = [
    ("choose(isnan(X[i]/Y[i]), 0, X[i]/Y[i])", "X[i]/Y[i]"),
    ("choose(isnan(X[i]/Y[i]), 0, X[i]/Y[i])", "choose(isnan(X[i]/Y[i]), X[i]/Y[i], 0)"),
    ("choose(isnan(X[i]/X[i]), 1, 2)", "2 + 0*X[i]"),
    ("choose(less(X[i],0), Y[i], X[i])", "choose(less(-1*X[i],0), X[i], Y[i])"),
    ("choose(X[i], Y[i], 3)", "X[i]*Y[i] + 3 - 3*X[i]"),
    ("choose(isnan(sqrt(X[i])), 0, 1)", "1 + 0*X[i]"),
    ("choose(not(X[i]), Y[i], 2)", "choose(X[i], Y[i], 2)"),
    ("not(less(X[i],Y[i]))", "less(Y[i],X[i])"),
    ("choose(isnan(1/X[i]), 1, 2)", "1 + not(equal(X[i],0))"),  # 1/0 is infinite
]


@pytest.mark.parametrize(("before", "after"), PROVEN)
def test_proven(before: str, after: str) -> None:
    proof = check_equal(parse(f"{TENSORS}L[i<4] {before}"), parse(f"{TENSORS}L[i<4] {after}"))
    assert proof.method == "inline"


@pytest.mark.parametrize(("before", "after"), REFUTED)
def test_refuted(before: str, after: str) -> None:
    with pytest.raises(Difference) as found:
        check_equal(parse(f"{TENSORS}L[i<4] {before}"), parse(f"{TENSORS}L[i<4] {after}"))
    assert found.value.witness is not None


@pytest.mark.parametrize(("before", "after"), [
    ("choose(isnan(1/X[i]), 1, 2)", "2"), ("choose(isnan(log(X[i])), 1, 2)", "1 + not(less(X[i],0))"),
])  # fmt: skip
def test_what_may_be_infinite_is_neither(before: str, after: str) -> None:
    """1/0 has no value to the checker and is no NaN to single precision: nothing is refuted by it, and nothing proven."""
    proof = check_equal(parse(f"{TENSORS}L[i<4] {before}"), parse(f"{TENSORS}L[i<4] {after}"))
    assert proof.method == "random"


@pytest.mark.parametrize("dtype", ["float32", "float64", "int", "mod"])
def test_values(dtype: str) -> None:
    scope = parse(f"{TENSORS}L[i<4] choose(C[i], X[i], Y[i] + isnan(X[i]))")
    given = {"X": np.array([1, 2, 3, 4]), "Y": np.array([5, 6, 7, 8]), "C": np.array([1, 0, 0, 1])}
    assert evaluate(scope, given, dtype).tolist() == [1, 6, 7, 4]


def test_what_is_not_chosen_is_no_part() -> None:
    scope = parse(f"{TENSORS}L[i<4] choose(isnan(X[i]), Y[i], X[i])")
    given = {"X": np.array([np.nan, 2, np.inf, -1]), "Y": np.array([5, np.nan, np.nan, 8.0])}
    assert evaluate(scope, given).tolist() == [5, 2, np.inf, -1]
