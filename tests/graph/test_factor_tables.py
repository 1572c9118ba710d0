"""Tables that are products of smaller ones are found by their values: what is found is the table, and what is no such table is left."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import log2, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.derivation.checker.check import check_equal
from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.normalise import normalise
from einnet.derivation.rules.tables.stages import stages
from einnet.expr.index import Index
from einnet.expr.nodes import Read, Scope, Tensor, is_weight, map_reads, reads, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.operators.fourier import real_table, table
from einnet.graph.passes.factor_tables import factor_tables
from einnet.graph.passes.prepare import prepare
from einnet.graph.passes.table_factors import ROUNDING, factored, gains, whole
from einnet.graph.passes.table_samples import fewest_products, full, largest, promising
from einnet.graph.program import Program
from einnet.search.work import flops
from tests.graph.cases import build, node, reference, run_opaque, values


def fourier(length: int, bins: int, parts: int, inverse: bool = False) -> np.ndarray:
    return table(length, bins, length, parts, inverse).transpose(2, 3, 0, 1)


def plain(matrix: np.ndarray) -> np.ndarray:
    return matrix[:, None, :, None]


def cosines(length: int) -> np.ndarray:
    k, n = np.arange(length)[:, None], np.arange(length)[None, :]
    return plain(np.cos(np.pi * (2 * n + 1) * k / (2 * length)))


def signs(bits: int) -> np.ndarray:
    return plain(reduce(np.kron, [np.array([[1.0, 1.0], [1.0, -1.0]])] * bits))


WINDOW = np.hanning(120)[None, None, :, None]

TABLES = {
    "complex": fourier(60, 60, 2), "inverse": fourier(64, 64, 2, True), "one-sided": fourier(100, 51, 1), "an odd length": fourier(105, 53, 1),
    "window": fourier(120, 61, 1) * WINDOW, "other frequencies": fourier(128, 128, 2)[3:99],
    "real from half": real_table(65, 128, 128).transpose(2, 3, 0, 1), "an odd length from half": real_table(53, 105, 105).transpose(2, 3, 0, 1),
    "from half, a part of it": real_table(61, 90, 120).transpose(2, 3, 0, 1),
    "cosines alone": plain(np.cos(2 * np.pi * np.outer(np.arange(96), np.arange(96)) / 96)), "cosine transform": cosines(128), "signs": signs(6),
    "three factors": plain(reduce(np.kron, [values((4, 3)), values((3, 4), 1), values((4, 5), 2)])),
    "factors and a scale for each row": plain(np.kron(values((6, 6)), values((8, 8), 1)) * values((48, 1), 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_what_is_found_is_the_table(name: str) -> None:
    given_table = TABLES[name][None].astype(np.float32)
    found = factored(given_table)
    assert found is not None
    again = whole(found, given_table.shape)
    distance = np.abs(again - given_table).max() / np.abs(given_table).max()
    assert distance <= ROUNDING and found.error == pytest.approx(distance, abs=1e-12)
    assert found.first.size + found.second.size < 0.8 * given_table.size


@pytest.mark.parametrize("name", ["random", "a wrong element", "a prime length", "zeros", "not finite", "small"])
def test_what_is_no_product_is_left(name: str) -> None:
    wrong = fourier(64, 33, 1).copy()
    wrong[5, 0, 7, 0] += 1e-4
    bad = wrong.copy()
    bad[0, 0, 0, 0] = np.nan
    cases = {
        "random": plain(values((64, 64))), "a wrong element": wrong, "a prime length": fourier(61, 31, 1), "zeros": np.zeros((32, 1, 32, 1)),
        "not finite": bad, "small": signs(3),
    }  # fmt: skip
    assert factored(cases[name][None].astype(np.float32)) is None


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 48), st.integers(1, 9), st.integers(2, 48), st.integers(1, 4), st.integers(0, 1 << 30))
def test_random_tables_are_no_products(k: int, c: int, n: int, d: int, seed: int) -> None:
    """Of digits that do not divide a length some have few values beside them, and a small rank that is no gain (12 columns by 8): none is tried."""
    table = np.random.default_rng(seed).standard_normal((1, k, c, n, d))
    assert not list(promising(table, largest(table))) and factored(table) is None


@settings(deadline=None, max_examples=200)
@given(st.integers(2, 6), st.integers(1, 6), st.floats(-12, 3), st.floats(-9, 0), st.integers(0, 1 << 30))
def test_what_is_surely_of_full_rank_is(size: int, rank: int, noise: float, limit: float, seed: int) -> None:
    """By its determinant, beside a limit that what is left of it may be near: never one whose least singular value is below."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((20, size, rank)) @ rng.standard_normal((20, rank, size)) + 10**noise * rng.standard_normal((20, size, size))
    least = np.linalg.svd(made, compute_uv=False)[:, -1]
    found = full(made, 10**limit)
    assert (least[found] > 10**limit * (1 - 1e-6)).all()
    thin = np.diag([1e-4, *[1.0] * (size - 1)])[None]
    assert full(thin, 0.99e-4).all() and not full(thin, 1.01e-4).any()


@pytest.mark.parametrize("name", TABLES)
def test_what_is_found_is_a_gain(name: str) -> None:
    table = TABLES[name][None].astype(np.float32)
    found = factored(table)
    assert found is not None and gains(found, table)


def test_weights_of_convolutions_are_no_products() -> None:
    program = load(build([node("Conv", ["x", "w"], pads=[1] * 4)], {"x": values((1, 12, 8, 8))}, constants={"w": values((12, 12, 3, 3), 1)}))
    assert factor_tables(program) is program


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(2, 5), st.integers(2, 5)), min_size=3, max_size=3), st.integers(0, 99))
def test_products_of_kronecker(sizes: list[tuple[int, int]], seed: int) -> None:
    matrix = plain(reduce(np.kron, [values(s, seed + n, 0.5, 1.5) for n, s in enumerate(sizes)]))[None].astype(np.float32)
    found = factored(matrix)
    if found is not None:
        again = whole(found, matrix.shape)
        assert np.abs(again - matrix).max() <= ROUNDING * np.abs(matrix).max()
    assert found is not None or matrix.size < 256 or min(matrix.shape[1], matrix.shape[3]) < 12


def multiplied(matrix: np.ndarray, rows: int = 3) -> tuple[Program, dict[str, np.ndarray], np.ndarray]:
    """A model that multiplies by a matrix, prepared with tables; its input, and what ONNX Runtime gives."""
    x = {"x": values((rows, matrix.shape[0]))}
    model = build([node("MatMul", ["x", "w"])], x, constants={"w": matrix.astype(np.float32)})
    return prepare(load(model), tables=True), x, reference(model, x)["y"]


@pytest.mark.parametrize("name", ["cosines alone", "cosine transform", "signs", "three factors"])
def test_the_program_computes_what_it_did(name: str) -> None:
    program, x, wanted = multiplied(TABLES[name][:, 0, :, 0].T)
    (scope,) = (n.scope for n in program.expression_nodes())
    assert any(isinstance(r.base, Scope) for r in reads(scope.body))
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(wanted).max())


def test_errors_of_stages_do_not_add_up_beyond_what_is_said() -> None:
    """All stages together are as near to the table as one alone has to be."""
    x = {"x": values((1, 512, 2))}
    model = build([node("DFT", ["x"])], x)
    (before,), (after,) = ([n.scope for n in prepare(load(model), tables=t).expression_nodes()] for t in (False, True))
    program, with_tables = prepare(load(model)), prepare(load(model), tables=True)
    (weight,) = (r.base for r in reads(before.body) if isinstance(r.base, Tensor) and r.base.weight)
    (whole,) = (r.base for r in reads(after.body) if isinstance(r.base, Scope))
    assert any(isinstance(r.base, Scope) for r in reads(whole.body))
    held = program.weights[weight.name]
    again = evaluate(whole, {name: with_tables.weights[name] for name, t in tensors(whole).items() if t.values is None}, "float64")
    assert np.abs(again - held).max() <= ROUNDING * np.abs(held).max()


@pytest.mark.parametrize("matrix", [np.ones((64, 64)), np.kron(np.eye(8), np.ones((8, 8))), np.outer(values((64,)), values((64,), 1))])
def test_what_is_simpler_still_is_left_as_that(matrix: np.ndarray) -> None:
    """A number, a region and a product of vectors are known better than by digits."""
    program, x, wanted = multiplied(matrix)
    assert not any(ix.names() and not ix.is_affine for n in program.expression_nodes() for r in reads(n.scope.body) for ix in index_of(r))
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(wanted).max())


def index_of(r: Read) -> list[Index]:
    """The index functions of a read, and of those inside it."""
    inner = [ix for other in reads(r.base.body) for ix in index_of(other)] if isinstance(r.base, Scope) else []
    return [*r.index, *inner]


def test_without_leave_nothing_is_changed() -> None:
    model = build([node("MatMul", ["x", "w"])], {"x": values((3, 64))}, constants={"w": TABLES["signs"][:, 0, :, 0].astype(np.float32)})
    (scope,) = (n.scope for n in prepare(load(model)).expression_nodes())
    assert not any(isinstance(r.base, Scope) for r in reads(scope.body))
    assert factor_tables(load(model)).weights.keys() != load(model).weights.keys()


def fewest(scope: Scope, depth: int = 8) -> int:
    """The operations that are left when every scope that can be is done in stages, each step proven."""
    scope, _ = normalise(scope)
    best = flops(scope)
    if depth:
        for found in stages(scope):
            if isinstance(found, Rewrite):
                assert check_equal(scope, found.scope).method == "inline"
                best = min(best, sum(fewest(s, depth - 1) for s in parts(normalise(found.scope)[0])))
    return best


def parts(scope: Scope) -> list[Scope]:
    """A scope's stages, each reading a tensor in place of the stage before it."""
    found: list[Scope] = []

    def cut(s: Scope) -> Scope:
        def through(r: Read) -> Read:
            if not isinstance(r.base, Scope) or is_weight(r.base):
                return r
            found.append(cut(r.base))
            return Read(Tensor(f"stage{len(found)}", tuple(hi for _, hi in r.base.box)), r.index, r.fill)

        return Scope(s.loops, s.sums, map_reads(s.body, through), s.reduce)

    return [*([top] if (top := cut(scope)).sums else []), *found]


@pytest.mark.parametrize(("bits", "most"), [(6, 6), (8, 6), (10, 6)])
def test_operations_grow_as_n_log_n(bits: int, most: int) -> None:
    program, _, _ = multiplied(signs(bits)[:, 0, :, 0], 1)
    (scope,) = (n.scope for n in program.expression_nodes())
    n = 1 << bits
    assert flops(scope) == 2 * n * n
    assert fewest(scope) <= most * n * bits, f"{fewest(scope)} operations for {n}"


def of_places(f: Callable[[np.ndarray, np.ndarray, int], np.ndarray], n: int) -> np.ndarray:
    """A square table by rows k and columns m."""
    return f(np.arange(n)[:, None], np.arange(n)[None, :], n)


VARIANTS: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "half samples of half frequencies": lambda k, m, n: np.cos(np.pi * (k + 0.5) * (m + 0.5) / n),
    "sines between the bins": lambda k, m, n: np.sin(2 * np.pi * (k + 0.25) * m / n),
    "waves that fade": lambda k, m, n: np.exp(-2.0 * m / n) * np.cos(2 * np.pi * k * m / n),
    "three times as fast": lambda k, m, n: np.cos(6 * np.pi * k * m / n),
    "at half the speed, with a phase": lambda k, m, n: np.cos(np.pi * k * m / n + 1),
    "windowed, and scaled by rows": lambda k, m, n: (1 + k / n) * np.hamming(n)[m] * np.cos(2 * np.pi * k * m / n),
    "both backwards": lambda k, m, n: np.cos(2 * np.pi * (n - 1 - k) * (n - 1 - m) / n),
    "two shifts": lambda k, m, n: np.cos(2 * np.pi * (k + 3) * m / n) + np.sin(2 * np.pi * k * (m + 5) / n),
}
"""Transforms without a name."""


@pytest.mark.parametrize("name", VARIANTS)
def test_transforms_that_have_no_name_are_done_in_stages(name: str) -> None:
    """At four times the size the dense product costs sixteen times as much, stages cost half of that at most: as n log n does, or less than that."""
    counts = []
    for n in (64, 256):
        matrix = of_places(VARIANTS[name], n).T
        program, x, wanted = multiplied(matrix, 1)
        (scope,) = (q.scope for q in program.expression_nodes())
        counts.append(fewest(scope))
        np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(matrix).max() * n**0.5)
        assert n == 64 or 2 * counts[1] <= flops(scope)
    assert counts[1] <= max(8 * counts[0], 10 * 256 * log2(256))


SPECTRUM = np.fft.rfft(np.eye(128))
PARTS = {
    "beside each other": np.concatenate([SPECTRUM.real, SPECTRUM.imag], axis=1),
    "in turns": np.stack([SPECTRUM.real, SPECTRUM.imag], axis=-1).reshape(128, -1),
    "with a window": np.concatenate([SPECTRUM.real, SPECTRUM.imag], axis=1) * np.hanning(128)[:, None],
}
"""Tables whose rows are cosines and sines, as exporters write them."""


@pytest.mark.parametrize("name", PARTS)
def test_rows_in_two_parts_share_their_sums(name: str) -> None:
    """Looked at as a whole such tables take about twice as many operations, with a window as many as the dense product."""
    program, x, wanted = multiplied(PARTS[name], 1)
    (scope,) = (q.scope for q in program.expression_nodes())
    assert 3 * fewest(scope) <= flops(scope)
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(PARTS[name]).max() * 12)


def test_columns_in_two_parts_share_their_sums() -> None:
    matrix = PARTS["in turns"].T
    program, x, wanted = multiplied(matrix, 1)
    (scope,) = (q.scope for q in program.expression_nodes())
    assert 3 * fewest(scope) <= 2 * flops(scope)
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(matrix).max() * 12)


def test_one_dimension_more_costs_no_more() -> None:
    """The table of a real signal's half spectrum: fewer operations by two stages than by one."""
    x = {"x": values((1, 256, 1))}
    program = prepare(load(build([node("DFT", ["x"], onesided=1)], x)), tables=True)
    (scope,) = (n.scope for n in program.expression_nodes())
    assert fewest(scope) * 4 < flops(scope) and prod(scope.shape) == 2 * 129


@pytest.mark.parametrize(("bins", "length"), [(65, 128), (129, 256), (51, 100)])
def test_a_signal_from_its_half_spectrum_is_made_in_stages(bins: int, length: int) -> None:
    """Bins are counted by digits of the length that they are waves of, whatever divides their number."""
    x = {"x": values((2, bins, 2))}
    model = build([node("DFT", ["x"], onesided=1, inverse=1)], x)
    program = prepare(load(model), tables=True)
    (scope,) = (n.scope for n in program.expression_nodes())
    assert scope.shape == (2, length, 1) and 2 * fewest(scope) < flops(scope)
    wanted = interpret(prepare(load(model)), x, run_opaque)["y"]
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(wanted).max())


def overlapping(bins: int, length: int, hop: int, frames: int, turns: bool) -> tuple[Program, Program, dict[str, np.ndarray]]:
    """Half spectra of windowed frames, added up where these overlap, as a transposed convolution; without tables, and with them."""
    spectrum = real_table(bins, length, length).transpose(2, 3, 0, 1).reshape(length, 1, bins, 2)[:, 0]
    rows = (spectrum if turns else spectrum.transpose(0, 2, 1)).reshape(length, 2 * bins).T * np.hanning(length)
    x = {"x": values((2, 2 * bins, frames))}
    model = build([node("ConvTranspose", ["x", "w"], strides=[hop])], x, constants={"w": rows[:, None].astype(np.float32)})
    return prepare(load(model)), prepare(load(model), tables=True), x


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(("bins", "length", "hop"), [(65, 128, 32), (129, 256, 256), (51, 100, 30)])
def test_frames_that_overlap_are_made_in_stages_before_they_are_added_up(bins: int, length: int, hop: int, turns: bool) -> None:
    """The real parts of all bins before the imaginary ones, or in turns; hops that divide the length, are it, or do neither."""
    plain, program, x = overlapping(bins, length, hop, 5, turns)
    found = [n.scope for n in program.expression_nodes() if any(isinstance(r.base, Scope) for r in reads(n.scope.body))]
    (scope,) = found
    assert flops(scope) == 2 * 2 * 5 * length * 2 * bins and 3 * fewest(scope) < 2 * flops(scope)
    wanted = interpret(plain, x, run_opaque)["y"]
    np.testing.assert_allclose(interpret(program, x, run_opaque)["y"], wanted, atol=4e-6 * np.abs(wanted).max())


def test_overlapping_stages_take_n_log_n_operations() -> None:
    counts = []
    for length in (128, 512):
        _, program, _ = overlapping(length // 2 + 1, length, length // 4, 4, False)
        counts.append(min(fewest(n.scope) for n in program.expression_nodes() if any(isinstance(r.base, Scope) for r in reads(n.scope.body))))
    assert counts[1] <= 9 * counts[0]


def test_a_transposed_convolution_of_other_weights_stays_whole() -> None:
    x = {"x": values((1, 64, 9))}
    model = build([node("ConvTranspose", ["x", "w"], strides=[8])], x, constants={"w": values((64, 1, 32), 1)})
    kept, same = ([str(n.scope) for n in prepare(load(model), tables=tables).expression_nodes()] for tables in (False, True))
    assert kept == same


def turning(turns: int, size: int) -> np.ndarray:
    """Waves on complex numbers W[g,k,c,n,d], of which the g-th is turned by g parts of a bin: the first one is not."""
    g, k, n = np.arange(turns)[:, None, None], np.arange(size)[:, None], np.arange(size)
    waves = np.exp(-2j * np.pi * (n * k / size + n * g / (turns * size)))
    return np.stack([np.stack([waves.real, -waves.imag], -1), np.stack([waves.imag, waves.real], -1)], 2)


def second_factor(table: np.ndarray) -> np.ndarray:
    """What is left of a table after its first sum, as a table W[g,k,c,n,d]."""
    found = factored(table[None])
    assert found is not None
    left = found.second.transpose(0, 1, 4, 5, 2, 3)
    return left.reshape(-1, *left.shape[2:])


TURNED = {
    "after a first sum": second_factor(fourier(1024, 513, 1)), "turned": turning(16, 32), "plain": turning(1, 24), "signs": signs(6)[None],
    "half": TABLES["real from half"][None],
}  # fmt: skip


@pytest.mark.parametrize("name", TURNED)
def test_products_of_samples_are_those_of_the_table(name: str) -> None:
    """A first part that is simpler than the others, or a factor that some digit leaves as it is, makes no table cheaper."""
    (_, k, c, n, d), found = TURNED[name].shape, factored(TURNED[name])
    assert found is not None and found.products == fewest_products(TURNED[name], largest(TURNED[name]))
    k1, k2 = digits(k, found.way.rows, found.way.low_row)
    n1, n2 = digits(n, found.way.columns, found.way.low_column)
    assert found.products == found.first.shape[3] * k1 * n2 * (n1 * d + k2 * c)


def digits(extent: int, size: int, low: bool) -> tuple[int, int]:
    """The extents of the digit that the first sum has, the low one or not, and of the other."""
    return (size, -(-extent // size)) if low else (-(-extent // size), size)
