"""Integers but for a scale become bytes: exactly the same numbers where scales are powers of two, and nothing else becomes one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Const, Mul, Tensor, tensors
from einnet.expr.selection import selection
from einnet.expr.values.evaluate import evaluate
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.integers.as_bytes import as_bytes, keeps_bytes
from einnet.graph.passes.integers.scaled_integers import GREATEST, on_grid
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Node
from tests.graph.cases import build, node, values
from tests.graph.quantised_networks import attention, dynamic, network, quantised

RNG = np.random.default_rng(3)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(1, 5), st.integers(1, 90), st.integers(-GREATEST, 0), st.integers(0, GREATEST), st.integers(0, 1 << 16), st.booleans())
def test_numbers_on_a_grid_are_found(rows: int, columns: int, low: int, reach: int, seed: int, last: bool) -> None:
    """Integers of a byte, whatever its zero point is."""
    rng = np.random.default_rng(seed)
    integers, steps = rng.integers(low, low + reach + 1, (rows, columns)), rng.uniform(1e-4, 3, rows).astype(np.float32)
    integers[0] = 0
    values = (integers * steps[:, None]).astype(np.float32)
    found = on_grid(values.T, (1,)) if last else on_grid(values, (0,))
    assert found is not None
    whole = found.integers.T if last else found.integers
    assert whole.dtype == np.int8
    assert found.scales.shape == found.shifts.shape == (rows,)
    assert found.scales[0] == 1 and found.shifts[0] == 0
    exact = whole.astype(np.int64) + found.shifts[:, None]
    assert np.abs(exact * found.scales[:, None] - values).max() <= 2.0**-21 * np.abs(values).max()
    bits = np.gcd.reduce(integers, axis=1) == 1
    products = exact.astype(np.float32) * found.scales.astype(np.float32)[:, None]
    assert np.array_equal(products[bits], values[bits]), "and float32 has them, bit for bit"
    fits = (exact >= -128).all(axis=1) & (exact <= 127).all(axis=1)
    assert (found.shifts[fits] == 0).all(), "nothing is moved without need"
    moved = whole[~fits]
    assert ((moved == np.where(found.shifts[~fits] > 0, 127, -128)[:, None]).any(axis=1)).all(), "and by no more than is needed"
    taken = np.abs(integers).any(axis=1)
    assert (found.scales >= steps * (1 - 1e-6))[taken].all(), "the greatest scales are taken"


def test_numbers_off_the_grid_are_not() -> None:
    assert on_grid(RNG.standard_normal((4, 30)).astype(np.float32), (0,)) is None
    grid = (np.arange(-127, 128) * 0.01).astype(np.float32)[None]
    assert on_grid(grid, (0,)) is not None
    grid[0, 200] *= 1 + 2.0**-18
    assert on_grid(grid, (0,)) is None
    assert on_grid(np.arange(-128, 128, dtype=np.float32)[None], (0,)) is not None
    assert on_grid(np.arange(-128, 129, dtype=np.float32)[None], (0,)) is None
    assert on_grid(np.array([[-1, 0, 255]], np.float32), (0,)) is None
    assert on_grid(np.array([[1, np.nan]], np.float32), (0,)) is None
    assert on_grid(np.ones((2, 3)), (0,)) is None


def test_a_number_off_the_grid_that_no_sample_holds_is_seen() -> None:
    values = np.repeat(np.array([127, 1, 5], np.float32), 300)[None]
    assert on_grid(values, (0,)) is not None
    values[0, 7] = 1.5
    found = on_grid(values, (0,))
    assert found is None or np.array_equal((found.integers + found.shifts[:, None]) * found.scales[:, None], values)


# programs


CASES = [("uint8", (128, 0), 1), ("uint8", (3, 117), 1), ("int8", (-128, -128), 1), ("int8", (0, 5), 0), ("uint8", (0, 255), 1)]


@pytest.mark.parametrize(("kind", "zeros", "pads"), CASES)
@pytest.mark.parametrize("groups", [1, 2])
def test_the_numbers_are_the_same(kind: str, zeros: tuple[int, int], pads: int, groups: int) -> None:
    program = load(network(kind, zeros, pads, groups))
    own, found = prepare(program), prepare(program, in_bytes=True)
    assert keeps_bytes(found)
    assert not keeps_bytes(own)
    products = [n for n in found.expression_nodes() if n.scope.sums and n.scope.reduce == "sum" and not selection(n.scope)]
    assert [{r.dtype for r in tensors_of(n)} for n in products] == [{"u8", "i8"}] * 2
    size = 8 if pads else 10
    for scale in (0.5, 1000):
        x = RNG.uniform(-scale, scale, (2, 4, size, size)).astype(np.float32)
        (wanted,), (got,) = (interpret(p, {"x": x}, dtype="int").values() for p in (own, found))
        assert np.array_equal(got, wanted), "in exact arithmetic"


def tensors_of(one: Node) -> list[Tensor]:
    return list(tensors(one.scope).values())


def test_stored_bytes_are_bytes() -> None:
    """Every value of a tensor of type u8 is one."""
    found = prepare(load(network("uint8", (3, 117), 1)), in_bytes=True)
    held: dict[str, np.ndarray] = dict(found.weights)
    held["x"] = RNG.uniform(-90, 90, (2, 4, 8, 8))
    kinds = []
    for one in found.expression_nodes():
        held[one.output.name] = evaluate(one.scope, {name: held[name] for name in one.inputs})
        if one.output.dtype == "u8":
            y = held[one.output.name]
            kinds.append(one.output.name)
            assert np.array_equal(y, y.astype(np.uint8))
    assert len(kinds) >= 5


def test_what_stands_outside_is_the_zero_point() -> None:
    """A convolution reads beyond its data, whose zero point is not 0: bytes around it are that zero point."""
    found = prepare(load(network("uint8", (3, 117), 1)), in_bytes=True)
    padded = [n for n in found.expression_nodes() if "padded" in n.output.name]
    assert [n.scope.body.fill for n in padded] == [Fraction(3)]  # type: ignore[union-attr]


def test_programs_without_integers_stay_as_they_are() -> None:
    plain = prepare(load(build([node("Gemm", ["x", "w"], ["y"])], {"x": values((3, 7))}, constants={"w": values((7, 4), 1)}, opset=21)))
    assert as_bytes(plain).nodes == plain.nodes


def test_weights_of_other_numbers_are_multiplied_in_float32() -> None:
    """Bytes of data do not make a product of bytes."""
    nodes = [*quantised("x", "q", "s", "z"), node("Gemm", ["q", "w"], ["y"])]
    constants = {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8), "w": values((7, 4), 1)}
    found = prepare(load(build(nodes, {"x": values((3, 7))}, constants=constants, opset=21)), in_bytes=True)
    product = next(n for n in found.expression_nodes() if n.scope.sums)
    assert {t.dtype for t in tensors_of(product)} == {"f32"}


def test_a_sum_that_may_not_fit_stays() -> None:
    many = ((1 << 31) - 1) // (255 * 128) + 1
    nodes = [*quantised("x", "q", "s", "z"), node("Gemm", ["q", "w"], ["y"])]
    for terms, kinds in ((many, {"f32"}), (many - 1, {"u8", "i8"})):
        constants = {"s": np.array(0.1, np.float32), "z": np.array(0, np.uint8), "w": RNG.integers(-127, 128, (terms, 2)).astype(np.float32)}
        found = prepare(load(build(nodes, {"x": values((1, terms))}, constants=constants, opset=21)), in_bytes=True)
        product = next(n for n in found.expression_nodes() if n.scope.sums)
        assert {t.dtype for t in tensors_of(product)} == kinds


# zero points of weights, of two tensors of bytes, and of each run


@pytest.mark.parametrize(("zeros", "kinds"), [
    ((128, 128, 0, 128), ("uint8", "uint8")), ((117, 3, 0, 255), ("uint8", "uint8")), ((0, 255, 9, 0), ("uint8", "uint8")),
    ((5, -128, -128, 127), ("int8", "int8")), ((-9, 17, 3, 0), ("int8", "uint8")),
])  # fmt: skip
def test_products_of_two_tensors_of_bytes(zeros: tuple[int, int, int, int], kinds: tuple[str, str]) -> None:
    """u times v - 128, and what the zero points add up to: the sums are the same integers."""
    program = load(attention(zeros, kinds))
    own, found = prepare(program), prepare(program, in_bytes=True)
    products = [n for n in found.expression_nodes() if n.scope.reduce == "sum" and isinstance(n.scope.body, Mul) and n.scope.sums]
    assert [[t.dtype for t in tensors_of(n)] for n in products if not any(isinstance(a, Const) for a in n.scope.body.args)] == [["u8", "i8"]] * 2
    inputs = {n: RNG.uniform(-4, 4, t.shape).astype(np.float32) for n, t in zip("qkv", program.inputs, strict=True)}
    (a, b), (c, d) = (interpret(p, inputs).values() for p in (own, found))
    assert np.array_equal(a, c), "numbers are multiples of powers of two"
    assert np.array_equal(b, d)


@pytest.mark.parametrize("pads", [0, 1])
@pytest.mark.parametrize("zeros", [(0, 0), (3, 117), (255, 20)])
def test_weights_with_a_zero_point(zeros: tuple[int, int], pads: int) -> None:
    """Integers of weights that no signed byte has are moved, each channel by as much as it needs, and the sums of data put back what that takes."""
    rng = np.random.default_rng(zeros[1])
    constants = {
        "s": np.array(2.0**-4, np.float32), "z": np.array(zeros[0], np.uint8), "w": rng.integers(0, 256, (6, 4, 3, 3)).astype(np.uint8),
        "sw": (2.0 ** -rng.integers(4, 7, 6)).astype(np.float32), "zw": np.array([zeros[1], 128, 127, 0, 255, 1], np.uint8),
        "v": rng.integers(0, 256, (6 * (36 if pads else 16), 5)).astype(np.uint8), "sv": np.array(2.0**-6, np.float32),
        "zv": np.array(zeros[1], np.uint8), "flat": np.array([1, -1]),
    }  # fmt: skip
    nodes = [*quantised("x", "q", "s", "z"), node("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=0),
             node("Conv", ["q", "dw"], ["c"], pads=[pads] * 4), *quantised("c", "qc", "s", "z"),
             node("Reshape", ["qc", "flat"], ["f"]), node("DequantizeLinear", ["v", "sv", "zv"], ["dv"]),
             node("MatMul", ["f", "dv"], ["y"])]  # fmt: skip
    x = rng.uniform(-9, 9, (1, 4, 6, 6)).astype(np.float32)
    program = load(build(nodes, {"x": x}, constants=constants, opset=21))
    own, found = prepare(program), prepare(program, in_bytes=True)
    products = [n for n in found.expression_nodes() if n.scope.reduce == "sum" and {t.dtype for t in tensors_of(n)} == {"u8", "i8"}]
    assert len(products) == 2
    (wanted,), (got,) = (interpret(p, {"x": x}, dtype="int").values() for p in (own, found))
    assert np.array_equal(got, wanted), "in exact arithmetic"


@pytest.mark.parametrize(("zero", "kind"), [(None, "int8"), (3, "int8"), (120, "uint8")])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_zero_point_that_each_run_finds(zero: int | None, kind: str, transposed: bool) -> None:
    """What is subtracted from all bytes stands outside of the sum: Σ (u - z)·n = Σ u·n - z·Σ n."""
    model = dynamic(40, zero, kind, transposed)
    program = load(model)
    own, found = prepare(program), prepare(program, in_bytes=True)
    products = [n for n in found.expression_nodes() if n.scope.sums and n.scope.reduce == "sum" and {t.dtype for t in tensors_of(n)} == {"u8", "i8"}]
    assert len(products) == 1
    for low, high in ((-1, 1), (-5, 0.1), (2, 3), (0, 0)):
        x = RNG.uniform(low, high, program.inputs[0].shape).astype(np.float32)
        (wanted,), (got,) = (interpret(p, {"x": x}).values() for p in (own, found))
        assert np.array_equal(got, wanted)


def test_sums_beyond_what_float32_counts_are_no_parts_of_a_result() -> None:
    """A zero point far from the middle takes a sum of all data as many times: where float32 does not have that, it computes the product."""
    for terms, kinds in (((1 << 24) // (255 * 128), {"u8", "i8"}), ((1 << 24) // (255 * 128) + 1, {"f32"})):
        model = dynamic(terms, None, "uint8")
        (weights,) = (t for t in model.graph.initializer if t.name == "w")
        scattered = np.random.default_rng(0).permutation(1 + 254 * np.eye(terms, 5, dtype=np.uint8))  # no region of it is told
        weights.CopyFrom(onnx.numpy_helper.from_array(scattered, "w"))
        found = prepare(load(model), in_bytes=True)
        products = [n for n in found.expression_nodes() if n.scope.reduce == "sum" and isinstance(n.scope.body, Mul) and n.scope.sums]
        assert {t.dtype for t in tensors_of(products[0])} == kinds
