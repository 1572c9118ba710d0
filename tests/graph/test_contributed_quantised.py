"""Operators of ONNX Runtime on quantised tensors, and whole networks that its quantiser makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from einnet.graph.interpret import interpret
from einnet.graph.onnx.contributed.registry import DOMAIN
from einnet.graph.onnx.importer import GIVEN_OUT, load
from einnet.graph.program import Opaque, Program
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.program import Executable
from tests.graph.cases import build, node, reference, run_opaque, values
from tests.test_random_graphs import plan_of

Arrays = dict[str, np.ndarray]


def u8(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def i8(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


def f32(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def zero(value: int) -> np.ndarray:
    return np.array(value, np.uint8)


X: Arrays = {"xs": f32(0.02), "xz": zero(100)}
W: Arrays = {"ws": f32(0.017), "wz": zero(120)}
Y: Arrays = {"ys": f32(0.03), "yz": zero(90)}


def kept(program: Program) -> list[str]:
    return [n.why for n in program.nodes if isinstance(n, Opaque) and n.why != GIVEN_OUT]


def check(op: str, inputs: Arrays, order: str, constants: Arrays, steps: int = 1, tolerance: float = 0.0, **attributes: Any) -> None:
    """One node has expressions, and gives what ONNX Runtime gives, up to so many steps: what lies within rounding of the middle may go either way."""
    names = ["" if name == "-" else name for name in order.split()]
    kind = TensorProto.FLOAT if tolerance else TensorProto.UINT8
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="it", domain=DOMAIN, **attributes)],
        "test",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(a, n) for n, a in constants.items() if n in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], ir_version=8)
    program = load(model)
    assert kept(program) == []
    got, want = interpret(program, inputs, run_opaque)["y"], reference(model, inputs)["y"]
    if tolerance:
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())
        return
    apart = np.abs(got.astype(np.int64) - want)
    assert got.shape == want.shape
    assert apart.max() <= steps
    assert np.count_nonzero(apart) <= 0.02 * apart.size


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_two_tensors(op: str) -> None:
    check(op, {"x": u8((3, 4, 50)), "w": u8((4, 50), 1)}, "x xs xz w ws wz ys yz", X | W | Y)


def test_one_tensor() -> None:
    check("QLinearSigmoid", {"x": u8((3, 400))}, "x xs xz ys yz", X | {"ys": f32(1 / 256), "yz": zero(0)})
    check("QLinearLeakyRelu", {"x": u8((3, 400))}, "x xs xz ys yz", X | Y, alpha=0.125)
    check("QLinearSoftmax", {"x": u8((30, 40))}, "x xs xz ys yz", X | {"ys": f32(1 / 256), "yz": zero(0)}, axis=-1, opset=13)


def test_means() -> None:
    check("QLinearGlobalAveragePool", {"x": u8((2, 30, 5, 6))}, "x xs xz ys yz", X | Y)
    window = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}
    check("QLinearAveragePool", {"x": u8((2, 30, 5, 6))}, "x xs xz ys yz", X | Y, **window)
    check("QLinearAveragePool", {"x": u8((2, 30, 5, 6))}, "x xs xz ys yz", X | Y, **window, count_include_pad=1)


def test_tensors_behind_each_other() -> None:
    check("QLinearConcat", {"x": u8((3, 40)), "w": u8((5, 40), 1)}, "ys yz x xs xz w ws wz", X | W | Y, axis=0)


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(turned: int) -> None:
    constants = X | Y | {"w": i8((9, 20)[:: 1 - 2 * turned], 1), "ws": values((20,), 2, 0.01, 0.02), "wz": np.zeros(20, np.int8),
                         "c": np.arange(20, dtype=np.int32) * 50}  # fmt: skip
    check("QGemm", {"x": u8((30, 9))}, "x xs xz w ws wz c ys yz", constants, transB=turned)
    check("QGemm", {"x": u8((30, 9))}, "x xs xz w ws wz c", constants, transB=turned, tolerance=1e-5)


def test_products_as_numbers() -> None:
    constants = X | {"w": u8((9, 20), 1), "ws": values((20,), 2, 0.01, 0.02), "wz": zero(110), "b": values((20,), 3)}
    check("MatMulIntegerToFloat", {"x": u8((30, 9))}, "x w xs ws xz wz b", constants, tolerance=1e-5)
    check("MatMulIntegerToFloat", {"x": u8((30, 9))}, "x w xs ws xz", constants | {"w": i8((9, 20), 1)}, tolerance=1e-5)
    check("DynamicQuantizeMatMul", {"x": values((30, 9), 0, -1, 2)}, "x w ws wz b", constants, tolerance=1e-5)


# whole networks


def network() -> onnx.ModelProto:
    """Convolutions of all kinds, a residual sum, a clip, a swish, a mean and a product."""
    rng = np.random.default_rng(0)
    filters = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 1, 3, 3), "w4": (16, 8, 1, 1), "w5": (10, 16)}
    shapes: dict[str, tuple[int, ...]] = {**filters, **{f"b{n}": filters[f"w{n}"][:1] for n in (1, 2, 4, 5)}}
    weights = {name: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for name, s in shapes.items()}
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4), node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1] * 4), node("Add", ["c2", "r1"], ["a1"]), node("Relu", ["a1"], ["r2"]),
        node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), node("Conv", ["p", "w3"], ["c3"], pads=[1] * 4, group=8),
        node("Clip", ["c3", "low", "high"], ["k3"]), node("Conv", ["k3", "w4", "b4"], ["c4"]), node("Sigmoid", ["c4"], ["s4"]),
        node("Mul", ["s4", "c4"], ["m4"]), node("GlobalAveragePool", ["m4"], ["g"]), node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w5", "b5"], transB=1),
    ]  # fmt: skip
    return build(nodes, {"x": np.zeros((1, 3, 16, 16), np.float32)}, constants=weights | {"low": f32(0), "high": f32(6)})


class Samples(CalibrationDataReader):
    """Three inputs for calibration."""

    def __init__(self) -> None:
        self.left: Iterator[Arrays] = iter([{"x": np.random.default_rng(n).standard_normal((1, 3, 16, 16)).astype(np.float32)} for n in range(3)])

    def get_next(self) -> Arrays | None:  # type: ignore[override]
        return next(self.left, None)


def quantised(folder: Path, form: QuantFormat | None, by_channel: bool, unsigned: bool) -> onnx.ModelProto:
    """The network as the quantiser gives it; without a form, quantised at run time."""
    source, target = folder / "model.onnx", folder / "quantised.onnx"
    onnx.save(network(), source)
    kind = QuantType.QUInt8 if unsigned else QuantType.QInt8
    if form is None:
        quantize_dynamic(source, target, per_channel=by_channel, weight_type=QuantType.QInt8)
    else:
        quantize_static(source, target, Samples(), quant_format=form, per_channel=by_channel, activation_type=kind, weight_type=QuantType.QInt8)
    return onnx.load(target)


@pytest.mark.parametrize(("form", "by_channel", "unsigned"), [
    (QuantFormat.QDQ, False, True), (QuantFormat.QDQ, True, False), (QuantFormat.QOperator, True, True), (None, True, True),
])  # fmt: skip
def test_network(tmp_path: Path, form: QuantFormat | None, by_channel: bool, unsigned: bool) -> None:
    """No node is opaque, and results are equal but for rounding."""
    model = quantised(tmp_path, form, by_channel, unsigned)
    program = load(model)
    assert kept(program) == []
    x = np.random.default_rng(11).standard_normal((1, 3, 16, 16)).astype(np.float32)
    got, want = interpret(program, {"x": x}, dtype="float32")["y"], reference(model, {"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_generated_code_rounds_as_the_model_says() -> None:
    """Bit for bit: a layer of integers between two of numbers."""
    scales = {"s": f32(0.02), "z": zero(100), "ws": values((6,), 3, 0.01, 0.02), "wz": np.zeros(6, np.int8), "t": f32(0.05), "u": zero(3)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "t", "u", "b"], ["c"], pads=[1] * 4),
        node("DequantizeLinear", ["c", "t", "u"]),
    ]  # fmt: skip
    inputs = {"x": values((1, 4, 8, 8), 0, -3, 4)}
    constants = scales | {"w": i8((6, 4, 3, 3)), "b": np.arange(6, dtype=np.int32) * 1000}
    model = build(nodes, inputs, constants=constants, opset=21)
    program = Executable(plan_of(model, Random(3), 0, CpuCost(1, measure=False)), 1)
    np.testing.assert_array_equal(program(inputs)["y"], reference(model, inputs)["y"])
