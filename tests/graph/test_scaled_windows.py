"""Scales of windows of one tensor become part of the weights that make it; what overlaps, leaves or is given out stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.simplify import simplify
from einnet.graph.program import Program
from tests.graph.cases import build, node, run_opaque, values

Windows = list[tuple[int, int, float]]


def program(
    windows: Windows, shifted: bool, axis: int = 2, outputs: tuple[str, ...] = (), transposed: bool = False
) -> tuple[Program, dict[str, np.ndarray]]:
    """Windows of x·w (+ b) along an axis, each times a number, behind functions, as outputs."""
    held = {"w": values((6, 12), 0), "b": values((12,), 1)}
    nodes = [node("MatMul", ["x", "w"], ["p"]), *([node("Add", ["p", "b"], ["t"])] if shifted else [])]
    source = "t" if shifted else "p"
    given: tuple[str, ...] = ()
    for k, (lo, hi, factor) in enumerate(windows):
        held |= {f"lo{k}": np.array([lo]), f"hi{k}": np.array([hi]), f"c{k}": np.array(factor, np.float32), f"axis{k}": np.array([axis])}
        nodes += [node("Slice", [source, f"lo{k}", f"hi{k}", f"axis{k}"], [f"s{k}"])]
        nodes += [node("Transpose", [f"s{k}"], [f"t{k}"], perm=[0, 2, 1])] if transposed else [node("Identity", [f"s{k}"], [f"t{k}"])]
        nodes += [node("Mul", [f"t{k}", f"c{k}"], [f"m{k}"]), node("Exp", [f"m{k}"], [f"y{k}"])]
        given += (f"y{k}",)
    inputs = {"x": values((2, 5, 6), 3)}
    return load(build(nodes, inputs, (*given, *outputs), held)), inputs


def scales(p: Program) -> int:
    """Numbers by which nodes scale what they read."""
    return sum(n.scope.text().count("0.5") + n.scope.text().count("0.25") for n in p.expression_nodes())


def same(a: Program, b: Program, inputs: dict[str, np.ndarray]) -> None:
    first, second = interpret(a, inputs, run_opaque), interpret(b, inputs, run_opaque)
    for name, want in first.items():
        np.testing.assert_allclose(second[name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "windows",
    [
        [(0, 4, 0.5), (4, 8, 0.25), (8, 12, 1.0)],
        [(4, 8, 0.5), (0, 3, 1.0), (9, 12, 0.25)],
        [(0, 6, 0.5), (0, 6, 0.5), (6, 12, 1.0)],
    ],
)
def test_scales_of_disjoint_windows_are_in_the_weights(windows: Windows, transposed: bool, shifted: bool) -> None:
    before, inputs = program(windows, shifted, transposed=transposed)
    after = simplify(before)
    assert not scales(after)
    assert any(name.startswith("w_scaled") for name in after.weights)
    same(before, after, inputs)


@pytest.mark.parametrize(
    ("windows", "axis", "outputs"),
    [
        ([(0, 5, 0.5), (4, 8, 1.0)], 2, ()),  # places that another reads, too
        ([(0, 5, 0.5), (4, 8, 0.25)], 2, ()),
        ([(0, 12, 0.5), (2, 4, 1.0)], 2, ()),
        ([(0, 2, 0.5), (2, 5, 1.0)], 1, ()),  # a dimension that no weight has
        ([(0, 4, 0.5), (4, 8, 1.0)], 2, ("t",)),  # a value that the model gives out
        ([(0, 4, 0.5), (4, 8, 1.0)], 2, ("p",)),
    ],
)
def test_other_scales_stay(windows: Windows, axis: int, outputs: tuple[str, ...]) -> None:
    before, inputs = program(windows, True, axis, outputs)
    after = simplify(before)
    assert scales(after)
    assert not any(name.startswith("w_scaled") for name in after.weights)
    same(before, after, inputs)


def test_what_is_scaled_is_no_value_of_the_model() -> None:
    before, _ = program([(0, 4, 0.5), (4, 12, 1.0)], True)
    assert {"p", "t"} <= before.holds.keys() | {n.output.name for n in before.expression_nodes()}
    assert not {"p", "t"} & simplify(before).holds.keys()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_any_windows_keep_the_meaning(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    spans = [(lo := data.draw(st.integers(0, 11)), data.draw(st.integers(lo + 1, 12))) for _ in range(count)]
    windows = [(lo, hi, data.draw(st.sampled_from([0.5, 0.25, 1.0]))) for lo, hi in spans]
    before, inputs = program(windows, data.draw(st.booleans()), transposed=data.draw(st.booleans()))
    same(before, simplify(before), inputs)
