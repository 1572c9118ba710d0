"""Weights that are sums of few products: what is found computes what the weight does, and a weight that is none stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Scope, Tensor, reads
from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.passes.low_rank import LEAST_GAIN, ROUNDING, low_rank
from einnet.graph.passes.weight_structure import recover_structure
from einnet.graph.program import Node, Program

LETTERS = "ijkl"


def made(rng: np.random.Generator, shape: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...], rank: int) -> np.ndarray:
    """A weight that is, over those dimensions and for each place of the others, a sum of that many products, in float32."""
    letters = LETTERS[: len(shape)]
    batch = [n for n in range(len(shape)) if n not in (*rows, *columns)]
    left, right = ("".join(letters[n] for n in (*batch, *group)) for group in (rows, columns))
    extents = dict(zip(letters, shape))
    factors = [rng.standard_normal([*(extents[n] for n in names), rank]) for names in (left, right)]
    return np.asarray(np.einsum(f"{left}r,{right}r->{letters}", *factors)).astype(np.float32)


def sizes(values: np.ndarray) -> int:
    """Elements of the factors that are found; the weight is their product up to rounding."""
    found = low_rank(values)
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
    most = values.size / LEAST_GAIN / (batch * (high + wide))
    if rank <= most and values.size > 1:
        assert sizes(values) <= batch * rank * (high + wide)


@pytest.mark.parametrize(
    ("shape", "rows", "columns", "rank"),
    [
        ((96, 96), (0,), (1,), 20), ((3, 1, 15, 15), (2,), (3,), 2), ((40, 6, 7), (0,), (1, 2), 3),
        ((6, 7, 40), (0, 2), (1,), 2), ((8, 8, 3, 3), (0,), (1, 2, 3), 2), ((300, 200), (0,), (1,), 80),
    ],
    ids=["matrix", "filter", "two columns", "rows around", "four", "large rank"],
)  # fmt: skip
def test_which_dimensions_are_rows(shape: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...], rank: int) -> None:
    values = made(np.random.default_rng(1), shape, rows, columns, rank)
    found = low_rank(values)
    assert found is not None and (found.rows, found.columns) == (rows, columns) and found.left.shape[-1] == rank
    sizes(values)


@pytest.mark.parametrize("shape", [(64, 64), (8, 8, 3, 3), (3, 1, 15, 15), (2, 2), (5,), (1, 9, 1)])
def test_what_is_no_such_sum_stays(shape: tuple[int, ...]) -> None:
    assert low_rank(np.random.default_rng(0).standard_normal(shape).astype(np.float32)) is None


@pytest.mark.parametrize("place", [(0, 0), (31, 63), (17, 5)])
def test_one_element_that_differs_is_seen(place: tuple[int, int]) -> None:
    values = made(np.random.default_rng(3), (32, 64), (0,), (1,), 2)
    assert sizes(values) == 2 * 96
    values[place] += 1e-5 * np.abs(values).max()
    found = low_rank(values)
    assert found is None or found.left.shape[-1] == 3


def test_a_matrix_of_which_the_first_is_zero_is_not_forgotten() -> None:
    """The sample is taken of the first matrix: its rank is none, that of another decides."""
    values = np.random.default_rng(0).standard_normal((8, 20, 20)).astype(np.float32)
    values[0] = 0.0
    assert low_rank(values) is None
    values[1:] = made(np.random.default_rng(0), (7, 20, 20), (1,), (2,), 2)
    assert sizes(values) <= 8 * 2 * 40


def test_factors_that_cancel_are_refused() -> None:
    """A matrix that is small beside what it is a difference of is not computed from that: products stay of its own magnitude."""
    rng = np.random.default_rng(5)
    values = made(rng, (40, 40), (0,), (1,), 3)
    found = low_rank(values)
    assert found is not None
    assert (np.abs(found.left) @ np.abs(found.right)).max() <= 4 * np.abs(values).max()


def program(body: str, values: np.ndarray, x: tuple[int, ...]) -> Program:
    scope = parse(f"X : f32[{','.join(map(str, x))}]\nW : weight f32[{','.join(map(str, values.shape))}]\n{body}")
    read, written = Tensor("X", x), Tensor("Y", tuple(i.extent for i in scope.loops))
    return Program((read,), (Node(written, scope, ("n",)),), (("Y", "Y"),), {"W": values})


@pytest.mark.parametrize(("body", "opened"), [("L[m<4,n<32] Σ[k<24] X[m,k]*W[k,n]", True), ("L[k<24,n<32] X[k,n]*W[k,n]", False)])
def test_only_sums_over_a_dimension_read_the_factors(body: str, opened: bool) -> None:
    """An element-wise product gains nothing by a small rank."""
    values = made(np.random.default_rng(2), (24, 32), (0,), (1,), 3)
    before = program(body, values, (4, 24) if opened else (24, 32))
    after = recover_structure(before)
    bases = [r.base for r in reads(after.nodes[0].scope.body) if isinstance(r.base, Scope)]
    assert bool(bases) == opened and all(len(base.sums) == 1 for base in bases)
    given_x = {"X": np.random.default_rng(1).standard_normal(before.inputs[0].shape).astype(np.float32)}
    (a,), (b,) = interpret(before, given_x).values(), interpret(after, given_x).values()
    assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()
