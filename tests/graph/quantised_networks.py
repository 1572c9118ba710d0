"""Small quantised networks whose scales are powers of two: every number in them is one of float32."""

from __future__ import annotations

import numpy as np
import onnx

from tests.graph.cases import build, node, values


def quantised(x: str, y: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    return [node("QuantizeLinear", [x, scale, zero], [f"{y}_q"]), node("DequantizeLinear", [f"{y}_q", scale, zero], [y])]


def network(kind: str, zeros: tuple[int, int], pads: int, groups: int = 1) -> onnx.ModelProto:
    """Two convolutions, a maximum, a sum and a product, quantised between: scales are powers of two."""
    rng = np.random.default_rng(3)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    constants = {
        "sx": np.array(2.0**-5, np.float32), "zx": np.array(zeros[0], kind), "sy": np.array(2.0**-3, np.float32), "zy": np.array(zeros[1], kind),
        "w": rng.integers(-127, 128, (8, 4 // groups, 3, 3)).astype(np.int8), "sw": (2.0 ** -rng.integers(4, 7, 8)).astype(np.float32),
        "b": rng.integers(-40, 40, 8).astype(np.float32), "zw": np.zeros(8, np.int8), "flat": np.array([2, -1]),
        "v": rng.integers(-127, 128, (128, 5)).astype(np.int8), "sv": (2.0 ** -rng.integers(5, 9, 5)).astype(np.float32), "zv": np.zeros(5, np.int8),
    }  # fmt: skip
    assert low <= min(zeros) <= max(zeros) <= high
    nodes = [
        *quantised("x", "qx", "sx", "zx"), node("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=0),
        node("Conv", ["qx", "dw", "b"], ["c"], pads=[pads] * 4, group=groups), *quantised("c", "qc", "sy", "zy"),
        node("MaxPool", ["qc"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["m"], ["r"]), *quantised("r", "qr", "sy", "zy"), node("Add", ["qr", "m"], ["a"]), *quantised("a", "qa", "sy", "zy"),
        node("Reshape", ["qa", "flat"], ["f"]), node("DequantizeLinear", ["v", "sv", "zv"], ["dv"], axis=1), node("MatMul", ["f", "dv"], ["p"]),
    ]  # fmt: skip
    size = 8 if pads else 10
    return build(nodes, {"x": values((2, 4, size, size), 0, -5, 5)}, outputs=("p",), constants=constants, opset=21)


def attention(zeros: tuple[int, int, int, int], kinds: tuple[str, str] = ("uint8", "uint8")) -> onnx.ModelProto:
    """softmax(q·kᵀ)·v of quantised tensors, with their zero points; `kinds` are those of q and v, and of k and p."""
    constants, nodes = {}, []
    for t, zero, kind, step in zip("qkpv", zeros, (kinds[0], kinds[1], kinds[1], kinds[0]), (5, 4, 8, 3), strict=True):
        constants |= {f"s{t}": np.array(2.0**-step, np.float32), f"z{t}": np.array(zero, kind)}
    for t in "qkv":
        nodes += quantised(t, f"{t}1", f"s{t}", f"z{t}")
    nodes += [node("Transpose", ["k1"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q1", "kt"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1),
              *quantised("p", "p1", "sp", "zp"), node("MatMul", ["p1", "v1"], ["y"])]  # fmt: skip
    inputs = {"q": values((2, 5, 8), 0, -3, 3), "k": values((2, 7, 8), 1, -3, 3), "v": values((2, 7, 6), 2, -9, 9)}
    return build(nodes, inputs, outputs=("s", "y"), constants=constants, opset=21)


def dynamic(terms: int, zero: int | None, kind: str, transposed: bool = False) -> onnx.ModelProto:
    """A matrix that is quantised by its own ends, times integers."""
    low, high = (-127, 127) if kind == "int8" else (0, 255)
    constants = {"w": np.random.default_rng(1).integers(low, high + 1, (terms, 5)).astype(kind), "zw": np.array(zero or 0, kind)}
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    nodes += [node("Transpose", ["q"], ["t"], perm=[1, 0])] if transposed else []
    nodes.append(node("MatMulInteger", ["t" if transposed else "q", "w", "z", *(["zw"] if zero is not None else [])], ["i"]))
    nodes.append(node("Cast", ["i"], ["f"], to=1))
    return build([*nodes, node("Mul", ["f", "s"], ["y"])], {"x": values((terms, 3) if transposed else (3, terms))}, constants=constants, opset=21)
