"""Where the second oracle looks again: doubles that differ by more than rounding, and what is NaN by IEEE 754 alone."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest

from einnet.derivation.checker import oracle
from einnet.derivation.checker.draws import Choice, Draw
from einnet.expr.notation.text import parse


@pytest.mark.parametrize(("left", "right", "close"), [
    (1, 1, True), (1, 1 + 1e-12, True), (1, 1 + 1e-10, False), (1, 2, False), (1, -1, False), (-1, -1 - 1e-12, True), (0, 1e-300, False),
    (0, -0.0, True), (nan, nan, True), (nan, 1, False), (1, nan, False), (inf, inf, True), (inf, -inf, False),
    (inf, 1, False), (-inf, -inf, True), (1e308, -1e308, False),
])  # fmt: skip
def test_which_doubles_agree_but_for_rounding(left: float, right: float, close: bool) -> None:
    assert oracle._close(np.asarray([left]), np.asarray([right])).tolist() == [close]


def test_what_is_just_so_far_apart_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "_CLOSE", 2.0**-30)
    great = np.full(3, 2.0**30)
    assert oracle._close(great, great - [1, 2, -2]).tolist() == [True, False, False]


def test_what_is_furthest_apart_is_looked_at_first() -> None:
    """By its share of the greater: where one is NaN, first."""
    left, right = np.asarray([1, 1, 100, 2, 5, nan, 0, 7, 8, 9]), np.asarray([1, 2, 101, -1, 5, 3, 0, 7.5, 8.5, 9.5])
    assert oracle._suspects(left, right, oracle._close(left, right)) == [5, 3, 1, 7, 8, 9]
    assert oracle._suspects(left[:5], right[:5], oracle._close(left[:5], right[:5])) == [3, 1, 2]


@pytest.mark.parametrize(("one", "other", "differ"), [
    ("isnan(1/A[i])", "equal(A[i],0)", True), ("{L[i<8] isnan(1/A[i])}[i]", "equal(A[i],0)", True), ("isnan(0*(1/A[i]))", "isnan(1/A[i])", True),
    ("isnan(0*(1/A[i]))", "equal(A[i],0)", False), ("isnan(1/A[i]-1/A[i])", "isnan(0*(1/A[i]))", False), ("A[i]", "2*A[i]", False),
    ("A[i]", "A[i]+1", True),
])  # fmt: skip
def test_what_is_asked_whether_it_is_nan_is_evaluated_as_the_machine_does(one: str, other: str, differ: bool) -> None:
    """Where all elements are 0: 1/0 is infinite, though no value exists; 0 times it is NaN."""
    before, after = (parse(f"A : f32[8]\nL[i<8] {text}") for text in (one, other))
    points, draw = np.arange(8)[:, np.newaxis], Draw("zeros", Choice((Fraction(0),)))
    for sides in ((before, after), (after, before)):
        found = oracle._compared(*sides, points, draw)
        assert isinstance(found, oracle.Witness) if differ else found == 8
