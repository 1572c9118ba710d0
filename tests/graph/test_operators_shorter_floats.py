"""Models that carry float16: expressions of numbers, rounded where the model casts and where they leave it, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from einnet.evidence.comparison.verify import compare_outputs
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import GIVEN_OUT, load
from einnet.graph.program import Opaque, Program
from tests.graph.cases import build, node, reference, run_opaque, values

UNIT = 2.0**-10
"""Neighbours of float16 are that far apart, relative, at most."""


def half(shape: Sequence[int], seed: int = 0, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return values(shape, seed, low, high).astype(np.float16)


def check(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray] | None = None, opaque: Sequence[str] = ()
) -> Program:
    """Build, load and compare: every output is within one unit in the last place of float16 of its greatest; the kept nodes are those named."""
    model = build(nodes, inputs, constants=constants, opset=20)
    program = load(model)
    assert [n.origin[0].split()[0] for n in program.nodes if isinstance(n, Opaque) and n.why != GIVEN_OUT] == list(opaque)
    found, wanted = interpret(program, inputs, run_opaque), reference(model, inputs)
    for name, y in wanted.items():
        assert found[name].shape == y.shape
        x, y = found[name].astype(np.float64), y.astype(np.float64)
        same = (x == y) | np.isnan(x) & np.isnan(y)
        scale = np.abs(y[np.isfinite(y)]).max(initial=0.0)
        with np.errstate(invalid="ignore"):
            assert (same | (np.abs(x - y) <= UNIT * scale)).all(), name
    return program


def test_perceptron() -> None:
    nodes = [node("MatMul", ["x", "v"], ["a"]), node("Add", ["a", "b"], ["c"]), node("Relu", ["c"], ["d"]), node("Gemm", ["d", "w", "e"], transB=1)]
    check(nodes, {"x": half((5, 24))}, {"v": half((24, 16), 1), "b": half((16,), 2), "w": half((10, 16), 3), "e": half((10,), 4)})


def test_convolutions() -> None:
    nodes = [
        node("Conv", ["x", "v", "b"], ["a"], pads=[1] * 4), node("BatchNormalization", ["a", "g", "b", "b", "g"], ["n"]),
        node("HardSwish", ["n"], ["r"]), node("Conv", ["r", "w"], ["c"], pads=[1] * 4), node("Add", ["c", "x"], ["s"]),
        node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), node("GlobalAveragePool", ["p"]),
    ]  # fmt: skip
    check(nodes, {"x": half((1, 4, 8, 8))}, {"v": half((6, 4, 3, 3), 1), "b": half((6,), 2), "g": half((6,), 3, 0.5), "w": half((4, 6, 3, 3), 4)})


def test_attention() -> None:
    nodes = [
        node("LayerNormalization", ["x", "g", "b"], ["n"]), node("MatMul", ["n", "wq"], ["q"]), node("MatMul", ["n", "wk"], ["k"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s0"]), node("Div", ["s0", "root"], ["s1"]),
        node("Where", ["mask", "s1", "least"], ["s2"]), node("Softmax", ["s2"], ["p"]), node("MatMul", ["p", "n"], ["o"]),
        node("Gelu", ["o"], ["h"]), node("Add", ["h", "x"]),
    ]  # fmt: skip
    constants = {"g": half((16,), 1, 0.5), "b": half((16,), 2), "wq": half((16, 16), 3), "wk": half((16, 16), 4),
                 "root": np.array(4, np.float16), "least": np.array(-np.inf, np.float16)}  # fmt: skip
    check(nodes, {"x": half((2, 6, 16)), "mask": np.tril(np.ones((6, 6), bool))}, constants)


@pytest.mark.parametrize(("op", "shapes", "attributes"), [
    ("Sqrt", [(3, 4)], {}), ("Clip", [(3, 4), (), ()], {}), ("Pow", [(3, 4), ()], {}), ("Concat", [(3, 4), (2, 4)], {"axis": 0}),
    ("Transpose", [(3, 4)], {"perm": [1, 0]}), ("ReduceMean", [(3, 4)], {}), ("Max", [(3, 4), (4,)], {}), ("Softmax", [(3, 4)], {}),
    ("InstanceNormalization", [(2, 4, 5), (4,), (4,)], {}), ("Mish", [(3, 4)], {}), ("Sigmoid", [(3, 4)], {}),
])  # fmt: skip
def test_operator(op: str, shapes: list[tuple[int, ...]], attributes: dict[str, int]) -> None:
    given = {f"x{n}": half(shape, n, 0.25, 2.0) for n, shape in enumerate(shapes)}
    operands = dict(list(given.items())[:1])
    check([node(op, list(given), **attributes)], operands, {k: v for k, v in given.items() if k not in operands})


def test_comparisons_and_truth_values() -> None:
    cast = node("Cast", ["c"], ["e"], to=TensorProto.FLOAT16)
    nodes = [node("Less", ["x", "w"], ["c"]), node("Where", ["c", "x", "w"], ["d"]), cast, node("Add", ["d", "e"])]
    check(nodes, {"x": half((3, 4)), "w": half((3, 4), 1)})


def test_a_cast_rounds_and_nothing_else_does() -> None:
    """x² is rounded between two casts, where neighbours of 1 coincide; as a product of float16 it is not until it leaves."""
    x = (1 + np.arange(16, dtype=np.float32) / 4096).reshape(4, 4)
    casts = [node("Mul", ["x", "x"], ["a"]), node("Cast", ["a"], ["b"], to=TensorProto.FLOAT16), node("Cast", ["b"], to=TensorProto.FLOAT)]
    program = check(casts, {"x": x})
    np.testing.assert_array_equal(interpret(program, {"x": x})["y"], (x.astype(np.float64) ** 2).astype(np.float16).astype(np.float64))
    inside = [node("Mul", ["x", "x"], ["a"]), node("Cast", ["a"], to=TensorProto.FLOAT)]
    narrow = x.astype(np.float16)
    program = check(inside, {"x": narrow})
    np.testing.assert_array_equal(interpret(program, {"x": narrow})["y"], narrow.astype(np.float64) ** 2)


def test_what_is_beyond_float16_is_infinite_where_it_is_cast() -> None:
    x = np.array([65503, 65519.9, 65520, -7e4, np.nan, 1e-8, 3e-8, 6e-5], np.float32)
    check([node("Cast", ["x"], ["a"], to=TensorProto.FLOAT16), node("Cast", ["a"], to=TensorProto.FLOAT)], {"x": x})
    check([node("Cast", ["x"], to=TensorProto.FLOAT16)], {"x": x})


def test_an_opaque_node_between_reads_and_gives_float16() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("TopK", ["a", "k"], ["b", "i"], axis=1), node("Mul", ["b", "b"])]
    check(nodes, {"x": half((3, 8))}, {"k": np.array([4])}, opaque=["TopK"])


def test_an_input_and_a_constant_given_out() -> None:
    check([node("Identity", ["x"])], {"x": half((3, 4))})
    check([node("Identity", ["w"], ["v"]), node("Sub", ["v", "x"])], {"x": half((3, 4))}, {"w": half((3, 4), 1)})


def test_integers_become_float16_where_float32_has_them() -> None:
    check([node("Cast", ["i"], ["h"], to=TensorProto.FLOAT16), node("Mul", ["h", "x"])], {"x": half((3,))}, {"i": np.array([1, 2049, 30001])})
    check([node("Cast", ["i"], ["h"], to=TensorProto.FLOAT16), node("Mul", ["h", "x"])], {"x": half((3,)), "i": np.array([1, 2, 3])}, opaque=["Cast"])


@pytest.mark.parametrize(("kind", "apart", "passed"), [
    (np.float16, 4, True), (np.float16, 5, False), (np.float32, 4096, False), (np.float32, 100, True),
])  # fmt: skip
def test_an_output_passes_within_some_units_of_its_type(kind: type[np.floating], apart: int, passed: bool) -> None:
    y = {"y": np.array([1.0, 0.5], kind)}
    found = compare_outputs({"y": y["y"] + kind(apart) * np.finfo(kind).eps}, y, 1e-4)
    assert found.passed == passed
    assert found.tolerance == (2.0**-8 if kind is np.float16 else 1e-4)
