"""Integers but for a scale become bytes: exactly the same numbers where scales are powers of two, and nothing else becomes one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Tensor, tensors
from einnet.expr.selection import selection
from einnet.expr.values.evaluate import evaluate
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.as_bytes import as_bytes, keeps_bytes
from einnet.graph.passes.grid import GREATEST, on_grid
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Node
from tests.graph.cases import build, node, values
from tests.graph.quantised_networks import network, quantised

RNG = np.random.default_rng(3)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(1, 5), st.integers(1, 90), st.integers(1, GREATEST), st.integers(0, 1 << 16), st.booleans())
def test_numbers_on_a_grid_are_found(rows: int, columns: int, most: int, seed: int, last: bool) -> None:
    rng = np.random.default_rng(seed)
    integers, steps = rng.integers(-most, most + 1, (rows, columns)), rng.uniform(1e-4, 3, rows).astype(np.float32)
    integers[0] = 0
    values = (integers * steps[:, None]).astype(np.float32)
    found = on_grid(values.T, (1,)) if last else on_grid(values, (0,))
    assert found is not None
    whole, scales = found
    whole = whole.T if last else whole
    assert whole.dtype == np.int8
    assert scales.shape == (rows,)
    assert scales[0] == 1
    assert np.abs(whole * scales[:, None] - values).max() <= 2.0**-21 * np.abs(values).max()
    taken = np.abs(integers).any(axis=1)
    assert (scales >= steps * (1 - 1e-6))[taken].all(), "the greatest scales are taken"


def test_numbers_off_the_grid_are_not() -> None:
    assert on_grid(RNG.standard_normal((4, 30)).astype(np.float32), (0,)) is None
    grid = (np.arange(-127, 128) * 0.01).astype(np.float32)[None]
    assert on_grid(grid, (0,)) is not None
    grid[0, 200] *= 1 + 2.0**-18
    assert on_grid(grid, (0,)) is None
    assert on_grid(np.arange(-128, 128, dtype=np.float32)[None], (0,)) is None
    assert on_grid(np.array([[1, np.nan]], np.float32), (0,)) is None
    assert on_grid(np.ones((2, 3)), (0,)) is None


def test_a_number_off_the_grid_that_no_sample_holds_is_seen() -> None:
    values = np.repeat(np.array([127, 1, 5], np.float32), 300)[None]
    assert on_grid(values, (0,)) is not None
    values[0, 7] = 1.5
    found = on_grid(values, (0,))
    assert found is None or np.array_equal(found[0] * found[1][:, None], values)


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
