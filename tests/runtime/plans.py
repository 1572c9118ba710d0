"""Small plans for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper

from einnet.instantiate.kernels import Buffer, Conv, Kernel, Matmul, OpaqueCall, Plan, Post, View, dense_view
from tests.runtime.reference import layout

NHWC = (0, 2, 3, 1)


def rng_constants(sizes: dict[str, int], seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1, 1, n).astype(np.float32) for name, n in sizes.items()}


def two_layers(m: int = 4, k: int = 32, h: int = 48, n: int = 16) -> Plan:
    """y = relu(x w1 + b1) w2."""
    constants = rng_constants({"w1": k * h, "b1": h, "w2": h * n})
    kernels = (
        Matmul(dense_view("x", (m, k)), dense_view("w1", (k, h)), dense_view("t", (m, h)), (Post("add", dense_view("b1", (1, h))), Post("relu"))),
        Matmul(dense_view("t", (m, h)), dense_view("w2", (h, n)), dense_view("y", (m, n))),
    )
    buffers = [Buffer("x", m * k, "f32", "input"), Buffer("t", m * h, "f32", "temporary"), Buffer("y", m * n, "f32", "output")]
    return finish(buffers, kernels, constants, {"x": dense_view("x", (m, k))}, {"y": dense_view("y", (m, n))})


def expected_two_layers(plan: Plan, x: np.ndarray) -> np.ndarray:
    k, h = plan.kernels[0].b.shape
    w1, b1, w2 = (plan.constants[n].astype(np.float64) for n in ("w1", "b1", "w2"))
    return np.maximum(x @ w1.reshape(k, h) + b1, 0) @ w2.reshape(h, -1)


def finish(
    buffers: Sequence[Buffer], kernels: Sequence[Kernel], constants: dict[str, np.ndarray], inputs: dict[str, View], outputs: dict[str, View]
) -> Plan:
    stored = [Buffer(name, values.size, "f32", "constant") for name, values in constants.items()]
    return Plan((*buffers, *stored), tuple(kernels), tuple(inputs.items()), tuple(outputs.items()), constants)


def residual_block(size: int = 12, channels: int = 16, layers: int = 3) -> Plan:
    """x + conv(conv(...)), channels last, one weight shared by all layers."""
    constants = rng_constants({"w": channels * channels * 9})
    shape, count = (1, channels, size, size), channels * size * size
    w = layout("w", (1, channels, channels, 3, 3))
    kernels, previous = [], "x"
    for n in range(layers):
        name = "y" if n == layers - 1 else f"t{n}"
        post = (Post("add", layout("x", shape, NHWC)),) if name == "y" else (Post("relu"),)
        kernels.append(Conv(layout(previous, shape, NHWC), w, layout(name, shape, NHWC), (1, 1), (1, 1), (1, 1), (1, 1), post=post))
        previous = name
    buffers = [Buffer("x", count, "f32", "input"), Buffer("y", count, "f32", "output")]
    buffers += [Buffer(f"t{n}", count, "f32", "temporary") for n in range(layers - 1)]
    dense = dense_view("x", (1, size, size, channels)), dense_view("y", (1, size, size, channels))
    return finish(buffers, kernels, constants, {"x": dense[0]}, {"y": dense[1]})


def opaque(op: str, inputs: Sequence[View], outputs: Sequence[View], types: Sequence[int], **attributes: object) -> OpaqueCall:
    """A node; `types` are ONNX element types of the inputs, then of the outputs."""
    infos = [helper.make_tensor_value_info(f"v{n}", t, v.shape) for n, (v, t) in enumerate(zip((*inputs, *outputs), types, strict=True))]
    names = [i.name for i in infos]
    node = helper.make_node(op, names[: len(inputs)], names[len(inputs) :], **attributes)
    graph = helper.make_graph([node], op, infos[: len(inputs)], infos[len(inputs) :])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return OpaqueCall(model.SerializeToString(), tuple(inputs), tuple(outputs), f"{op} 'node'")


def with_opaque_nodes() -> Plan:
    """values, places = topk(x w); y = (values w2), and the places and a mask as they are."""
    constants = rng_constants({"w": 8 * 10, "w2": 3 * 5, "k": 0})
    views = {"x": (4, 8), "t": (4, 10), "values": (4, 3), "places": (4, 3), "mask": (4, 3), "y": (4, 5)}
    view = {name: dense_view(name, shape) for name, shape in views.items()}
    k = dense_view("count", (1,))
    kernels = [
        Matmul(view["x"], dense_view("w", (8, 10)), view["t"]),
        opaque("TopK", (view["t"], k), (view["values"], view["places"]), 2 * (TensorProto.FLOAT, TensorProto.INT64)),
        opaque("IsNaN", (view["values"],), (view["mask"],), (TensorProto.FLOAT, TensorProto.BOOL)),
        Matmul(view["values"], dense_view("w2", (3, 5)), view["y"]),
    ]
    del constants["k"]
    buffers = [
        Buffer("x", 32, "f32", "input"), Buffer("t", 40, "f32", "temporary"), Buffer("values", 12, "f32", "temporary"),
        Buffer("places", 12, "i64", "output"), Buffer("mask", 12, "bool", "output"), Buffer("y", 20, "f32", "output"),
        Buffer("count", 1, "i64", "constant"),
    ]  # fmt: skip
    plan = finish(buffers, kernels, constants, {"x": view["x"]}, {n: view[n] for n in ("y", "places", "mask")})
    return Plan(plan.buffers, plan.kernels, plan.inputs, plan.outputs, {**plan.constants, "count": np.array([3], np.int64)})
