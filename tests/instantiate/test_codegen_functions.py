"""Scalar functions in generated code: accuracy over wide ranges, limits, and vectors against scalars."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.rounding import LEAST
from einnet.instantiate.codegen import build, lower
from tests.instantiate.compiled import call, dense

INF = math.inf
SIZES = np.logspace(-40, 38, 3000)
WIDE = np.concatenate([SIZES, -SIZES, np.linspace(-110, 110, 5001), np.linspace(-5, 5, 5001), [0.0, INF, -INF]])
POSITIVE = np.concatenate([np.logspace(-44, 38.5, 9000), np.linspace(0.3, 3, 5001), [0.0, INF]])

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
MIDDLES = (HALVES[:0x7C00] + HALVES[1:0x7C01])[:-1] / 2
BESIDE = np.nextafter(MIDDLES.astype(np.float32), 1)
TIES = np.concatenate([HALVES[np.isfinite(HALVES)], MIDDLES, BESIDE, -MIDDLES, [65519.99, 65520.0, 3.3961776e38]])
"""All numbers of float16, what lies in the middle of two or beside it, and where it ends."""

EXACT: dict[str, tuple[Callable[[float], float], np.ndarray]] = {
    "relu": (lambda x: max(x, 0.0), WIDE),
    "exp": (lambda x: math.exp(x) if x < 700 else INF, WIDE),
    "tanh": (math.tanh, WIDE),
    "asinh": (math.asinh, WIDE),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, WIDE),
    "erf": (math.erf, WIDE),
    "softplus": (lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))), WIDE),
    "log": (lambda x: math.log(x) if x > 0 else -INF, POSITIVE),
    "sqrt": (math.sqrt, POSITIVE),
    "abs": (abs, WIDE),
    "sign": (lambda x: float((x > 0) - (x < 0)), WIDE),
    "floor": (lambda x: float(np.floor(x)), WIDE),
    "ceil": (lambda x: float(np.ceil(x)), WIDE),
    "round": (lambda x: float(np.rint(x)), WIDE),
    "not": (lambda x: float(x == 0), WIDE),
    "isnan": (lambda x: 0.0, WIDE),
    "atan": (math.atan, WIDE),
    "sin": (math.sin, np.linspace(-50, 50, 5001)),
    "cos": (math.cos, np.linspace(-50, 50, 5001)),
    "as_f16": (lambda x: float(np.float16(x)), np.concatenate([WIDE, TIES])),
    "as_bf16": (lambda x: float(ml_dtypes.bfloat16(x)), np.concatenate([WIDE, TIES])),
}
TOLERANCE = 1e-6
ABSOLUTE = {"sigmoid": 1.2e-38, "exp": 1.67e-38, "softplus": 1.67e-38, "sin": 1e-6, "cos": 1e-6}
"""Below the least normal number a sigmoid is 0, an exponential below its square root of 2 times; sines are near 0 at multiples of pi."""


def test_every_function_has_a_form() -> None:
    assert EXACT.keys() | {"max", "min", "pow", "less", "equal", "choose"} == FUNCTIONS.keys()


@pytest.mark.parametrize("name", EXACT)
def test_accuracy(name: str) -> None:
    function, points = EXACT[name]
    with np.errstate(over="ignore"):
        x = np.append(points, [math.nan] * 9).astype(np.float32)
        of_nan = {"not": 0.0, "isnan": 1.0}.get(name, math.nan)
        expected = np.array([of_nan if math.isnan(v) else function(float(v)) for v in x]).astype(np.float32)
    op = dense(f"X : f32[{len(x)}]\nL[i<{len(x)}] {name}(X[i])")
    kernel = lower(op, "function")
    got = call(build([kernel]), kernel, op, {"X": x})
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=ABSOLUTE.get(name, 1.5e-45))


def test_what_underflows_in_an_exponential_is_0_exactly() -> None:
    """What stands behind masks makes no numbers that a processor multiplies slowly. NaN stays; what is lost, the error analysis allows."""
    x = np.concatenate([np.linspace(-105, -86, 4000), [-1e4, -3.4e38, -math.inf, math.nan]]).astype(np.float32)
    op = dense(f"X : f32[{len(x)}]\nL[i<{len(x)}] exp(X[i])")
    kernel = lower(op, "exponential")
    got = call(build([kernel]), kernel, op, {"X": x})
    assert np.isnan(got[-1]) and (got[-4:-1] == 0).all()
    exact, found = np.exp(x[:-1].astype(np.float64)), got[:-1]
    assert ((found == 0) | (found >= np.finfo(np.float32).tiny)).all()
    assert exact[found == 0].max() < LEAST and exact[found > 0].min() < 1.67e-38
    np.testing.assert_allclose(found[found > 0], exact[found > 0], rtol=3e-7)


def test_an_exponential_around_the_ends_of_the_normal_numbers() -> None:
    """The last finite values and infinity, both sides of 0, the last numbers before 0 and those below, and NaN beside all of them."""
    ends = [88.0, 88.7228, 88.72283, 88.72285, 89.0, 1e9, 3e38, 0.0, -0.0, 1e-45, -1e-45, 1e-8, -1e-8, -86.9, -87.1, -87.6, -95.0, -200.0]
    x = np.array([value for end in ends for value in (end, math.nan)], np.float32)
    op = dense(f"X : f32[{len(x)}]\nL[i<{len(x)}] exp(X[i])")
    kernel = lower(op, "exponential")
    with np.errstate(over="ignore"):
        exact = np.exp(x.astype(np.float64)).astype(np.float32)
    expected = np.where(x < -87, np.float32(0), exact)
    np.testing.assert_allclose(call(build([kernel]), kernel, op, {"X": x}), expected, rtol=3e-7)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_waves_far_from_0(name: str) -> None:
    """Every quarter of a turn, both signs, and arguments of many turns; no number where the argument is infinite, and no value beyond 1."""
    far = np.concatenate([np.arange(-64, 65) * math.pi / 2, np.linspace(-1e3, 1e3, 4001), np.logspace(-6, 8, 3001), -np.logspace(-6, 8, 3001)])
    x = np.concatenate([far, [1e12, -3e30, 0.0, -0.0, INF, -INF, math.nan]]).astype(np.float32)
    op = dense(f"X : f32[{len(x)}]\nL[i<{len(x)}] {name}(X[i])")
    kernel = lower(op, "wave")
    got = call(build([kernel]), kernel, op, {"X": x})
    exact = getattr(np, name)(x[:-3].astype(np.float64))
    np.testing.assert_allclose(got[: len(far)], exact[: len(far)], rtol=0, atol=2e-7)
    assert np.isnan(got[-3:]).all() and (np.abs(got[:-3]) <= 1).all()


def test_log_of_a_negative_number() -> None:
    op = dense("X : f32[16]\nL[i<16] log(X[i])")
    kernel = lower(op, "function")
    assert np.isnan(call(build([kernel]), kernel, op, {"X": np.full(16, -2, dtype=np.float32)})).all()


@pytest.mark.parametrize("exponent", ["2", "3", "0.5", "1", "-1", "1.7", "-2.3", "X[i]"])
def test_power(exponent: str) -> None:
    x = np.linspace(0.1, 5, 100, dtype=np.float32)
    op = dense(f"X : f32[100]\nL[i<100] pow(X[i],{exponent})")
    kernel = lower(op, "power")
    expected = x.astype(np.float64) ** (x if "X" in exponent else float(exponent))
    np.testing.assert_allclose(call(build([kernel]), kernel, op, {"X": x}), expected, rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "sigmoid", "softplus", "asinh", "atan", "sin", "cos"])
def test_scalars_and_vectors_agree(name: str) -> None:
    x = np.linspace(0.01, 9, 32, dtype=np.float32)
    vector, scalar = dense(f"X : f32[32]\nL[i<32] {name}(X[i])"), dense(f"X : f32[32]\nL[i<2] {name}(X[15*i])")
    kernels = [lower(vector, "vector"), lower(scalar, "scalar")]
    module = build(kernels)
    wide, narrow = (call(module, k, op, {"X": x}) for k, op in zip(kernels, (vector, scalar), strict=True))
    np.testing.assert_allclose(narrow, wide[[0, 15]], rtol=TOLERANCE)


@pytest.mark.parametrize(("body", "function"), [
    ("max(X[i],Y[i])", np.maximum), ("min(X[i],Y[i])", np.minimum), ("less(X[i],Y[i])", np.less), ("equal(X[i],Y[i])", np.equal),
    ("X[i]/(3+Y[i])", lambda x, y: x / (3 + y)),
])  # fmt: skip
def test_two_arguments(body: str, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-2, 3, 50).astype(np.float32) for _ in range(2))
    op = dense(f"X : f32[50]\nY : f32[50]\nL[i<50] {body}")
    kernel = lower(op, "function")
    np.testing.assert_allclose(call(build([kernel]), kernel, op, {"X": x, "Y": y}), function(x, y).astype(np.float32), rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_greatest_of_a_row_with_nan_is_nan(name: str) -> None:
    """Wherever it stands: along the lanes of a vector, across them, and in what is left over."""
    x = np.tile(np.linspace(-2, 2, 41, dtype=np.float32), (41, 1))
    x[np.arange(41), np.arange(41)] = np.nan
    x[40, 40] = -INF if name == "max" else INF
    rows, columns = dense(f"X : f32[41,41]\nL[m<41] {name}[k<41] X[m,k]"), dense(f"X : f32[41,41]\nL[m<41] {name}[k<41] X[k,m]")
    kernels = [lower(rows, "rows"), lower(columns, "columns")]
    module = build(kernels)
    for kernel, op in zip(kernels, (rows, columns), strict=True):
        got = call(module, kernel, op, {"X": x})
        assert np.isnan(got[:40]).all()
        assert np.isfinite(got[40])


@pytest.mark.parametrize("body", ["max(X[i],Y[i])", "min(X[i],Y[i])", "max(X[i],1/2)", "min(1/2,X[i])", "exp(X[i])*relu(Y[i])"])
@pytest.mark.parametrize("extent", [48, 3])
def test_nan_in_either_operand(body: str, extent: int) -> None:
    x, y = np.linspace(-1, 1, extent, dtype=np.float32), np.linspace(1, -1, extent, dtype=np.float32)
    x[0], y[1] = np.nan, np.nan
    op = dense(f"X : f32[{extent}]\nY : f32[{extent}]\nL[i<{extent}] {body}" if "Y" in body else f"X : f32[{extent}]\nL[i<{extent}] {body}")
    kernel = lower(op, "function")
    got = call(build([kernel]), kernel, op, {"X": x, "Y": y})
    wanted = np.isnan(x) | (np.isnan(y) if "Y" in body else False)
    np.testing.assert_array_equal(np.isnan(got), wanted)


@pytest.mark.parametrize("extent", [48, 3])
def test_what_is_not_chosen_may_be_nan(extent: int) -> None:
    x, y = np.linspace(-1, 1, extent, dtype=np.float32), np.linspace(1, -1, extent, dtype=np.float32)
    x[0], y[1] = np.nan, np.nan
    op = dense(f"X : f32[{extent}]\nY : f32[{extent}]\nL[i<{extent}] choose(less(X[i],Y[i]), X[i], choose(isnan(X[i]), 7, Y[i]))")
    kernel = lower(op, "choice")
    with np.errstate(all="ignore"):
        wanted = np.where(x < y, x, np.where(np.isnan(x), np.float32(7), y))
    np.testing.assert_array_equal(call(build([kernel]), kernel, op, {"X": x, "Y": y}), wanted)
