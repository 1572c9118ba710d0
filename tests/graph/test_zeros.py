"""Features that a layer leaves 0 or the next one multiplies by 0 are not computed; where something else may be there all stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.places.zeros import drop_zero_places, zero_slices
from einnet.graph.passes.prepare import prepare
from einnet.graph.passes.simplify import simplify
from einnet.graph.program import Held, Opaque, Program
from tests.graph.cases import build, node, run_opaque, values
from tests.graph.test_unread import of_texts, same, shapes

EVEN, THIRD = np.arange(12) % 2 == 0, np.arange(12) % 3 == 0
W, V = values((8, 12), 1), values((12, 6), 2)


def read(nodes: Sequence[onnx.NodeProto], held: dict[str, np.ndarray], outputs: tuple[str, ...] = ("y",)) -> tuple[Program, dict[str, np.ndarray]]:
    inputs = {"x": values((4, 8), 0)}
    return simplify(load(build(nodes, inputs, outputs, held))), inputs


def layers(between: str, first: np.ndarray, second: np.ndarray) -> tuple[Program, dict[str, np.ndarray]]:
    """A function between two layers."""
    return read([node("MatMul", ["x", "w"], ["h"]), node(between, ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"])], {"w": first, "v": second})


@pytest.mark.parametrize(
    ("between", "first", "second", "features"),
    [
        ("Relu", W * EVEN, V, 6),
        ("Tanh", W * THIRD, V, 4),
        ("Sigmoid", W * EVEN, V, 12),
        ("Sigmoid", W, V * EVEN[:, None], 6),
        ("Exp", W * EVEN, V * THIRD[:, None], 4),
        ("Relu", W * EVEN, V * THIRD[:, None], 2),
        ("Relu", W, V, 12),
        ("Relu", W * (np.arange(12) > 0), V, 12),
        ("Relu", W * (np.arange(12) > 1), V, 10),
        ("Log", W, V * EVEN[:, None], 12),
        ("Reciprocal", W, V * EVEN[:, None], 12),
        ("Relu", W * 0.0, V, 1),
    ],
)
def test_features_of_which_no_sum_has_a_term_are_left_out(between: str, first: np.ndarray, second: np.ndarray, features: int) -> None:
    before, inputs = layers(between, first.astype(np.float32), second.astype(np.float32))
    after = drop_zero_places(before)
    assert {shape[-1] for shape in shapes(after)[:-1]} == {features}
    assert after.settled == (("MatMul 'MatMul_y'",) if features < 12 else ())
    if between not in ("Log", "Reciprocal"):
        same(before, after, inputs)
    assert drop_zero_places(after).nodes == after.nodes


def test_a_bias_is_a_term() -> None:
    bias = np.where(EVEN, 0.0, 0.5).astype(np.float32)
    nodes = [node("Gemm", ["x", "w", "b"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"])]
    there, _ = read(nodes, {"w": W * ~EVEN, "b": bias, "v": V})
    assert drop_zero_places(there).settled and shapes(drop_zero_places(there))[0] == (4, 6)
    elsewhere, _ = read(nodes, {"w": W * EVEN, "b": bias, "v": V})
    assert not drop_zero_places(elsewhere).settled


def test_every_reader_has_to_drop_it() -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["y"]), node("MatMul", ["h", "u"], ["z"])]
    other = values((12, 5), 4)
    both, inputs = read(nodes, {"w": W, "v": V * EVEN[:, None], "u": other * THIRD[:, None]}, ("y", "z"))
    after = drop_zero_places(both)
    same(both, after, inputs)
    assert shapes(after)[0] == (4, 8), "what is at 0, 2, 3, 4, 6, 8, 9 and 10"
    one, _ = read(nodes, {"w": W, "v": V * EVEN[:, None], "u": other}, ("y", "z"))
    assert drop_zero_places(one).nodes == one.nodes
    given_out, _ = read(nodes[:2], {"w": W, "v": V * EVEN[:, None]}, ("y", "h"))
    assert drop_zero_places(given_out).nodes == given_out.nodes


def test_what_is_indexed_otherwise_stays() -> None:
    held = {"w": W * EVEN, "v": V, "i0": np.array([0]), "i11": np.array([11]), "i1": np.array([1]), "m": values((11, 6), 3)}
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Slice", ["h", "i0", "i11", "i1"], ["s"]), node("MatMul", ["s", "m"], ["z"])]
    cut, _ = read([*nodes, node("MatMul", ["h", "v"], ["y"])], held, ("y", "z"))
    assert drop_zero_places(cut).nodes == cut.nodes
    greatest, _ = read([node("MatMul", ["x", "w"], ["h"]), node("ReduceMax", ["h"], ["y"], axes=[1])], {"w": W * EVEN})
    assert drop_zero_places(greatest).nodes == greatest.nodes
    normal, _ = read([node("MatMul", ["x", "w"], ["h"]), node("Softmax", ["h"], ["p"]), node("MatMul", ["p", "v"], ["y"])], held)
    assert drop_zero_places(normal).nodes == normal.nodes


LAYER = "x : f32[4,8]\nw : weight f32[8,12]\nL[i<4,c<12] Σ[k<8] x[i,k]*w[k,c]"
READ = "t0 : f32[4,12]\nu : weight f32[24]\nv : weight f32[12]\n"


@pytest.mark.parametrize(
    ("reader", "features"),
    [
        ("L[i<4] Σ[c<12] t0[i,c]*v[c]", 6),
        ("L[i<4] Σ[c<12] {L[c<12,i<4] exp(t0[i,c]) + -1}[c,i]", 12),
        ("L[i<4] Σ[c<12] {L[c<12,i<4] tanh(t0[i,c])*v[c]}[c,i]", 6),
        ("L[i<4] Σ[c<12] t0[i,c]*{L[i<4,c<12] v[c]}[i,c]", 6),
        ("L[i<4] Σ[c<12] t0[i,c]*t0[i,3]", 12),
        ("L[i<4] Σ[c<12] t0[i,c]*val(c)", 12),
        ("L[i<4] Σ[c<12] t0[i,c]*val(i)", 6),
        ("L[i<4] Σ[c<12] select(c - 3>=0, t0[i,c], 2*t0[i,c])", 12),
        ("L[i<4] Σ[c<12] select(i - 3>=0, t0[i,c], 2*t0[i,c])", 6),
        ("L[i<4] Σ[c<12] select(i - 3>=0, t0[i,c], 0)", 6),
        ("L[i<4] Σ[c<12] select(i - 3>=0, t0[i,c], 1)", 12),
        ("L[i<4] Σ[c<12] select(i - 3>=0, v[c], t0[i,c])", 12),
        ("L[i<4] Σ[c<12] t0[i,c]*u[2*c]", 12),
        ("L[i<4] Σ[c<12] t0[i,c]|1", 12),
        ("L[i<4] Σ[c<11] t0[i,c]", 12),
        ("L[i<4] Σ[c<12] t0[i,11 - c]", 12),
        ("L[i<4] Σ[c<12,r<1] t0[i,c + r]*v[c]", 6),
        ("L[i<4] max[c<12] t0[i,c]", 12),
        ("L[i<4] Σ[c<12] t0[i,c] / (1 + v[c]*v[c])", 6),
        ("L[i<4] Σ[c<12] t0[i,c] / v[c]", 12),
        ("L[i<4] Σ[c<12] t0[i,c]*log(v[c])", 12),
        ("L[i<4] Σ[c<12] t0[i,c]*v[c] + t0[i,c]", 6),
        ("L[i<4] Σ[c<12] t0[i,c]*v[c] + v[c]", 12),
    ],
)
def test_all_that_is_added_up_has_to_be_zero(reader: str, features: int) -> None:
    before = of_texts(LAYER, READ + reader, w=W * EVEN, u=values((24,), 5, 1, 2), v=values((12,), 6, 1, 2))
    after = drop_zero_places(before)
    assert shapes(after)[0] == (4, features)
    same(before, after, {"x": values((4, 8), 0)})
    if features < 12:
        assert "w" not in after.weights and {value.shape for value in after.weights.values()} >= {(8, 6)}
        assert {t.name for n in after.expression_nodes() for t in n.scope.read if t.weight} <= set(after.weights)


def test_an_eighth_is_worth_it_and_what_a_part_held_is_forgotten() -> None:
    for zero, left in ((1, 7), (0, 8)):
        texts = "x : f32[4,8]\nw : weight f32[8,8]\nL[i<4,c<8] Σ[k<8] x[i,k]*w[k,c]", "t0 : f32[4,8]\nL[i<4] Σ[c<8] t0[i,c]"
        before = of_texts(*texts, w=W[:, :8] * (np.arange(8) >= zero))
        nodes = tuple(replace(n, origin=(f"first of {n.output.name}", "second")) for n in before.expression_nodes())
        after = drop_zero_places(replace(before, nodes=nodes, holds={"t0": Held("h", (0, 1)), "t1": Held("y", (0,))}))
        assert shapes(after)[0] == (4, left)
        assert set(after.holds) == ({"t1"} if zero else {"t0", "t1"})
        assert after.settled == (("first of t1",) if zero else ())


def test_what_an_opaque_node_reads_stays() -> None:
    before = of_texts(LAYER, READ + "L[i<4] Σ[c<12] t0[i,c]*v[c]", w=W * EVEN, v=values((12,), 6))
    other = Opaque((), ("t0",), b"")
    assert drop_zero_places(replace(before, nodes=(*before.nodes, other))).nodes == (*before.nodes, other)


@pytest.mark.parametrize("tail", ["Relu", "Sigmoid"])
def test_filters_behind_padding_and_by_groups(tail: str) -> None:
    """Pruned filters, a filter for each of the features, and what is added to both."""
    held = {"w": values((8, 3, 3, 3), 1), "d": values((8, 1, 3, 3), 2), "v": values((4, 8, 1, 1), 3)}
    held["w"][[0, 3, 4]] = 0
    nodes = [
        node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]),
        node("Conv", ["h", "d"], ["e"], pads=[1, 1, 1, 1], group=8),
        node(tail, ["e"], ["r"]),
        node("Mul", ["r", "h"], ["m"]),
        node("Conv", ["m", "v"], ["y"]),
    ]
    inputs = {"x": values((1, 3, 5, 5), 0)}
    model = build(nodes, inputs, ("y",), held)
    before = load(model)
    for after in (prepare(before), prepare(before, permuted=False)):
        same(before, after, inputs)
        assert any(shape.count(5) == 3 for shape in shapes(after)), "five of the eight filters"
        assert after.settled == ("Conv 'Conv_y'",)
    assert not any(shape.count(5) == 3 for shape in shapes(prepare(before, finite=False)))
    assert not prepare(before, finite=False).settled


def test_slices_that_are_zero() -> None:
    table = np.arange(24.0).reshape(2, 3, 4)
    table[:, 1] = 0
    table[..., 2] = 0
    assert {k: np.flatnonzero(v).tolist() for k, v in zero_slices(table).items()} == {1: [1], 2: [2]}
    assert np.flatnonzero(zero_slices(np.array([1.0, 0.0, 2.0]))[0]).tolist() == [1]
    assert not zero_slices(table.astype(np.int64)) and not zero_slices(np.zeros((0, 3)))
    assert list(zero_slices(np.zeros((1, 3)))) == [1] and list(zero_slices(np.zeros((2, 1)))) == [0]
    table[0, 1, 0] = np.nan
    assert list(zero_slices(table)) == [2]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(["layer", "Relu", "Tanh", "Sigmoid", "skip", "scale", "bias", "mean", "turn"]), min_size=2, max_size=7),
    st.integers(0, 1 << 16),
)
def test_random_pruned_layers(kinds: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    held: dict[str, np.ndarray] = {}
    nodes = [node("Identity", ["x"], ["v"])]
    name, width, rows = "v", 8, 8
    for n, kind in enumerate(kinds):
        new = f"v{n}"

        def weight(*shape: int, name: str = f"w{n}") -> str:
            value = rng.standard_normal(shape)
            for axis in range(len(shape)):
                value *= np.moveaxis((rng.random(shape[axis]) < rng.choice([0.5, 1.0])).reshape(-1, *(1,) * (len(shape) - 1)), 0, axis)
            held[name] = value.astype(np.float32)
            return name

        if kind == "layer":
            nodes.append(node("MatMul", [name, weight(width, 8)], [new]))
            width = 8
        elif kind == "skip":
            nodes += [node("MatMul", [name, weight(width, width)], [new + "p"]), node("Add", [new + "p", name], [new])]
        elif kind in ("scale", "bias"):
            nodes.append(node("Mul" if kind == "scale" else "Add", [name, weight(1, width)], [new]))
        elif kind == "mean":
            nodes += [node("ReduceMean", [name], [new + "m"], axes=[1]), node("Sub", [name, new + "m"], [new])]
        elif kind == "turn":
            nodes.append(node("Transpose", [name], [new], perm=[1, 0]))
            width, rows = rows, width
        else:
            nodes.append(node(kind, [name], [new]))
        name = new
    inputs = {"x": values((8, 8), seed)}
    program = load(build(nodes, inputs, (name,), held))
    before = simplify(program)
    after = drop_zero_places(before)
    same(before, after, inputs)
    first, second = (interpret(p, inputs, run_opaque) for p in (program, prepare(program)))
    for key, want in first.items():
        np.testing.assert_allclose(second[key], want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max(initial=0))))
