"""Error statistics against errors that are known."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.evidence.comparison.error_statistics import error_statistics
from einnet.expr.notation.text import parse

PRODUCT = parse("A : f32[8,4096]\nB : f32[4096]\nL[i<8] Σ[k<4096] A[i,k]*B[k]")


def test_statistics_say_how_much_and_where() -> None:
    wanted = np.zeros((10, 100), np.float32)
    got = wanted.copy()
    got[3, :10] = 0.5
    got[7, 42] = -2.0
    (found,) = error_statistics({"y": got}, {"y": wanted}).values()
    assert found["where"] == [7, 42]
    assert (found["got"], found["wanted"]) == (-2.0, 0.0)
    assert found["mean_abs"] == pytest.approx(7 / 1000)
    assert found["percentiles"] == {"50": 0, "90": 0, "99": 0.5, "99.9": 2.0}


def test_what_is_not_finite_differs_by_infinity_or_not_at_all() -> None:
    odd = np.array([np.nan, np.inf, 1.0], np.float32)
    assert error_statistics({"y": odd}, {"y": odd})["y"]["percentiles"]["99.9"] == 0
    found = error_statistics({"y": np.array([np.nan, np.inf, np.nan], np.float32)}, {"y": odd})["y"]
    assert found["where"] == [2]
    assert found["mean_abs"] == np.inf
