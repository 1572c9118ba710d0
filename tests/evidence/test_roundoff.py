"""The bound of products whose factors are rounded, attacked: signs that alternate, sums that cancel, far ranges, the ends of an arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from einnet.evidence.error_limits import bounded_at
from einnet.evidence.exercise import compared
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32, Arithmetic

Array = np.ndarray
ROWS, TERMS, COLUMNS = 20, 24, 25
PRODUCT = parse(f"A : f32[{ROWS},{TERMS}]\nB : f32[{TERMS},{COLUMNS}]\nL[m<{ROWS},n<{COLUMNS}] Σ[k<{TERMS}] A[m,k]*B[k,n]")
POINTS = np.argwhere(np.ones((ROWS, COLUMNS), bool))
SEEDS = 10
"""Draws of each kind, of five hundred sums each: more than ten thousand for an arithmetic."""


def cut(x: Array, bits: int, nearest: bool = True) -> Array:
    """Float32 with so many bits fewer in its significand, rounded to nearest even or cut off."""
    whole = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    half = (np.uint64(1) << np.uint64(bits - 1)) - np.uint64(1) + ((whole >> np.uint64(bits)) & np.uint64(1))
    kept = ((whole + (half if nearest else np.uint64(0))) >> np.uint64(bits)) << np.uint64(bits)
    return kept.astype(np.uint32).view(np.float32)


ROUND: dict[str, Callable[[Array], Array]] = {
    "bf16": lambda x: cut(x, 16), "tf32": lambda x: cut(x, 13), "f16": lambda x: x.astype(np.float16).astype(np.float32), "f32": lambda x: x,
}  # fmt: skip


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def alternating(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Signs that alternate along what is summed, of numbers that are nearly equal."""
    signs = np.where(np.indices(shape).sum(0) % 2, -1.0, 1.0)
    return signs * (1 + rng.uniform(0, 1e-2, shape))


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Every number beside its negative, but for a few digits."""
    x = rng.standard_normal(shape)
    return np.where(np.indices(shape).sum(0) % 2, x, -np.roll(x, 1, -1)) * (1 + rng.uniform(-1e-3, 1e-3, shape))


def far(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Eight decades."""
    return rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape)


def halfway(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Just above the middle between two numbers of eight digits, where rounding moves most."""
    return (1 + (rng.integers(0, 4, shape) + 0.5001) / 128) * 2.0 ** rng.integers(-2, 2, shape)


def tiny(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """About the least normal number of float16."""
    return rng.standard_normal(shape) * 2.0**-14


DRAWS = [normal, alternating, cancelling, far, halfway, tiny]


def flushed(x: Array, arithmetic: Arithmetic) -> Array:
    """What is below the normal numbers as 0."""
    return np.where(np.abs(x) < arithmetic.least, np.float32(0), x)


def sums(a: Array, b: Array) -> list[Array]:
    """The product added up in float32: from the front, from the back, by halves, and in one go."""
    terms = (a[:, :, None] * b[None]).astype(np.float32)
    front, back = terms[:, 0], terms[:, -1]
    for k in range(1, TERMS):
        front, back = front + terms[:, k], back + terms[:, -1 - k]
    return [front, back, np.add.reduce(terms, axis=1), a @ b]


def shares(arithmetic: Arithmetic, rounding: Callable[[Array], Array], draw: Callable[..., Array], seed: int) -> Array:
    """Errors of all sums as shares of their bounds."""
    rng = np.random.default_rng(seed)
    a, b = (draw(rng, shape).astype(np.float32) for shape in ((ROWS, TERMS), (TERMS, COLUMNS)))
    value, error = bounded_at(PRODUCT, POINTS, {"A": a, "B": b}, {}, arithmetic=arithmetic)
    exact = (a.astype(np.float64) @ b.astype(np.float64)).reshape(-1)
    assert np.allclose(value, exact, rtol=1e-12, atol=1e-300)
    ra, rb = flushed(rounding(a), arithmetic), flushed(rounding(b), arithmetic)
    return np.array([np.abs(found.reshape(-1) - exact) / error for found in sums(ra, rb)])


@pytest.mark.parametrize("name", [n for n, a in ARITHMETICS.items() if not a.whole])
def test_no_sum_is_further_away_than_its_bound(name: str) -> None:
    """Nor is the bound empty: some sum comes within a third of it, and in bfloat16 one of numbers halfway between two within a half."""
    arithmetic, worst = ARITHMETICS[name], {}
    for draw in DRAWS:
        found = np.concatenate([shares(arithmetic, ROUND[name], draw, seed) for seed in range(SEEDS)])
        assert found.size >= 10_000
        assert found.max() <= 1, (draw.__name__, found.max())
        worst[draw.__name__] = found.max()
    assert max(worst.values()) > 0.3 or arithmetic == F32, worst
    if name == "bf16":
        assert worst["halfway"] > 0.5, worst


def test_what_rounds_more_than_it_says_is_found_out() -> None:
    """bfloat16 that is cut off, one digit fewer, or the arithmetic of another."""
    bf16 = ARITHMETICS["bf16"]
    for wrong in (lambda x: cut(x, 16, nearest=False), lambda x: cut(x, 17), lambda x: cut(cut(x, 16), 17)):
        found = [shares(bf16, wrong, draw, seed).max() for draw in DRAWS for seed in range(SEEDS)]
        assert max(found) > 1
    for name in ("f16", "tf32", "f32"):
        assert shares(ARITHMETICS[name], ROUND["bf16"], normal, 0).max() > 1


def test_beyond_the_largest_number_nothing_is_known() -> None:
    half = ARITHMETICS["f16"]
    a, b = np.ones((ROWS, TERMS), np.float32), np.ones((TERMS, COLUMNS), np.float32)
    a[3, 5] = 7e4
    _, error = bounded_at(PRODUCT, POINTS, {"A": a, "B": b}, {}, arithmetic=half)
    assert set(np.unique(np.argwhere(np.isinf(error.reshape(ROWS, COLUMNS)))[:, 0])) == {3}
    _, wide = bounded_at(PRODUCT, POINTS, {"A": a, "B": b}, {}, arithmetic=ARITHMETICS["bf16"])
    assert np.isfinite(wide).all()


def test_integers_are_compared_bit_for_bit_as_far_as_the_arithmetic_has_them() -> None:
    bf16 = ARITHMETICS["bf16"]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-256, 257, shape).astype(np.float32) for shape in ((ROWS, TERMS), (TERMS, COLUMNS)))
    right = a @ b
    assert compared(PRODUCT, {"A": a, "B": b}, right, 256, 0, bf16) == ("", True, right.size)
    off = right.copy()
    off[2, 3] += 1
    assert compared(PRODUCT, {"A": a, "B": b}, off, 256, 0, bf16)[0]
    problem, exact, _ = compared(PRODUCT, {"A": a, "B": b}, off, 257, 0, bf16)
    assert (problem, exact) == ("", False), "257 is no number of eight digits"


def looked_up(place: str, index: list[float]) -> tuple[Array, Array]:
    """Rows of a table at an index that is data, and how far they may be off."""
    scope = parse(f"I : f32[4]\nW : f32[7,3]\nL[m<4,n<3] Σ[v<7] choose(equal({place}, val(v)), W[v,n], 0)")
    held = {"I": np.array(index, np.float32), "W": np.arange(1.0, 22.0, dtype=np.float32).reshape(7, 3)}
    value, error = bounded_at(scope, np.argwhere(np.ones((4, 3), bool)), held, {})
    return value.reshape(4, 3), error.reshape(4, 3)


def test_where_a_whole_number_points_is_certain() -> None:
    """Whole numbers are added and multiplied without an error, so that a row of a table is no other one; of what was divided that is not known."""
    value, error = looked_up("I[m] + 7*less(I[m], 0)", [2, -1, 6, 9])
    assert value[:, 0].tolist() == [7.0, 19.0, 19.0, 0.0]
    assert (error <= 1e-6 * np.abs(value)).all()
    value, error = looked_up("3*(I[m] / 3)", [2, 0, 6, 2.4])
    assert value[:3, 0].tolist() == [7.0, 1.0, 19.0]
    assert (error[[0, 2]] >= value[[0, 2]]).all()


def test_numbers_that_are_not_whole_or_too_large_err() -> None:
    for one, other in ((0.5, 0.1), (2.0**23, 1.0), (1.0, 2.0**23)):
        scope = parse("A : f32[1]\nB : f32[1]\nL[i<1] A[i] + B[i]")
        held = {"A": np.array([one], np.float32), "B": np.array([other], np.float32)}
        _, error = bounded_at(scope, np.zeros((1, 1), np.int64), held, {})
        assert error[0] > 0


def test_where_an_index_is_uncertain_every_row_within_reach_counts() -> None:
    scope = parse("I : f32[1]\nW : f32[7]\nL[m<1] Σ[v<7] choose(equal(I[m], val(v)), W[v], 0)")
    held = {"I": np.array([3.0], np.float32), "W": 10.0 ** np.arange(7, dtype=np.float32)}
    for reach, least in ((0.4, 1e3), (1.2, 1.11e4)):
        value, error = bounded_at(scope, np.zeros((1, 1), np.int64), held, {"I": reach})
        assert value[0] == 1e3
        assert least <= error[0] <= 1.01 * least


def test_a_quotient_of_what_is_beyond_the_largest_number_may_be_infinite() -> None:
    """Single precision has no exp(90), but exp(90) / 200: which of the two a kernel gives hangs on how it computes."""
    scope = parse("A : f32[1]\nL[i<1] exp(A[i]) / 200")
    for x, infinite in ((90.0, True), (80.0, False)):
        for got in (np.inf, np.exp(np.float64(x)) / 200):
            problem, _, _ = compared(scope, {"A": np.array([x], np.float32)}, np.array([got], np.float32), 90, 0)
            assert bool(problem) == (not infinite and got == np.inf)
    masked = parse("A : f32[2]\nL[i<1] A[0] + exp(A[1])")
    value, error = bounded_at(masked, np.zeros((1, 1), np.int64), {"A": np.array([1, -np.inf], np.float32)}, {})
    assert (value[0], error[0] < 1e-5) == (1, True), "what is infinite is no number that is too large"


def test_where_an_expression_is_nan_a_kernel_may_leave_out_products_with_zeros() -> None:
    """0 * (1/0) + 1/0 is NaN, and infinite without the first term; a number where there are none of these is another matter."""
    scope = parse("A : f32[2]\nL[i<1] 0*(1 / A[0]) + 1 / A[1]")
    for held, got, right in (([0, 0], np.inf, True), ([0, 1], 1.0, True), ([0, 1], np.nan, True), ([1, 0], np.inf, True),
                             ([1, 2], np.inf, False), ([1, 2], np.nan, False), ([1, 2], 0.5, True)):  # fmt: skip
        problem, _, _ = compared(scope, {"A": np.array(held, np.float32)}, np.array([got], np.float32), 3, 0)
        assert bool(problem) != right, (held, got)
