"""Truth values: comparisons, logic, NaN and infinities, and choices by data, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque
from tests.graph.cases import build, check, node, reference, run_opaque, values

X = np.round(values((2, 3, 4), 3, -3.0, 3.0) * 2) / 2
Y = np.round(values((3, 4), 4, -3.0, 3.0) * 2) / 2
SPECIAL = np.array([[np.nan, np.inf, -np.inf, 0.0], [-0.0, 1.5, np.nan, -2.0]], np.float32)


@pytest.mark.parametrize("op", ["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
def test_comparison(op: str) -> None:
    check([node(op, ["x", "w"], ["c"]), node("Where", ["c", "x", "w"])], {"x": X, "w": Y})


@pytest.mark.parametrize("op", ["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
def test_comparison_with_a_number(op: str) -> None:
    check([node(op, ["x", "k"], ["c"]), node("Cast", ["c"], to=TensorProto.FLOAT)], {"x": X}, {"k": np.array(0.5, np.float32)})


@pytest.mark.parametrize("op", ["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
def test_truth_values_given_out(op: str) -> None:
    check([node(op, ["x", "w"])], {"x": X, "w": Y}, opaque=True)


@pytest.mark.parametrize("op", ["IsNaN", "IsInf"])
def test_kinds_of_numbers_given_out(op: str) -> None:
    check([node(op, ["x"])], {"x": SPECIAL}, opaque=True)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    nodes = [node("Less", ["x", "w"], ["a"]), node("Greater", ["x", "z"], ["b"]), node(op, ["a", "b"], ["c"]), node("Where", ["c", "x", "w"])]
    check(nodes, {"x": X, "w": Y, "z": values((4,), 5)})


def test_negation() -> None:
    check([node("Less", ["x", "w"], ["a"]), node("Not", ["a"], ["b"]), node("Where", ["b", "x", "w"])], {"x": X, "w": Y})


@pytest.mark.parametrize("op", ["ReduceMin", "ReduceMax"])
@pytest.mark.parametrize(("axes", "kept"), [([2], 1), ([0, 1], 0), ([], 1)])
def test_whether_one_is_true_and_whether_all_are(op: str, axes: list[int], kept: int) -> None:
    """As exporters say of a row of scores that all are masked."""
    given = ["a", "axes"] if axes else ["a"]
    nodes = [node("Less", ["x", "w"], ["a"]), node(op, given, ["b"], keepdims=kept), node("Cast", ["b"], to=TensorProto.FLOAT)]
    check(nodes, {"x": X, "w": Y}, {"axes": np.array(axes, np.int64)} if axes else {}, opset=20)


def test_casts() -> None:
    nodes = [node("Cast", ["x"], ["c"], to=TensorProto.BOOL), node("Cast", ["c"], to=TensorProto.FLOAT)]
    check(nodes, {"x": X})


def test_where_of_irregular_mask_is_a_choice() -> None:
    mask = np.random.default_rng(0).random((6, 8)) < 0.5
    check([node("Where", ["m", "x", "z"])], {"x": values((6, 8)), "z": values((6, 8), 1)}, {"m": mask})


@pytest.mark.parametrize("shape", [(4,), (3, 1), (2, 1, 1)])
def test_conditions_broadcast(shape: tuple[int, ...]) -> None:
    check([node("Less", ["a", "k"], ["c"]), node("Where", ["c", "x", "w"])], {"a": values(shape), "x": X, "w": Y}, {"k": np.array(0, np.float32)})


def test_truth_values_move() -> None:
    """Moved as any other elements, and back to numbers."""
    nodes = [
        node("Less", ["x", "w"], ["a"]), node("Transpose", ["a"], ["b"], perm=[2, 0, 1]), node("Reshape", ["b", "shape"], ["c"]),
        node("Slice", ["c", "from", "to"], ["d"]), node("Cast", ["d"], to=TensorProto.FLOAT),
    ]  # fmt: skip
    constants = {"shape": np.array([6, 4]), "from": np.array([1]), "to": np.array([5])}
    check(nodes, {"x": X, "w": Y}, constants)


FINITE_OR_NOT = [
    ([node("IsNaN", ["x"], ["c"])], "c"), ([node("IsInf", ["x"], ["c"])], "c"), ([node("IsInf", ["x"], ["c"], detect_negative=0)], "c"),
    ([node("IsInf", ["x"], ["c"], detect_positive=0)], "c"), ([node("Less", ["x", "k"], ["c"])], "c"), ([node("Equal", ["x", "x"], ["c"])], "c"),
    ([node("LessOrEqual", ["x", "k"], ["c"])], "c"), ([node("GreaterOrEqual", ["x", "k"], ["c"])], "c"), ([node("Cast", ["x"], ["c"], to=9)], "c"),
    ([node("Less", ["x", "k"], ["d"]), node("Not", ["d"], ["c"])], "c"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(FINITE_OR_NOT)))
def test_nan_and_infinities_are_as_in_the_standard(case: int) -> None:
    """Also what is not chosen may be NaN: a choice is no product."""
    nodes, name = FINITE_OR_NOT[case]
    nodes = [*nodes, node("Where", [name, "k", "x"])]
    model = build(nodes, {"x": SPECIAL}, constants={"k": np.array(0.25, np.float32)})
    found = interpret(load(model), {"x": SPECIAL}, run_opaque, dtype="float32")
    np.testing.assert_array_equal(found["y"], reference(model, {"x": SPECIAL})["y"])


def test_truth_values_reach_opaque_nodes_and_outputs_as_such() -> None:
    """As bool, through a cast, and come back."""
    nodes = [node("Less", ["x", "w"], ["c"]), node("NonZero", ["c"], ["n"]), node("Shape", ["n"], ["s"]), node("Not", ["c"], ["d"])]
    model = build(nodes, {"x": X, "w": Y}, outputs=("c", "d"))
    counted = helper.make_model(model.graph, opset_imports=model.opset_import, ir_version=8)
    program = load(counted)
    found, wanted = interpret(program, {"x": X, "w": Y}, run_opaque), reference(counted, {"x": X, "w": Y})
    assert {k: v.dtype for k, v in found.items()} == {"c": np.dtype(bool), "d": np.dtype(bool)}
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


def test_an_opaque_reader_of_truth_values() -> None:
    nodes = [node("Less", ["x", "w"], ["c"]), node("Compress", ["x", "k"], ["p"], axis=0), node("Where", ["c", "p", "w"], ["q"]),
             node("Cast", ["c"], ["i"], to=TensorProto.INT64), node("CumSum", ["i", "axis"], ["m"]),
             node("Cast", ["m"], ["f"], to=TensorProto.FLOAT), node("Add", ["q", "f"])]  # fmt: skip
    program = check(nodes, {"x": X, "w": Y}, {"k": np.array([True, True]), "axis": np.array(2)}, opaque=True)
    (whole,) = (n for n in program.nodes if isinstance(n, Opaque) and n.origin[0] == "CumSum 'CumSum_m'")
    assert [program.tensors()[name].dtype for name in whole.inputs] == ["f32"]


def guarded(mask: bool) -> list:
    """Attention as torch's exporter writes it: rows without any score are 0."""
    scores = [node("MatMul", ["q", "kt"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"])]
    scores += [node("Add", ["s1", "m"], ["s"])] if mask else [node("Identity", ["s1"], ["s"])]
    guard = [node("Softmax", ["s"], ["p"], axis=-1), node("IsNaN", ["p"], ["n"]), node("Where", ["n", "zero", "p"], ["g"])]
    return [*scores, *guard, node("MatMul", ["g", "v"])]


CONSTANTS = {"scale": np.array(0.5, np.float32), "zero": np.array(0, np.float32)}


def test_guarded_attention_has_no_opaque_node() -> None:
    check(guarded(False), {"q": values((2, 5, 4)), "kt": values((2, 4, 6), 1), "v": values((2, 6, 3), 2)}, CONSTANTS)


def test_a_row_without_scores_is_zero() -> None:
    mask = np.zeros((5, 6), np.float32)
    mask[2] = -np.inf
    mask[3, 4] = -np.inf
    inputs = {"q": values((2, 5, 4)), "kt": values((2, 4, 6), 1), "v": values((2, 6, 3), 2), "m": mask}
    model = build(guarded(True), inputs, constants=CONSTANTS)
    found, wanted = interpret(load(model), inputs, run_opaque), reference(model, inputs)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-6)
    assert (found["y"][:, 2] == 0).all()
