"""Quantised tensors: rounding, saturation, sums of integers and what is scaled back, against ONNX Runtime."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from onnx import TensorProto

from einnet.evidence.comparison.verify import apart_from_itself, compare_outputs, stepped
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import GIVEN_OUT, load
from einnet.graph.operators.op import EXACT_INTEGERS
from einnet.graph.operators.quantised import greatest
from einnet.graph.program import Node, Opaque, Program
from einnet.runtime.ort import Session
from tests.graph.cases import build, check, compare, node, run_opaque, values

RNG = np.random.default_rng(7)


def drawn(kind: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    info = np.iinfo(kind)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(kind)


def single(value: float) -> np.ndarray:
    return np.array(value, np.float32)


SCALES = values((4,), 9, 0.01, 0.02)
IMAGE, FILTERS = drawn("uint8", (2, 4, 6, 6)), drawn("int8", (6, 4, 3, 3), 1)


@pytest.mark.parametrize(("kind", "zero"), [("uint8", 128), ("uint8", 3), ("int8", -4), ("uint16", 30000), ("int16", 5)])
def test_quantize(kind: str, zero: int) -> None:
    """Beyond the ends too."""
    constants = {"s": single(0.0125), "z": np.array(zero, kind)}
    check([node("QuantizeLinear", ["x", "s", "z"])], {"x": values((3, 40), 0, -4, 4) * 2}, constants, opset=21, opaque=True)


def test_quantize_without_a_zero_point_and_by_channel() -> None:
    check([node("QuantizeLinear", ["x", "s"])], {"x": values((3, 40), 0, -4, 4)}, {"s": single(0.0125)}, opset=21, opaque=True)
    by_channel = {"s": SCALES, "z": drawn("int8", (4,))}
    check([node("QuantizeLinear", ["x", "s", "z"], axis=-2)], {"x": values((3, 4, 9), 0)}, by_channel, opset=21, opaque=True)


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16"])
def test_dequantize(kind: str) -> None:
    constants = {"s": single(0.0125), "z": np.array(7, kind), "x": drawn(kind, (3, 40))}
    nodes = [node("DequantizeLinear", ["q", "s", "z"])]
    check([node("QuantizeLinear", ["x", "s", "z"], ["q"]), *nodes], {"x": values((3, 40))}, {k: constants[k] for k in "sz"}, opset=21)
    check([node("DequantizeLinear", ["x", "s", "z"], ["a"]), node("Add", ["a", "b"])], {"b": values((3, 40))}, constants, opset=21)


def test_dequantize_by_channel_and_block() -> None:
    x = drawn("uint8", (3, 4, 6))
    check([node("DequantizeLinear", ["x", "s", "z"], axis=1)], {"x": x}, {"s": SCALES, "z": drawn("uint8", (4,), 1)}, opset=21)
    blocks = {"s": values((3, 4, 2), 1, 0.01, 0.02), "z": drawn("uint8", (3, 4, 2), 1)}
    check([node("DequantizeLinear", ["x", "s", "z"], axis=2, block_size=3)], {"x": x}, blocks, opset=21)


@pytest.mark.parametrize(("low", "high"), [(-2, 3), (0.5, 2), (-3, -1), (0, 0)])
def test_dynamic(low: float, high: float) -> None:
    """The range holds 0; all zeros have a scale of 1."""
    nodes = [node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])]
    check(nodes, {"x": values((5, 8), 0, low, high)}, outputs=("y", "s", "z"), opset=21, opaque=True)


@pytest.mark.parametrize("zeros", [["", ""], ["z", ""], ["z", "v"]])
def test_matmul_of_integers(zeros: list[str]) -> None:
    used = [name for name in zeros if name]
    constants = {"w": drawn("int8", (9, 4), 1), "z": np.array(100, np.uint8), "v": drawn("int8", (4,), 2)}
    nodes = [node("MatMulInteger", ["x", "w", *zeros], ["i"]), node("Cast", ["i"], to=TensorProto.FLOAT)]
    check(nodes, {"x": drawn("uint8", (3, 9))}, {name: constants[name] for name in ("w", *used)}, opset=21)


def test_integers_given_out() -> None:
    check([node("MatMulInteger", ["x", "w"])], {"x": drawn("uint8", (3, 9))}, {"w": drawn("int8", (9, 4), 1)}, opset=21, opaque=True)


def test_integers_of_a_convolution_given_out() -> None:
    check([node("ConvInteger", ["x", "w", "z"])], {"x": IMAGE}, {"w": FILTERS, "z": np.array(100, np.uint8)}, opset=21, opaque=True)


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 2, 1, 0]}, {"strides": [2, 1], "dilations": [1, 2]}, {"auto_pad": "SAME_UPPER"}])
def test_convolution_of_integers(attributes: dict[str, object]) -> None:
    """What is padded is the zero point."""
    nodes = [node("ConvInteger", ["x", "w", "z"], ["i"], **attributes), node("Cast", ["i"], to=TensorProto.FLOAT)]
    check(nodes, {"x": IMAGE}, {"w": FILTERS, "z": np.array(100, np.uint8)}, opset=21)


@pytest.mark.parametrize("channels", [False, True])
def test_matmul_scaled_back(channels: bool) -> None:
    """Weights of six bits: of this operator ONNX Runtime cuts the sums of larger ones at 16 bits without VNNI, whatever it is told."""
    scale = SCALES if channels else single(0.0125)
    constants = {"s": single(0.01), "z": np.array(100, np.uint8), "w": drawn("int8", (9, 4), 1) // 2, "ws": scale,
                 "wz": np.zeros(scale.shape, np.int8), "ys": single(0.3), "yz": np.array(7, np.uint8)}  # fmt: skip
    check([node("QLinearMatMul", ["x", "s", "z", "w", "ws", "wz", "ys", "yz"])], {"x": drawn("uint8", (30, 9))}, constants, opset=21, opaque=True)


@pytest.mark.parametrize(("channels", "group", "bias"), [(False, 1, False), (True, 1, True), (True, 2, True)])
def test_convolution_scaled_back(channels: bool, group: int, bias: bool) -> None:
    scale = values((6,), 3, 0.01, 0.02) if channels else single(0.0125)
    constants = {"s": single(0.01), "z": np.array(100, np.uint8), "w": FILTERS[:, : 4 // group], "ws": scale,
                 "wz": np.zeros(scale.shape, np.int8), "ys": single(0.2), "yz": np.array(7, np.uint8)}  # fmt: skip
    if bias:
        constants["b"] = np.array([1000, -20000, 3, 0, 77, 5000], np.int32)
    nodes = [node("QLinearConv", ["x", *constants], pads=[1, 0, 1, 2], group=group)]
    check(nodes, {"x": IMAGE}, constants, opset=21, opaque=True)


def test_integers_are_pooled_and_moved() -> None:
    constants = {"s": single(0.0125), "z": np.array(7, np.uint8)}
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2], pads=[1] * 4), node("Transpose", ["p"], ["t"], perm=[0, 2, 3, 1]),
        node("DequantizeLinear", ["t", "s", "z"]),
    ]  # fmt: skip
    check(nodes, {"x": IMAGE}, constants, opset=21)


def kept(program: Program) -> list[Opaque]:
    return [n for n in program.nodes if isinstance(n, Opaque) and n.why != GIVEN_OUT]


def of_length(count: int, weight: int, zero: int | None) -> Program:
    """A product of integers with so many terms, all weights equal; without a zero point it is another one each run."""
    inputs = {"x": np.full((1, count), 255, np.uint8)} | ({} if zero is not None else {"z": np.array(0, np.uint8)})
    constants = {"w": np.full((count, 1), weight, np.int8)} | ({} if zero is None else {"z": np.array(zero, np.uint8)})
    model = build([node("MatMulInteger", ["x", "w", "z"])], inputs, constants=constants, opset=21)
    program = load(model)
    compare(program, model, inputs)
    return program


@pytest.mark.parametrize(("weight", "zero", "most"), [(127, 0, 255), (-127, 128, 128), (127, 255, 255), (100, None, 255)])
def test_sums_beyond_what_float32_counts_stay_whole(weight: int, zero: int | None, most: int) -> None:
    """The longest sum that cannot leave the integers of float32 is an expression, the next longer one is not."""
    longest = EXACT_INTEGERS // (abs(weight) * most)
    assert not kept(of_length(longest, weight, zero))
    (left,) = kept(of_length(longest + 1, weight, zero))
    assert f"and float32 counts to {EXACT_INTEGERS}" in left.why


@pytest.mark.parametrize("beyond", [0, 1])
def test_what_is_added_to_a_sum_counts(beyond: int) -> None:
    longest = EXACT_INTEGERS // (127 * 255)
    scales = {"s": single(0.01), "z": np.array(0, np.uint8), "w": np.full((1, longest, 1), 127, np.int8), "ws": single(0.01),
              "wz": np.array(0, np.int8), "ys": single(10), "yz": np.array(0, np.uint8)}  # fmt: skip
    bias = np.array([longest * 127 * 255 - EXACT_INTEGERS - beyond], np.int32)
    inputs = {"x": np.full((1, longest, 2), 255, np.uint8)}
    model = build([node("QLinearConv", ["x", *scales, "b"])], inputs, constants=scales | {"b": bias}, opset=21)
    assert bool(kept(load(model))) == bool(beyond)
    compare(load(model), model, inputs)


def test_the_bound_is_of_every_part_of_a_sum() -> None:
    weights = np.array([[3, -5], [-2, 1]])
    assert greatest(weights, (0,), ((1, 10),)) == max(3 * 10 + 2, 2 * 10 + 3, 5 * 10 + 1, 10 + 5)
    assert greatest(weights, (0,), ((0, 255), (255, 0))) == 5 * 255
    for _ in range(200):
        w, x = RNG.integers(-9, 10, (6, 1)), RNG.integers(-4, 8, 6)
        part = RNG.random(6) < 0.6
        assert abs((w[:, 0] * x)[part].sum()) <= greatest(w, (0,), ((4, 7),))


def test_ties_go_to_even() -> None:
    """Exactly: what lies in the middle of two integers goes to the even one, before the zero point is added."""
    x = np.arange(-9, 10, dtype=np.float32).reshape(1, -1) / 4
    model = build([node("QuantizeLinear", ["x", "s", "z"])], {"x": x}, constants={"s": single(0.5), "z": np.array(101, np.uint8)}, opset=21)
    program = load(model)
    first = next(n for n in program.nodes if isinstance(n, Node))
    exact = np.array([Fraction(v) for v in x.reshape(-1).tolist()], dtype=object).reshape(x.shape)
    found = evaluate(first.scope, {"x": exact}, "int")
    np.testing.assert_array_equal(found.astype(np.int64), np.rint(x.astype(np.float64) / 0.5).astype(np.int64) + 101)
    assert interpret(program, {"x": x}, run_opaque)["y"].dtype == np.uint8


def test_an_output_may_be_a_step_away_where_the_model_rounds() -> None:
    x, constants = {"x": values((3, 5))}, {"s": single(0.5), "z": np.array(2, np.uint8)}
    pair = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"])]
    casts = [node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), node("Cast", ["h"], to=TensorProto.FLOAT)]
    programs = [load(build(nodes, x, constants=constants, opset=21)) for nodes in (pair, casts, [node("Floor", ["x"])])]
    assert [stepped(p, 1e-4) for p in programs] == [2.0**-7, 2.0**-10, 1e-4]
    assert stepped(programs[0], 0.5) == 0.5
    y = {"y": np.array([1.0, -0.5], np.float32)}
    for program, passed in zip(programs, (True, False, False), strict=True):
        assert compare_outputs({"y": y["y"] + np.float32(0.005)}, y, stepped(program, 1e-4)).passed == passed


def test_what_the_reference_is_apart_from_itself_counts_twice_where_the_model_rounds() -> None:
    x, constants = values((3, 5), 0, -8, 8), {"s": single(0.5), "z": np.array(2, np.uint8)}
    pair = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"])]
    for nodes, rounds in ((pair, True), ([node("Floor", ["x"])], False)):
        model = build(nodes, {"x": x}, constants=constants if rounds else {}, opset=21)
        program, right = load(model), Session(model.SerializeToString(), 1)({"x": x})
        other = {"y": right["y"] + np.float32(0.25) * np.abs(right["y"]).max()}
        found = apart_from_itself(program, model, {"same": ({"x": x}, right), "other": ({"x": x}, other)})
        assert found["same"] == 0 and (0.1 < found["other"] <= 0.25) == rounds, found
        assert stepped(program, 1e-4, 0.2) == (0.4 if rounds else 1e-4)


def test_the_expression_of_a_pair() -> None:
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"])]
    program = check(nodes, {"x": values((3, 5), 0, -8, 8)}, {"s": single(0.5), "z": np.array(2, np.uint8)}, opset=21)
    quantised, numbers = (n.scope for n in program.nodes if isinstance(n, Node))
    assert quantised == parse("x : f32[3,5]\nL[m<3,n<5] min(max(round(x[m,n]/0.5) + 2, 0), 255)")
    assert numbers.text() == "L[m<3,n<5] (q[m,n] + (-2))*0.5"
