"""Element functions, activations, reductions and normalisations against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from einnet.expr.notation.text import parse
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import GIVEN_OUT, load
from einnet.graph.program import Opaque
from tests.graph.cases import build, check, ints, node, reference, run_opaque, values

X = values((2, 3, 4, 5), 3, -3.0, 3.0)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize(("a", "b"), [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 1), (2, 1, 4)), ((), (2, 3)), ((1, 3, 1, 1), (2, 3, 2, 2))])
def test_binary(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check([node(op, ["a", "b"])], {"a": values(a), "b": values(b, 1, 0.5, 2.0)})


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 3])
def test_variadic(op: str, count: int) -> None:
    inputs = {n: values((2, 3) if k else (3,), k) for k, n in enumerate("abc"[:count])}
    check([node(op, list(inputs))], inputs)


@pytest.mark.parametrize("constant", [np.float32(2), np.float32(0.5), np.float32(3), np.float32(1.7), np.float32(-1), ints(2), np.int64(3)])
def test_power_of_constant(constant: np.ndarray) -> None:
    check([node("Pow", ["x", "e"])], {"x": np.abs(X) + 0.1}, {"e": np.asarray(constant)})


def test_power_of_tensor() -> None:
    check([node("Pow", ["x", "e"])], {"x": np.abs(X) + 0.1, "e": values((5,))})


def test_scalar_constant_becomes_exact_decimal() -> None:
    program = check([node("Mul", ["x", "k"])], {"x": values((2, 3))}, {"k": np.full((1,), 0.1, np.float32)})
    (only,) = program.expression_nodes()
    assert only.scope.text() == "L[m<2,n<3] x[m,n]*0.1"
    assert not program.weights


UNARY: list[tuple[str, dict[str, Any]]] = [
    *[(op, {}) for op in ("Neg", "Exp", "Abs", "Sign", "Floor", "Ceil", "Round", "Sin", "Cos", "Tan", "Atan", "Asinh")],
    *[(op, {}) for op in ("Relu", "Sigmoid", "Tanh", "Erf")],
    *[(op, {}) for op in ("Softplus", "Softsign", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "ThresholdedRelu")],
    ("LeakyRelu", {"alpha": 0.3}), ("LeakyRelu", {"alpha": -0.3}), ("LeakyRelu", {"alpha": 1.5}), ("Elu", {"alpha": 0.7}),
    ("Selu", {"alpha": 1.5, "gamma": 2.0}), ("Celu", {"alpha": 0.6}), ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}),
    ("ThresholdedRelu", {"alpha": 0.4}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attributes"), UNARY)
def test_unary(op: str, attributes: dict[str, Any]) -> None:
    check([node(op, ["x"], **attributes)], {"x": X})


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Reciprocal"])
def test_unary_of_positive(op: str) -> None:
    check([node(op, ["x"])], {"x": np.abs(X) + 0.2})


@pytest.mark.parametrize(("op", "attributes", "opset"), [("Gelu", {}, 20), ("Gelu", {"approximate": "tanh"}, 20), ("Mish", {}, 18)])
def test_newer_activations(op: str, attributes: dict[str, Any], opset: int) -> None:
    check([node(op, ["x"], **attributes)], {"x": X}, opset=opset)


@pytest.mark.parametrize("slope", [(3, 1, 1), (1,), (2, 3, 4, 5), (5,)])
def test_prelu(slope: tuple[int, ...]) -> None:
    check([node("PRelu", ["x", "s"])], {"x": X}, {"s": values(slope)})


@pytest.mark.parametrize("bounds", [(), ("lo",), ("", "hi"), ("lo", "hi"), ("hi", "lo")])
def test_clip(bounds: tuple[str, ...]) -> None:
    held = {"lo": np.array(-0.3, np.float32), "hi": np.array(0.6, np.float32)}
    check([node("Clip", ["x", *bounds])], {"x": X}, {k: v for k, v in held.items() if k in bounds})


def test_clip_by_attributes_and_by_tensors() -> None:
    check([node("Clip", ["x"], min=-0.25, max=0.5)], {"x": X}, opset=6)
    check([node("Clip", ["x"], min=0.1)], {"x": X}, opset=6)
    check([node("Clip", ["x", "lo"])], {"x": X, "lo": np.array(-0.3, np.float32)})


REDUCE = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]


@pytest.mark.parametrize("op", REDUCE)
@pytest.mark.parametrize(("axes", "keep"), [((1,), 1), ((0, 2), 0), ((-1, 1), 1), (None, 1), (None, 0), ((2, 3), 0)])
@pytest.mark.parametrize("opset", [11, 18])
def test_reduce(op: str, axes: tuple[int, ...] | None, keep: int, opset: int) -> None:
    x = {"x": np.abs(X) + 0.1}
    if axes is None or (opset < 13 or (opset < 18 and op != "ReduceSum")):
        check([node(op, ["x"], keepdims=keep, **({"axes": axes} if axes else {}))], x, opset=opset)
    else:
        check([node(op, ["x", "axes"], keepdims=keep)], x, {"axes": ints(*axes)}, opset=opset)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(("axis", "keep", "last"), [(0, 1, 0), (1, 0, 0), (-1, 1, 1), (3, 0, 1), (None, None, None)])
def test_place_of_best(op: str, axis: int | None, keep: int | None, last: int | None) -> None:
    given = {"axis": axis, "keepdims": keep, "select_last_index": last}
    attributes = {name: value for name, value in given.items() if value is not None}
    for x in (X, np.round(X), np.zeros_like(X)):
        program = check([node(op, ["x"], **attributes)], {"x": x}, opaque=None)
        assert [n.why for n in program.nodes if isinstance(n, Opaque)] == [GIVEN_OUT]


def test_the_place_of_a_nan_is_the_place_of_the_best() -> None:
    x = np.array([[1, np.nan, 3, np.nan], [4, 3, 2, 4], [np.inf, 1, np.inf, 0]], np.float32)
    for last, places in ((0, [1, 0, 0]), (1, [3, 3, 2])):
        model = build([node("ArgMax", ["x"], ["y"], axis=1, keepdims=0, select_last_index=last)], {"x": x}, ["y"])
        (found,) = interpret(load(model), {"x": x}, run_opaque).values()
        assert found.tolist() == places


def test_the_place_of_the_best_is_an_integer_that_others_read() -> None:
    nodes = [
        node("ArgMax", ["x"], ["p"], axis=1, keepdims=1), node("GatherElements", ["x", "p"], ["best"], axis=1), node("Cast", ["p"], ["f"], to=1),
        node("Add", ["best", "f"], ["y"]),
    ]  # fmt: skip
    program = check(nodes, {"x": X})
    assert len(list(program.expression_nodes())) == len(program.nodes)


def test_product_is_opaque() -> None:
    check([node("ReduceProd", ["x"], axes=[1])], {"x": X}, opaque=True)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (0, 17), (1, 11), (2, 11), (-1, 11), (0, 11)])
def test_softmax(op: str, axis: int, opset: int) -> None:
    check([node(op, ["x"], axis=axis)], {"x": X}, opset=opset)


def test_softmax_is_stable() -> None:
    check([node("Softmax", ["x"])], {"x": X * 1000})


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 3, 2)])
def test_batch_normalization(shape: tuple[int, ...]) -> None:
    held = {n: values((3,), k, 0.5, 1.5) for k, n in enumerate("sbmv")}
    check([node("BatchNormalization", ["x", *"sbmv"], epsilon=1e-3)], {"x": values(shape)}, held)


@pytest.mark.parametrize("axis", [-1, 1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_normalization(axis: int, bias: bool) -> None:
    held = {n: values(X.shape[axis:], k) for k, n in enumerate("sb" if bias else "s")}
    check([node("LayerNormalization", ["x", *held], axis=axis)], {"x": X}, held)


def test_layer_normalization_statistics() -> None:
    held = {"s": values((5,))}
    check([node("LayerNormalization", ["x", "s"], ["y", "mean", "inv"])], {"x": X}, held, outputs=("y", "mean", "inv"))


def test_group_normalization() -> None:
    held = {"s": values((6,), 1), "b": values((6,), 2)}
    check([node("GroupNormalization", ["x", "s", "b"], num_groups=3)], {"x": values((2, 6, 3, 4))}, held, opset=21)


def test_other_normalizations() -> None:
    check([node("InstanceNormalization", ["x", "s", "b"])], {"x": X}, {"s": values((3,), 1), "b": values((3,), 2)})
    check([node("LRN", ["x"], size=3, alpha=0.3, beta=0.6, bias=1.5)], {"x": values((2, 6, 3, 3))})
    check([node("RMSNormalization", ["x", "s"], axis=-2)], {"x": X}, {"s": values((4, 5))}, opset=23)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pool(op: str, rank: int) -> None:
    check([node(op, ["x"])], {"x": values((2, 3, 4, 5, 2)[: 2 + rank])})


POOL: list[tuple[tuple[int, ...], dict[str, Any], int]] = [
    ((1, 2, 9), {"kernel_shape": [3]}, 17),
    ((1, 2, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2]}, 17),
    ((1, 2, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 17),
    ((1, 2, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [0, 1, 2, 1]}, 17),
    ((1, 2, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 19),
    ((1, 2, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 1, 0, 0], "ceil_mode": 1}, 19),
    ((1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, 17),
    ((1, 2, 7, 8), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, 17),
    ((1, 2, 7, 8), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "VALID"}, 17),
    ((1, 2, 9, 9), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 2, 1]}, 19),
    ((1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2], "pads": [1, 0, 1, 0, 1, 1]}, 17),
]


@pytest.mark.parametrize(("shape", "attributes", "opset"), POOL)
def test_max_pool(shape: tuple[int, ...], attributes: dict[str, Any], opset: int) -> None:
    check([node("MaxPool", ["x"], **attributes)], {"x": values(shape, 0, -3, -1)}, opset=opset)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize(("shape", "attributes", "opset"), POOL)
def test_average_pool(shape: tuple[int, ...], attributes: dict[str, Any], opset: int, include: int) -> None:
    check([node("AveragePool", ["x"], count_include_pad=include, **attributes)], {"x": values(shape)}, opset=opset)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p: int) -> None:
    check([node("LpPool", ["x"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], p=p)], {"x": values((1, 2, 8, 9))}, opset=18)


def test_max_pool_with_indices_is_opaque() -> None:
    check([node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])], {"x": values((1, 2, 4, 4))}, outputs=("y", "i"), opaque=True)


@pytest.mark.parametrize("one", [node("ThresholdedRelu", ["x"], ["y"], alpha=0.4), node("ThresholdedRelu", ["x"], ["y"], alpha=-2.0)])
def test_what_is_cut_off_may_be_infinite(one: Any) -> None:
    x = np.array([[-np.inf, 0.3, 0.5], [-3.0, -1.0, 2.0]], np.float32)
    model = build([one], {"x": x}, ["y"])
    np.testing.assert_array_equal(interpret(load(model), {"x": x}, run_opaque)["y"], reference(model, {"x": x})["y"])


def test_a_logarithm_of_a_sum_of_nothing_is_minus_infinity() -> None:
    x = np.full((2, 3), -np.inf, np.float32)
    x[1, 1] = 2.0
    model = build([node("ReduceLogSumExp", ["x"], ["y"], axes=[1])], {"x": x}, ["y"])
    program = load(model)
    np.testing.assert_array_equal(interpret(program, {"x": x}, run_opaque)["y"], [[-np.inf], [2.0]])
    assert all(parse(str(n.scope)) == n.scope for n in program.expression_nodes())
