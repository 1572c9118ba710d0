"""Toom-Cook algorithms: exact over the rationals, and within their a-priori error bound in single precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from einnet.expr.algebra import choices, evaluated, growth, prove, spread, spreads_of, toom_cook

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


def rounded_to(digits: int, x: np.ndarray) -> np.ndarray:
    """The nearest numbers of so many binary digits."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2.0**digits) / 2.0**digits, exponent)


def rounded_products(m: int, taps: int, points: Sequence[Fraction]) -> float:
    """The greatest mean square, over the outputs, of what the products of 8 digits err, over that of the direct sum."""
    f = evaluated(m, taps, tuple(points))
    random = np.random.default_rng(1)
    d, g = random.standard_normal((20_000, f.products)), random.standard_normal((20_000, taps))
    a, b, k = (np.array(matrix, dtype=np.float64) for matrix in (f.A, f.B, f.G))
    got = (rounded_to(8, d @ b.T) * rounded_to(8, g @ k.T)) @ a.T
    plain = np.stack([(rounded_to(8, d[:, i : i + taps]) * rounded_to(8, g)).sum(1) for i in range(m)], axis=1)
    wanted = direct(d, g, m)
    return float(np.mean((got - wanted) ** 2, axis=0).max() / np.mean((plain - wanted) ** 2, axis=0).mean())


@pytest.mark.parametrize(("m", "taps"), SIZES)
def test_the_spread_is_what_rounded_products_err(m: int, taps: int) -> None:
    points = min(choices(m + taps - 3), key=lambda points: spread(m, taps, points))
    assert rounded_products(m, taps, points) == pytest.approx(spread(m, taps, points), rel=0.15)


@pytest.mark.parametrize(("m", "taps"), [*SIZES, (1, 1), (1, 2)])
def test_the_spreads_of_many_sets_are_those_of_their_matrices(m: int, taps: int) -> None:
    sets = list(choices(m + taps - 3))[::7]
    for points, found in zip(sets, spreads_of(m, taps, sets), strict=True):
        f = evaluated(m, taps, points)
        norms = [sum(v * v for v in g) * sum(v * v for v in b) for g, b in zip(f.G, f.B, strict=True)]
        wanted = max(sum(v * v * n for v, n in zip(row, norms, strict=True)) for row in f.A) / taps
        assert found == pytest.approx(float(wanted))


def test_points_are_those_by_which_products_err_least() -> None:
    """By 0, 1, -1, 2, -2 and ∞ the products of F(4,3) err twice as much, and four times in two dimensions."""
    usual = tuple(map(Fraction, (0, 1, -1, 2, -2)))
    assert usual in set(choices(4))
    found = tuple(Fraction(row[1]) for row in zip(*toom_cook(4, 3).A, strict=True))[:-1]
    assert spread(4, 3, found) < 0.3 * spread(4, 3, usual)
    assert all(spread(4, 3, found) <= spread(4, 3, other) + 1e-6 for other in choices(4))
    assert rounded_products(4, 3, found) < 0.4 * rounded_products(4, 3, usual)
    assert growth(toom_cook(4, 3)) < 0.7 * growth(evaluated(4, 3, usual))


@pytest.mark.parametrize(("m", "taps"), [*SIZES, (3, 3), (6, 2), (2, 7)])
def test_transforms_of_data_have_constants_that_float32_has(m: int, taps: int) -> None:
    f = toom_cook(m, taps)
    assert all(Fraction(float(np.float32(float(v)))) == v for matrix in (f.A, f.B) for row in matrix for v in row)


def test_too_many_points_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no evaluation points for F\(40,3\)"):
        toom_cook(40, 3)
