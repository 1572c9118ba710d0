"""Weights that are sums of few products: what is found computes what the weight does, and a weight that is none stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Scope, Tensor, reads
from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.passes.low_rank import Walk, low_rank, sampled_rank, share
from einnet.graph.passes.table_factors import ROUNDING
from einnet.graph.passes.table_samples import LEAST_GAIN
from einnet.graph.passes.weight_structure import absorbed, recover_structure
from einnet.graph.program import Node, Program

LETTERS = "ijklm"


def made(rng: np.random.Generator, shape: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...], rank: int) -> np.ndarray:
    """A weight that is, over those dimensions and for each place of the others, a sum of that many products, in float32."""
    letters = LETTERS[: len(shape)]
    batch = [n for n in range(len(shape)) if n not in (*rows, *columns)]
    left, right = ("".join(letters[n] for n in (*batch, *group)) for group in (rows, columns))
    extents = dict(zip(letters, shape))
    factors = [rng.standard_normal([*(extents[n] for n in names), rank]) for names in (left, right)]
    return np.asarray(np.einsum(f"{left}r,{right}r->{letters}", *factors)).astype(np.float32)


def walked(letters: str) -> list[Walk]:
    """Loops `l`, sums `s`, windows `w`."""
    return [{"l": "loop", "s": "sum", "w": "window"}[letter] for letter in letters]  # type: ignore[misc]


def sizes(values: np.ndarray, letters: str) -> int:
    """Elements of the factors that are found; the weight is their product up to rounding."""
    found = low_rank(values, walked(letters))
    assert found is not None
    batch = [n for n in range(values.ndim) if values.shape[n] > 1 and n not in (*found.rows, *found.columns)]
    order = (*batch, *found.rows, *found.columns)
    matrices = values.squeeze().transpose([sorted(order).index(n) for n in order]).reshape(len(found.left), found.left.shape[1], -1)
    error = np.abs(found.left.astype(np.float64) @ found.right.astype(np.float64) - matrices).max(axis=(1, 2))
    assert (error <= ROUNDING * np.abs(matrices).max(axis=(1, 2))).all()
    return found.left.size + found.right.size


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(9, 30), st.integers(9, 30), st.integers(1, 3), st.integers(0, 2**32 - 1), st.permutations(range(3)))
def test_what_is_made_of_few_products_is_found(batch: int, high: int, wide: int, rank: int, seed: int, order: list[int]) -> None:
    values = made(np.random.default_rng(seed), (batch, high, wide), (1,), (2,), rank).transpose(order)
    letters = "".join("lsl"[n] for n in order)
    if rank * (high + wide) * LEAST_GAIN <= high * wide:
        assert sizes(values, letters) <= batch * rank * (high + wide)


@pytest.mark.parametrize(
    ("shape", "letters", "rows", "columns", "rank"),
    [
        ((96, 96), "sl", (0,), (1,), 20), ((3, 1, 15, 15), "lsww", (2,), (3,), 2), ((40, 6, 7), "sll", (0,), (1, 2), 3),
        ((6, 7, 40), "sls", (0, 2), (1,), 2), ((8, 8, 3, 3), "lsww", (0,), (1, 2, 3), 2), ((300, 200), "ls", (0,), (1,), 80),
        ((64, 64, 3, 3), "lsww", (0,), (1, 2, 3), 16), ((32, 24, 3, 3, 3), "lswww", (0,), (1, 2, 3, 4), 8),
    ],
    ids=["matrix", "filter", "two columns", "rows around", "four", "large rank", "filters", "filters in space"],
)  # fmt: skip
def test_which_dimensions_are_rows(shape: tuple[int, ...], letters: str, rows: tuple[int, ...], columns: tuple[int, ...], rank: int) -> None:
    values = made(np.random.default_rng(1), shape, rows, columns, rank)
    found = low_rank(values, walked(letters))
    assert found is not None and (found.rows, found.columns) == (rows, columns) and found.left.shape[-1] == rank
    sizes(values, letters)


@pytest.mark.parametrize(
    ("shape", "letters"), [((64, 64), "sl"), ((8, 8, 3, 3), "lsww"), ((3, 1, 15, 15), "lsww"), ((2, 2), "sl"), ((5,), "s"), ((1, 9, 1), "lsl")]
)
def test_what_is_no_such_sum_stays(shape: tuple[int, ...], letters: str) -> None:
    assert low_rank(np.random.default_rng(0).standard_normal(shape).astype(np.float32), walked(letters)) is None


@pytest.mark.parametrize("letters", ["ll", "ss"])
def test_what_saves_no_multiplications_stays(letters: str) -> None:
    """An element-wise product, and one that is summed over both."""
    assert low_rank(made(np.random.default_rng(0), (40, 40), (0,), (1,), 2), walked(letters)) is None


def test_what_both_sums_take_is_counted() -> None:
    """Two terms of a filter 15x15 are 60 of 225 multiplications; a product 300x200 of rank one is 500 of 60,000; pairs of channels gain nothing."""
    assert 2 * share((15, 15), walked("ww"), (0,), (1,)) == pytest.approx(60 / 225)
    assert share((300, 200), walked("sl"), (0,), (1,)) == share((300, 200), walked("sl"), (1,), (0,)) == pytest.approx(500 / 60_000)
    assert 2 * share((2, 64, 2, 64), walked("lssl"), (0, 2), (1, 3)) > 1


@pytest.mark.parametrize("place", [(0, 0), (31, 63), (17, 5)])
def test_one_element_that_differs_is_seen(place: tuple[int, int]) -> None:
    values = made(np.random.default_rng(3), (32, 64), (0,), (1,), 2)
    assert sizes(values, "sl") == 2 * 96
    values[place] += 1e-5 * np.abs(values).max()
    found = low_rank(values, walked("sl"))
    assert found is None or found.left.shape[-1] == 3


def test_a_matrix_of_which_the_first_is_zero_is_not_forgotten() -> None:
    """The sample is taken of the first matrix: its rank is none, that of another decides."""
    values = np.random.default_rng(0).standard_normal((8, 20, 20)).astype(np.float32)
    values[0] = 0.0
    assert low_rank(values, walked("lsl")) is None
    values[1:] = made(np.random.default_rng(0), (7, 20, 20), (1,), (2,), 2)
    assert sizes(values, "lsl") <= 8 * 2 * 40


def test_a_large_matrix_is_judged_by_combinations_of_its_columns() -> None:
    values = made(np.random.default_rng(7), (1000, 700), (0,), (1,), 9)
    assert sizes(values, "sl") == 9 * 1700


def test_products_that_cancel_are_refused() -> None:
    """Of a table of signs every term is as large as the sum: 64 of them round more than a product with the table does."""
    signs = np.ones((1, 1))
    for _ in range(6):
        signs = np.kron(signs, [[1, 1], [1, -1]])
    values = np.kron(signs, np.ones((8, 8))).astype(np.float32)
    assert np.linalg.matrix_rank(values) == 64 and low_rank(values, walked("sl")) is None


def test_an_element_beyond_rounding_is_seen_where_no_singular_value_tells_it() -> None:
    values = made(np.random.default_rng(3), (512, 512), (0,), (1,), 3)
    assert sizes(values, "sl") == 3 * 1024
    values[17, 5] += 2e-6 * np.abs(values).max()
    assert low_rank(values, walked("sl")) is None


def test_a_sample_tells_what_has_no_small_rank() -> None:
    values = np.random.default_rng(0).standard_normal((5, 64, 7, 64)).astype(np.float32)
    assert sampled_rank(values, (1,), (2, 3), 20) == 20


def test_a_factor_without_a_dimension_of_its_own_is_taken_in() -> None:
    one, two, three = np.full((2, 1, 1), 2.0), np.full((2, 3, 1), 3.0), np.full((1, 3, 4), 5.0)
    found = absorbed({(0,): one, (0, 1): two, (1, 2): three})
    assert {dims: float(part.flat[0]) for dims, part in found.items()} == {(0, 1): 6.0, (1, 2): 5.0}


def program(body: str, values: np.ndarray, x: tuple[int, ...]) -> Program:
    scope = parse(f"X : f32[{','.join(map(str, x))}]\nW : weight f32[{','.join(map(str, values.shape))}]\n{body}")
    read, written = Tensor("X", x), Tensor("Y", tuple(i.extent for i in scope.loops))
    return Program((read,), (Node(written, scope, ("n",)),), (("Y", "Y"),), {"W": values})


@pytest.mark.parametrize(
    ("body", "x", "opened"),
    [
        ("L[m<4,n<32] Σ[k<24] X[m,k]*W[k,n]", (4, 24), True), ("L[k<24,n<32] X[k,n]*W[k,n]", (24, 32), False),
        ("L[h<9,w<5] Σ[r<24,s<32] X[h+r,w+s]*W[r,s]", (32, 36), True), ("L[m<4] Σ[k<24,n<32] X[m,k,n]*W[k,n]", (4, 24, 32), False),
    ],
    ids=["product", "each element", "filter", "both summed"],
)  # fmt: skip
def test_only_sums_that_gain_read_the_factors(body: str, x: tuple[int, ...], opened: bool) -> None:
    values = made(np.random.default_rng(2), (24, 32), (0,), (1,), 3)
    before = program(body, values, x)
    after = recover_structure(before)
    bases = [r.base for r in reads(after.nodes[0].scope.body) if isinstance(r.base, Scope)]
    assert bool(bases) == opened and all(len(base.sums) == 1 for base in bases)
    given_x = {"X": np.random.default_rng(1).standard_normal(before.inputs[0].shape).astype(np.float32)}
    (a,), (b,) = interpret(before, given_x).values(), interpret(after, given_x).values()
    assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()
