"""Places that are data, and element types other than float32: Gather, GatherElements, GatherND, integers and truth values as inputs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from tests.graph.cases import build, check, ints, node, run_opaque, values

TABLE = values((7, 3, 5))
PLACES = np.array([[0, 6, -1], [3, 3, -7]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_by_data(axis: int) -> None:
    extent = TABLE.shape[axis]
    check([node("Gather", ["x", "i"], axis=axis)], {"x": TABLE, "i": np.clip(PLACES, -extent, extent - 1)})


@pytest.mark.parametrize("axis", [0, 2])
def test_gather_by_a_table(axis: int) -> None:
    check([node("Gather", ["x", "i"], axis=axis)], {"x": TABLE}, {"i": np.array([4, 0, -1, 1])})


def test_gather_from_a_table_by_data() -> None:
    program = check([node("Gather", ["x", "i"])], {"i": PLACES}, {"x": TABLE})
    (only,) = program.expression_nodes()
    assert "choose(equal(" in only.scope.text()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("constant", [True, False])
def test_gather_elements(axis: int, constant: bool) -> None:
    extent = TABLE.shape[axis]
    places = np.random.default_rng(axis).integers(-extent, extent, (7, 3, 5))
    given = {"i": places}
    check([node("GatherElements", ["x", "i"], axis=axis)], {"x": TABLE, **({} if constant else given)}, given if constant else None)


@pytest.mark.parametrize(("places", "batch"), [
    (np.array([[0, 1], [2, -1], [6, 0]]), 0), (np.array([[0, 1], [1, 1], [2, 1]]), 0), (np.array([[[2], [0]]] * 7), 1),
    (np.array([[5], [0], [4]]), 0),
])  # fmt: skip
def test_gather_nd(places: np.ndarray, batch: int) -> None:
    check([node("GatherND", ["x", "i"], batch_dims=batch)], {"x": TABLE}, {"i": places}, opaque=None)


def test_gather_nd_by_data() -> None:
    check([node("GatherND", ["x", "i"])], {"x": TABLE, "i": np.array([[2], [-1], [6]])})


def test_what_is_not_taken_may_be_nan() -> None:
    table = np.array([[1, np.nan], [np.inf, 2]], np.float32)
    model = build([node("Gather", ["x", "i"])], {"x": table, "i": ints(1, 0, 1)})
    found = interpret(load(model), {"x": table, "i": ints(1, 0, 1)}, run_opaque, dtype="float32")
    np.testing.assert_array_equal(found["y"], table[[1, 0, 1]])


@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.BOOL])
def test_casts_of_integers(to: int) -> None:
    nodes = [node("Cast", ["i"], ["c"], to=to)]
    nodes += [node("Where", ["c", "x", "w"])] if to == TensorProto.BOOL else [node("Mul", ["c", "x"])]
    check(nodes, {"i": np.array([[0, 1 << 40, -3]]), "x": values((2, 3)), "w": values((2, 3), 1)} if to == TensorProto.BOOL else
          {"i": np.array([[0, 1 << 30, -3]]), "x": values((2, 3))})  # fmt: skip


@pytest.mark.parametrize("op", ["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
def test_integers_beside_a_small_constant(op: str) -> None:
    """Large integers are rounded, and stay on their side."""
    given = {"i": np.array([[-1, 0, 5, 6, (1 << 24) + 1, 1 << 60, -(1 << 60)]]), "x": values((2, 7)), "w": values((2, 7), 1)}
    check([node(op, ["i", "k"], ["c"]), node("Where", ["c", "x", "w"])], given, {"k": np.array(5)})


def test_integers_beside_integers_stay_opaque() -> None:
    """float32 does not tell 2^24 from its successor."""
    given = {"i": ints((1 << 24) + 1), "j": ints(1 << 24), "x": values((1,)), "w": values((1,), 1)}
    check([node("Equal", ["i", "j"], ["c"]), node("Where", ["c", "x", "w"])], given, opaque=True)
    check([node("Equal", ["i", "k"], ["c"]), node("Where", ["c", "x", "w"])], {n: given[n] for n in "ixw"}, {"k": ints(1 << 24)}, opaque=True)


def test_large_integers_are_moved_by_nobody_else() -> None:
    """A transposed tensor of integers is no float32; one that stays in place is read where it stands."""
    given = {"i": np.array([[0, 2, 1], [1, 0, 2]]), "x": values((3, 4))}
    check([node("Transpose", ["i"], ["j"], perm=[1, 0]), node("Gather", ["x", "j"])], given, opaque=True)
    check([node("Reshape", ["i", "s"], ["j"]), node("Gather", ["x", "j"])], given, {"s": ints(2, 3)})


def test_small_integers_move() -> None:
    """Token types: a constant table of integers, read at places that are data, gives places."""
    nodes = [node("Gather", ["types", "i"], ["j"]), node("Gather", ["x", "j"])]
    check(nodes, {"i": np.array([[0, 2, 1], [1, 0, 2]]), "x": values((3, 4))}, {"types": ints(2, 0, 1)})


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_truth_values_as_inputs(op: str) -> None:
    rng = np.random.default_rng(0)
    check([node(op, ["a", "b"])], {"a": rng.random((3, 4)) < 0.5, "b": rng.random((4,)) < 0.5}, opaque=True)


def test_negation_of_an_input() -> None:
    check([node("Not", ["a"])], {"a": np.array([True, False])}, opaque=True)


def test_a_mask_of_tokens() -> None:
    """A mask of whole numbers, as transformers take it: broadcast, cast, moved, and added to scores."""
    nodes = [
        node("Cast", ["mask"], ["c"], to=TensorProto.BOOL), node("Unsqueeze", ["c", "axes"], ["d"]), node("Expand", ["d", "shape"], ["e"]),
        node("Where", ["e", "zero", "least"], ["bias"]), node("Add", ["s", "bias"], ["t"]), node("Softmax", ["t"], axis=-1),
    ]  # fmt: skip
    constants = {"axes": ints(1, 2), "shape": ints(2, 1, 4, 6), "zero": np.float32(0), "least": np.float32(-np.inf)}
    check(nodes, {"mask": np.array([[1] * 6, [1, 1, 1, 0, 0, 0]]), "s": values((2, 3, 4, 6))}, {k: np.asarray(v) for k, v in constants.items()})
