"""Nodes that the standard does not allow: each is refused with a word or left to ONNX Runtime; nothing crashes, hangs or takes all memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from einnet.errors import NotStaticError
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Opaque

HUGE = 1 << 40
Held = dict[str, np.ndarray]
WINDOW = {"w": np.ones((4, 2, 3, 3), np.float32)}


def model(nodes: list[onnx.NodeProto], held: Held, opset: int = 18, shape: tuple[int, ...] = (1, 4, 6, 6)) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(v, n) for n, v in held.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def node(op: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["x", *inputs], list(outputs), name="it", **attributes)


def table(*values: int) -> Held:
    return {"t": np.array(values, np.int64)}


KEPT = [
    (node("ReduceMean", keepdims=7), {}, 18, "its result has shape"),
    (node("Reshape", "t"), table(7), 18, "does not reshape to"),
    (node("Reshape", "t"), table(HUGE), 18, "its result is"),
    (node("Softmax", axis=-HUGE), {}, 9, "axis -1099511627776 of 4 dimensions"),
    (node("GlobalLpPool", p=0), {}, 9, "it is no valid GlobalLpPool"),
    (node("Transpose", perm=[0, 1, 2, 3]), {}, 18, ""),
]


@pytest.mark.parametrize(("wrong", "held", "opset", "why"), KEPT, ids=lambda given: getattr(given, "op_type", None))
def test_they_stay_as_they_are_with_the_reason(wrong: onnx.NodeProto, held: Held, opset: int, why: str) -> None:
    opaque = [n for n in load(model([wrong], held, opset)).nodes if isinstance(n, Opaque)]
    assert [why in n.why for n in opaque] == ([True] if why else []), [n.why for n in opaque]


SURVIVED = [
    (node("Conv", "w", group=0), WINDOW, 18),
    (node("Conv", "w", group=3), WINDOW, 18),
    (node("Conv", "w", group=2, strides=[0, 1]), WINDOW, 18),
    (node("Conv", "w", group=2, dilations=[0, 1]), WINDOW, 18),
    (node("Conv", "w"), {"w": np.ones((4, 4, 3), np.float32)}, 18),
    (node("ConvTranspose", "w", group=0), WINDOW, 18),
    (node("ConvTranspose", "w", group=HUGE), WINDOW, 18),
    (node("ConvTranspose", "w", strides=[-1, 1]), WINDOW, 18),
    (node("AveragePool", kernel_shape=[HUGE, 1], pads=[HUGE, 0, HUGE, 0]), {}, 18),
    (node("MaxPool", kernel_shape=[2, 2], strides=[0, 0]), {}, 18),
    (node("LpPool", kernel_shape=[2, 2], p=0), {}, 18),
    (node("DepthToSpace", blocksize=0), {}, 18),
    (node("Split", axis=2, num_outputs=1, outputs=("y", "z")), {}, 18),
    (node("Transpose", perm=[0, 1, 7, 3]), {}, 18),
    (node("LRN", size=0), {}, 18),
    (node("GroupNormalization", "s", "s", num_groups=0), {"s": np.ones(4, np.float32)}, 21),
    (node("Resize", "", "", "t", mode="linear"), table(1, 4, 6, HUGE), 18),
    (node("Upsample", "s", mode=b"\xff"), {"s": np.ones(4, np.float32)}, 9),
    (node("Tile", "t"), table(1, 1, -7, 1), 18),
    (node("Expand", "t"), table(HUGE, 1, 1, 1), 18),
    (node("Einsum", equation=b"\xff"), {}, 18),
    (node("Einsum", equation="abcd,abcd->e"), {}, 18),
]


@pytest.mark.parametrize(("wrong", "held", "opset"), SURVIVED, ids=[f"{n}-{s[0].op_type}" for n, s in enumerate(SURVIVED)])
def test_they_are_refused_or_left_to_onnx_runtime(wrong: onnx.NodeProto, held: Held, opset: int) -> None:
    assert wrong.op_type in kept_or_refused(model([wrong], held, opset))


def kept_or_refused(proto: onnx.ModelProto) -> str:
    """What stays of a model as it is, or why it is none that could be taken apart."""
    try:
        return " ".join(label for n in prepare(load(proto)).nodes if isinstance(n, Opaque) for label in n.origin)
    except NotStaticError as error:
        return str(error)


def test_a_result_with_a_negative_extent_stops_inference_before_it_aborts() -> None:
    nodes = [node("LpPool", kernel_shape=[HUGE, 1], outputs=("p",)), helper.make_node("Slice", ["p", "t", "t", "t"], ["y"])]
    with pytest.raises(NotStaticError, match="LpPool 'it': its result would have shape"):
        load(model(nodes, table(2)))
