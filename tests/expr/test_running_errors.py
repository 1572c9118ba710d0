"""Running errors operation by operation: what is exact has none, what rounds has as much as is said, and no order of additions errs by more."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import inf

import numpy as np
import pytest

from einnet.expr.functions.rounding import LEAST, UNIT
from einnet.expr.values.cancellation import LARGEST, Conditioned
from einnet.expr.values.running_errors import NONE, WHOLE, Running, pair, parts, rounded, whole

SYSTEM = Running()


def told(found: np.ndarray) -> list[tuple[float, float]]:
    """Values with their errors."""
    value, error = parts(found)
    return list(zip(value.reshape(-1).tolist(), np.broadcast_to(error, value.shape).reshape(-1).tolist(), strict=True))


def test_a_value_without_an_error_is_a_plain_number() -> None:
    assert pair(np.array([1.0, 2.0]), 0.0).dtype.kind == "f" and parts(pair(np.array(1.0), 0))[1] is NONE
    assert told(pair(np.array([1.0, 2.0]), np.array([0.0, 3.0]))) == [(1.0, 0.0), (2.0, 3.0)] and told(pair(np.array(2.0), 1)) == [(2.0, 1.0)]
    assert told(rounded(np.array([-3.0]), np.array([5.0]))) == [(-3.0, 5.0 + UNIT * 8 + LEAST)]


@pytest.mark.parametrize(("arrays", "found"), [
    (([1.0, 2.0],), True), (([1.0, 2.5],), False), (([1.5, 2.0],), False), (([WHOLE],), True), (([WHOLE + 1.0],), False), (([-WHOLE - 1.0],), False),
    (([1.0], [0.5]), False), (([0.5], [1.0]), False), (([1.0], [2.0]), True), (([],), False), (([1.0 + 0j],), False), (([1.0], [1.0, 2.5]), False),
])  # fmt: skip
def test_whole_numbers(arrays: tuple[list[complex], ...], found: bool) -> None:
    assert bool(whole(*map(np.asarray, arrays))) == found


def test_numbers_elements_and_places() -> None:
    assert told(SYSTEM.number(Fraction(-1, 3))) == [(-1 / 3, UNIT / 3)] and told(SYSTEM.number(Fraction(3))) == [(3.0, 0.0)]
    assert told(SYSTEM.number(-inf)) == [(-inf, 0.0)]
    given = np.array([1 + 2j])
    assert SYSTEM.values(given) is given and SYSTEM.values(np.array([0.5])).dtype.kind == "f"
    assert told(SYSTEM.integers(np.array([4, 2]), 4)) == [(1.0, UNIT), (0.5, UNIT / 2)]
    assert told(SYSTEM.integers(np.array([4, 2]), 2)) == [(2.0, 0.0), (1.0, 0.0)]
    assert SYSTEM.places(np.array([1.25 + 0.49j, 2.9 + 0j])).tolist() == [1, 3] and SYSTEM.places(np.array([1 + 0.25j, 2 + 0.5j])) is None


A, B = np.array([3.0 + 0.5j]), np.array([-2.0 + 0.25j])


def test_operations_hand_on_what_their_operands_err_by() -> None:
    assert told(SYSTEM.add(A, B)) == [(1.0, 0.75 + UNIT * 1.75 + LEAST)] and told(SYSTEM.add(np.array([3.0]), np.array([4.0]))) == [(7.0, 0.0)]
    error = 3 * 0.25 + 2 * 0.5 + 0.125
    assert told(SYSTEM.multiply(A, B)) == [(-6.0, error + UNIT * (6 + error) + LEAST)]
    assert told(SYSTEM.multiply(np.array([3.0]), np.array([4.0]))) == [(12.0, 0.0)]
    large = np.array([float(WHOLE)])
    assert told(SYSTEM.multiply(large, large)) == [(2.0**40, UNIT * 2.0**40 + LEAST)]
    assert told(SYSTEM.multiply(np.array([0.0]), np.array([complex(1.5, inf)])))[0][1] == LEAST, "0 times an error without a bound is none"
    error = (0.5 + 1.5 * 0.25) / 1.75
    assert told(SYSTEM.divide(A, B)) == [(-1.5, error + 2 * UNIT * (1.5 + error) + LEAST)]
    assert told(SYSTEM.divide(A, np.array([1 + 1j])))[0][1] == inf, "the divisor may be 0"


def test_reductions() -> None:
    given = np.array([[1 + 0.5j, -4 + 0.25j, 2 + 0j]])
    assert told(SYSTEM.reduce("max", given, (1,))) == [(2.0, 0.5)] and told(SYSTEM.reduce("min", given, (1,))) == [(-4.0, 0.5)]
    assert told(SYSTEM.reduce("sum", given, (1,))) == [(-1.0, 0.75 + 3 * (UNIT * 7.75 + LEAST))]
    assert told(Conditioned().reduce("sum", given, (1,))) == [(-1.0, 0.75 + UNIT * 7.75 + LEAST)]
    assert told(SYSTEM.reduce("max", np.array([1.0, 3.0]), (0,))) == [(3.0, 0.0)] and SYSTEM.reduce("sum", given, ()) is given


def test_no_order_of_additions_errs_by_more() -> None:
    terms = np.random.default_rng(0).normal(size=5).astype(np.float32)
    value, error = told(SYSTEM.reduce("sum", terms.astype(np.float64), (0,)))[0]
    for order in permutations(terms):
        total = np.float32(0)
        for term in order:
            total += term
        assert abs(float(total) - value) <= error < 1e-6


def test_nothing_is_known_beyond_single_precision() -> None:
    system = Conditioned()
    assert told(system.add(np.array([LARGEST + 0j]), np.array([LARGEST + 0j])))[0][1] == inf
    assert told(system.add(np.array([1.5 + 1j]), np.array([1.5 + LARGEST * 1j])))[0][1] == inf
    assert told(system.multiply(np.array([1.5 + 0j]), np.array([1.5 + 0j])))[0][1] < 1
