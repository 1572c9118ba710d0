"""What is repeated along a dimension is computed once: layers, normalisations and functions of expanded tensors, and scopes inside expressions."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.graph.onnx.importer import load
from einnet.graph.passes.places.alike import read_alike
from einnet.graph.passes.places.unread import drop_unread
from einnet.graph.passes.simplify import simplify
from tests.graph.cases import build, node, values
from tests.graph.test_unread import of_texts, same, shapes

ROWS = "x : f32[12]\nL[i<4,j<12] exp(x[j])"
T = "t0 : f32[4,12]\n"


@pytest.mark.parametrize(
    ("reader", "read", "shape"),
    [
        ("L[i<4,j<12] t0[i,j]*t0[i,j]", "t0[0,j]*t0[0,j]", (1, 12)),
        ("L[i<2,j<12] t0[3 - 2*i,j]", "t0[0,j]", (1, 12)),
        ("L[i<2,j<12] t0[i,j] + t0[i + 1,j]", "t0[0,j] + t0[0,j]", (1, 12)),
        ("L[i<8,j<6] t0[i//2,2*j]", "t0[0,2*j]", (1, 6)),
        ("L[i<4] Σ[j<12] t0[i,j]*{L[i<4] max[j<12] t0[i,j]}[i]", "Σ[j<12] t0[0,j]*{L[i<4] max[j<12] t0[0,j]}[0]", (1, 12)),
        ("L[i<4] Σ[j<12] t0[i,j]*{L[i<4,j<2] val(i)}[i,1]", "{L[i<4,j<2] val(i)}[i,0]", (1, 12)),
    ],
)
def test_one_place_is_read_and_computed(reader: str, read: str, shape: tuple[int, ...]) -> None:
    before = of_texts(ROWS, T + reader)
    once = read_alike(before)
    inputs = {"x": values((12,), 1)}
    same(before, once, inputs)
    assert read in once.nodes[1].scope.text()
    assert shapes(once) == shapes(before)
    after = drop_unread(once)
    same(before, after, inputs)
    assert shapes(after)[0] == shape
    assert read_alike(after).nodes == after.nodes


@pytest.mark.parametrize(
    ("rows", "reader"),
    [
        (ROWS, "L[i<4,j<12] t0[i - 1,j]"),
        (ROWS, "L[i<4,j<12] t0[i + 1,j]|-inf"),
        (ROWS, "L[i<4,j<12] t0[i/2,j]"),
        (ROWS, "L[i<4,j<12] select(i - 1>=0, t0[i - 1,j], 3)"),
        ("x : f32[12]\nL[i<4,j<12] x[j]*val(i)", "L[i<4,j<12] t0[i,j]"),
        ("x : f32[12]\nL[i<4,j<12] select(i - 2>=0, x[j], 0)", "L[i<4,j<12] t0[i,j]"),
        ("x : f32[12]\nL[i<4,j<12] x[i + j]", "L[i<4,j<12] t0[i,j]"),
        ("x : f32[12]\nL[i<4,j<12] {L[j<12] x[j]}[i + j]", "L[i<4,j<12] t0[i,j]"),
        ("x : f32[1,12]\nL[i<1,j<12] exp(x[0,j])", "t0 : f32[1,12]\nL[i<1,j<12] t0[i,j]"),
    ],
)
def test_what_differs_or_may_be_outside_stays(rows: str, reader: str) -> None:
    before = of_texts(rows, reader if reader.startswith("t0") else T + reader)
    after = read_alike(before)
    assert after.nodes == before.nodes


def test_it_is_handed_on_through_layers() -> None:
    """Queries that are the same for each member of a batch: normalised and projected once, whatever follows."""
    kept = {"shape": np.array([4, 6, 8]), "w": values((8, 8), 1), "s": values((8,), 2), "b": values((8,), 3)}
    nodes = [
        node("Expand", ["q", "shape"], ["e"]),
        node("LayerNormalization", ["e", "s", "b"], ["n"], axis=-1),
        node("MatMul", ["n", "w"], ["p"]),
        node("Relu", ["p"], ["r"]),
        node("MatMul", ["r", "k"], ["y"]),
    ]
    inputs = {"q": values((1, 6, 8), 0), "k": values((4, 8, 5), 5)}
    before = load(build(nodes, inputs, ("y",), kept))
    after = simplify(before)
    same(before, after, inputs)
    assert max(prod(shape) for shape in shapes(after)[:-1]) == 6 * 8


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(*(st.sampled_from([1, 3]) for _ in range(3))),
    st.lists(st.sampled_from(["softmax", "relu", "turn", "add", "pad", "sum", "pool", "slice"]), min_size=1, max_size=6),
)
def test_random_functions_of_an_expanded_tensor(shape: tuple[int, ...], kinds: list[str]) -> None:
    kept = {"whole": np.array([3, 3, 3]), "pads": np.array([0, 1, 0, 0, 0, 1]), "axes": np.array([1]), "i0": np.array([0]), "i3": np.array([3])}
    kept |= {"w": values((1, 3, 1), 4)}
    nodes, name = [node("Expand", ["x", "whole"], ["e"])], "e"
    for n, kind in enumerate(kinds):
        new = f"v{n}"
        match kind:
            case "softmax":
                nodes.append(node("Softmax", [name], [new], axis=n % 3))
            case "relu":
                nodes.append(node("Relu", [name], [new]))
            case "turn":
                nodes.append(node("Transpose", [name], [new], perm=[1, 2, 0]))
            case "add":
                nodes.append(node("Add", [name, "w"], [new]))
            case "pad":
                nodes += [node("Pad", [name, "pads"], [new + "p"]), node("Slice", [new + "p", "i0", "i3", "axes"], [new + "q"])]
                nodes.append(node("MaxPool", [new + "q"], [new], kernel_shape=[2]))
            case "sum":
                nodes += [node("ReduceSum", [name, "axes"], [new + "s"]), node("Sub", [name, new + "s"], [new])]
            case "pool":
                nodes.append(node("AveragePool", [name], [new], kernel_shape=[3], pads=[1, 1], count_include_pad=1))
            case "slice":
                nodes += [node("Slice", [name, "i0", "axes", "axes"], [new + "t"]), node("Expand", [new + "t", "whole"], [new])]
        name = new
    inputs = {"x": values(shape, 7)}
    before = load(build(nodes, inputs, (name,), kept))
    after = drop_unread(read_alike(before))
    same(before, after, inputs)
    same(before, simplify(before), inputs)
