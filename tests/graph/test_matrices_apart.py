"""Tables of many places that are one small matrix for all of them: what is found is the table, what is none is left, and matrices are simple."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.derivation.matrix_steps import has_matrix, matrix_steps
from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.normalise import normalise
from einnet.derivation.rules.tables.stages import stages
from einnet.expr.nodes import tensors, walk
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.graph.passes.matrices_apart import Apart, is_short, matrix_apart, rounded, steps, whole
from einnet.graph.passes.matrices_apart import before as in_front
from einnet.graph.passes.prepare import prepare
from einnet.graph.passes.table_digits import without_noise
from einnet.instantiate.kernels import EOperator, dense_view
from einnet.search.choosing.trials import counted_doubt
from einnet.search.work import flops
from tests.graph.cases import build, node, values

PLACES = 24


def pairs(z: np.ndarray) -> np.ndarray:
    """Complex numbers as matrices [..., 2, 2] on pairs."""
    return np.stack([np.stack([z.real, -z.imag], -1), np.stack([z.imag, z.real], -1)], -2)


def waves(size: int) -> np.ndarray:
    """The transform of a few complex numbers, [k,c,n,d]."""
    k = np.arange(size)
    return pairs(np.exp(-2j * np.pi * np.outer(k, k) / size)).transpose(0, 2, 1, 3)


def turned(size: int, places: int = PLACES) -> np.ndarray:
    """Turns T[g,n,e,d] of pairs by an angle for each place."""
    return pairs(np.exp(-2j * np.pi * np.outer(np.arange(places), np.arange(size)) / (places * size)))


def before(size: int) -> np.ndarray:
    return np.einsum("kcne,gned->gkcnd", waves(size), turned(size))


def behind(size: int) -> np.ndarray:
    return np.einsum("gkce,kend->gkcnd", turned(size), waves(size))


def found_in(table: np.ndarray, **read: np.ndarray) -> Apart | None:
    table = table.astype(np.float32)
    return matrix_apart(table, 1e-6 * float(np.abs(table).max()), **read)


WINDOW = np.hanning(PLACES * 5).reshape(5, PLACES).T
TABLES = {
    **{f"turned before {size}": before(size) for size in (2, 3, 4, 5, 7, 8)},
    **{f"turned behind {size}": behind(size) for size in (2, 3, 4, 5, 7, 8)},
    "real numbers in": behind(5)[..., :1], "windowed": behind(5)[..., :1] * WINDOW[:, None, None, :, None],
    "scaled in every column": behind(4) * values((PLACES, 1, 1, 4, 1), 3, 0.5, 1.5),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_what_is_found_is_the_table(name: str) -> None:
    found = found_in(TABLES[name])
    assert found is not None
    np.testing.assert_allclose(whole(found), TABLES[name], atol=1e-6 * np.abs(TABLES[name]).max())
    assert steps(found.matrix) + found.factor[0].size < TABLES[name][0].size


@pytest.mark.parametrize(("size", "most"), [(2, 4), (4, 16), (8, 52), (5, 32)])
def test_matrices_are_as_simple_as_can_be(size: int, most: int) -> None:
    """Additions and products of the transform of a few complex numbers, as the literature has them for 2, 4 and 8; signs and zeros are exact."""
    for table in (before(size), behind(size)):
        found = found_in(table)
        assert found is not None and steps(found.matrix) <= most
        held = found.matrix[np.abs(np.abs(found.matrix) - 0.5) > 0.49]
        assert set(np.unique(held)) <= {-1.0, 0.0, 1.0} or size == 5


def test_rows_that_nobody_reads_may_be_anything() -> None:
    """Half a spectrum: the last row is read at the first place alone, and 0 at others."""
    table = before(8)[:, :5].copy()
    table[1:, 4] = 0
    rows = np.ones((PLACES, 5), bool)
    rows[1:, 4] = False
    assert found_in(table) is None
    found = found_in(table, rows=rows)
    assert found is not None
    np.testing.assert_allclose(whole(found)[rows], table[rows], atol=1e-6)


def test_columns_that_nobody_reads_may_be_anything() -> None:
    table = behind(8)[:, :, :, :5].copy()
    table[1:, :, :, 4] = 0
    columns = np.ones((PLACES, 5), bool)
    columns[1:, 4] = False
    found = found_in(table, columns=columns)
    assert found is not None and found.scale is None
    np.testing.assert_allclose(whole(found).transpose(0, 3, 1, 2, 4)[columns], table.transpose(0, 3, 1, 2, 4)[columns], atol=1e-6)


@pytest.mark.parametrize("name", ["random", "one wrong element", "one place", "no numbers", "zeros", "long"])
def test_other_tables_are_left(name: str) -> None:
    wrong = before(4)
    wrong[7, 2, 1, 3, 0] += 1e-3
    missing = before(4)
    missing[3, 0, 0, 0, 0] = np.inf
    cases = {
        "random": values((PLACES, 4, 2, 4, 2)), "one wrong element": wrong, "one place": before(4)[:1], "no numbers": missing,
        "zeros": np.zeros((PLACES, 4, 2, 4, 2)), "long": before(9),
    }  # fmt: skip
    assert found_in(cases[name]) is None


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.integers(2, 6), st.integers(1, 8), st.integers(1, 2), st.integers(1, 8), st.integers(1, 2), st.integers(0, 1 << 30))
def test_random_tables_have_no_matrix(g: int, k: int, c: int, n: int, d: int, seed: int) -> None:
    found = found_in(np.random.default_rng(seed).standard_normal((g, k, c, n, d)))
    assert found is None or np.abs(whole(found)).size < 64


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.integers(2, 6), st.integers(2, 8), st.integers(2, 8), st.integers(0, 1 << 30))
def test_matrices_of_small_numbers_are_found_again(g: int, k: int, n: int, seed: int) -> None:
    """A matrix of signs between numbers for each place is found wherever that takes fewer steps."""
    rng = np.random.default_rng(seed)
    matrix, factor = rng.choice([-1.0, 1.0], (k, 1, n, 1)), rng.uniform(0.5, 1.5, (g, n, 1, 2))
    table = np.einsum("kcne,gned->gkcnd", matrix, factor)
    found = found_in(table)
    assert found is not None or 1.1 * (steps(matrix) + factor[0].size) > table[0].size - k * n
    assert found is None or np.abs(whole(found) - table).max() <= 1e-6 * np.abs(table).max()


def test_rounding_takes_one_number_for_those_that_differ_by_rounding() -> None:
    half = np.float64(np.float32(np.sqrt(0.5)))
    given_matrix = np.array([1 - 6e-8, -1 + 6e-8, 3e-8, half, -half + 6e-8, 0.5 + 1e-7, 0.3, 0.30001])
    made = rounded(given_matrix)
    assert list(made[[0, 1, 2, 5]]) == [1.0, -1.0, 0.0, 0.5] and made[3] == -made[4] and made[6] != made[7]
    np.testing.assert_allclose(made, given_matrix, atol=3e-7)


def test_numbers_that_are_nearly_alike_are_told_apart_where_it_matters() -> None:
    """Elements 2.5e-6 apart are no rounding of one number where the table has to be met to 1e-6."""
    rng = np.random.default_rng(0)
    matrix = rng.choice([-1.0, 1.0], (8, 1, 8, 1)) * rng.choice([1.0, 1 + 2.5e-6], (8, 1, 8, 1))
    table = np.einsum("kcne,gned->gkcnd", matrix, rng.uniform(0.5, 1.5, (PLACES, 8, 1, 2)))
    found = found_in(table)
    assert found is None or np.abs(whole(found) - table).max() <= 1e-6 * np.abs(table).max()


def test_tables_are_the_same_whatever_order_sums_are_added_in() -> None:
    """Another processor rounds the last bits of a decomposition otherwise: what is stored is compared with what it computes, bit by bit."""
    rng = np.random.default_rng(0)
    for size in (4, 5, 8):
        table = before(size).astype(np.float32).astype(np.float64)
        rows, columns = np.ones((PLACES, size), bool), np.ones((PLACES, size), bool)
        noise = 1 + rng.choice([-2e-15, 2e-15], table.shape)
        exact, other = (next(in_front(given_table, 1e-6, rows, columns)) for given_table in (table, table * noise))
        np.testing.assert_array_equal(exact.matrix.astype(np.float32), other.matrix.astype(np.float32))
        np.testing.assert_array_equal(exact.factor.astype(np.float32), other.factor.astype(np.float32))
    held = np.array([1.0, 1e-17, -3e-18, 0.5])
    assert list(without_noise(held)) == [1.0, 0.0, 0.0, 0.5] and not np.signbit(without_noise(held)).any()


def test_short_tables_are_matrices_themselves() -> None:
    assert is_short(waves(8)[None]) and not is_short(values((1, 8, 2, 8, 2))) and not is_short(waves(9)[None])


def test_a_transform_by_stages_is_a_few_additions_and_a_turn_for_each() -> None:
    """Fourier's of 512 complex numbers: textbooks have 5 n log n operations where n is a power of two."""
    program = prepare(load(build([node("DFT", ["x"])], {"x": values((1, 512, 2))})), tables=True)
    (scope,) = (n.scope for n in program.expression_nodes())
    made = [normalise(o.scope)[0] for o in stages(scope) if isinstance(o, Rewrite)]
    best = min(made, key=flops)
    assert flops(best) <= 6 * 512 * log2(512) and sum(map(has_matrix, walk(best))) >= 3
    held = [t for t in tensors(best).values() if t.values is not None]
    assert len({t.values for t in held}) == len(held)


def test_a_window_leaves_the_matrices_as_simple_as_they_are() -> None:
    """Its ends are 0 or nearly so: what waves are there is what they are elsewhere, and only a factor for each number is more."""
    windowed = np.fft.rfft(np.eye(512)) * np.hanning(512)[:, None]
    table = np.stack([windowed.real, windowed.imag], axis=-1).reshape(512, -1).astype(np.float32)
    program = prepare(load(build([node("MatMul", ["x", "w"])], {"x": values((1, 512))}, constants={"w": table})), tables=True)
    (scope,) = (n.scope for n in program.expression_nodes())
    best = min(flops(normalise(o.scope)[0]) for o in stages(scope) if isinstance(o, Rewrite))
    assert best <= 5 * 512 * log2(512)


def test_steps_of_a_matrix_count_what_its_rows_share() -> None:
    signs = "[1,1,1,1, 1,-1,1,-1, 1,1,-1,-1, 1,-1,-1,1]"
    declared = f"H : weight f32[4,4] = {signs}\nX : f32[4,32]\nY : f32[4,32]\n"
    (plain, scaled, half) = (
        parse(declared + text) for text in (
            "L[k<4,m<32] Σ[n<4] H[k,n]*X[n,m]", "L[k<4,m<32] Σ[n<4] H[k,n]*X[n,m]*Y[n,m]", "L[k<2,m<32] Σ[n<4] H[2*k,n]*X[n,m]",
        )
    )  # fmt: skip
    assert has_matrix(plain) and matrix_steps(plain) == 32 * 8 == flops(plain)
    assert matrix_steps(scaled) == 32 * (8 + 4) and not has_matrix(half)


def test_what_a_compiler_makes_of_shared_sums_is_doubted_more() -> None:
    """Predictions of straight-line code are further off than those of loops: a kernel by matrices is measured where a dense one is not."""
    signs = "H : weight f32[4,4] = [1,1,1,1, 1,-1,1,-1, 1,1,-1,-1, 1,-1,-1,1]\n"
    by_matrix = EOperator(parse(f"{signs}X : f32[4,32]\nL[k<4,m<32] Σ[n<4] H[k,n]*X[n,m]"), (), dense_view("out", (4, 32)))
    dense = EOperator(parse("H : weight f32[4,4]\nX : f32[4,32]\nL[k<4,m<32] Σ[n<4] H[k,n]*X[n,m]"), (), dense_view("out", (4, 32)))
    assert counted_doubt(by_matrix) > counted_doubt(dense) > 1
