"""Toom-Cook algorithms: exact over the rationals, and within their a-priori error bound in single precision."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from einnet.expr.algebra import growth, prove, toom_cook

SIZES = [(2, 3), (4, 3), (6, 3), (2, 5), (3, 2), (4, 4)]
UNIT = 2.0**-24


def direct(d: np.ndarray, g: np.ndarray, m: int) -> np.ndarray:
    """y[n, i] = Σ[r] d[n, i+r]·g[n, r]."""
    return np.stack([(d[:, i : i + g.shape[1]] * g).sum(1) for i in range(m)], axis=1)


@pytest.mark.parametrize(("m", "taps"), SIZES)
def test_it_is_exact(m: int, taps: int) -> None:
    f = toom_cook(m, taps)
    prove(f)
    assert f.products == m + taps - 1
    wrong = (f.G[0][0] + Fraction(1, 1000), *f.G[0][1:])
    with pytest.raises(ArithmeticError, match=rf"F\({m},{taps}\) fails"):
        prove(replace(f, G=(wrong, *f.G[1:])))


@pytest.mark.parametrize(("m", "taps"), SIZES)
def test_single_precision_errors_stay_within_the_bound(m: int, taps: int) -> None:
    """Each of three products of length n rounds at most n times (gamma_n), matrices and middle product once more: growth·(3n + 4)·u."""
    f = toom_cook(m, taps)
    random = np.random.default_rng(0)
    d, g = random.uniform(-1, 1, (4000, f.products)), random.uniform(-1, 1, (4000, taps))
    a, b, k = (np.array(matrix, dtype=np.float64).astype(np.float32) for matrix in (f.A, f.B, f.G))
    d32, g32 = d.astype(np.float32), g.astype(np.float32)
    got = ((d32 @ b.T) * (g32 @ k.T)) @ a.T
    assert got.dtype == np.float32
    error = float(np.abs(got - direct(d32.astype(np.float64), g32.astype(np.float64), m)).max())
    bound = growth(f) * (3 * f.products + 4) * UNIT
    assert 0 < error <= bound
    assert bound < 1e-2
