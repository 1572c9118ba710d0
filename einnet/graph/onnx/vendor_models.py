"""One-node ONNX models of vendor kernels, for machines where no vendor library but ONNX Runtime can run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Shape = Sequence[int]
_OPSET = 17
_IR_VERSION = 8


def _model(op: str, inputs: dict[str, Shape], output: Shape, attributes: dict[str, Any]) -> bytes:
    from onnx import TensorProto, helper

    def info(name: str, shape: Shape) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

    node = helper.make_node(op, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], op, [info(name, shape) for name, shape in inputs.items()], [info("y", output)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return bytes(model.SerializeToString())


def matmul_model(a: Shape, b: Shape, c: Shape) -> bytes:
    """c = a @ b with numpy's broadcasting; inputs `a`, `b`, output `y`, all f32."""
    return _model("MatMul", {"a": a, "b": b}, c, {})


def conv_model(x: Shape, w: Shape, y: Shape, groups: int, strides: Shape, dilations: Shape, pads: tuple[Shape, Shape], transposed: bool) -> bytes:
    """Conv with w (groups·f, c, taps...) or ConvTranspose with w (groups·c, f, taps...); inputs `x`, `w`, output `y`, all f32.

    End padding may be negative by less than a stride: the rest that a convolution leaves over, the output padding of a transposed one.
    """
    begin, end = pads
    attributes: dict[str, Any] = {
        "group": groups, "strides": list(strides), "dilations": list(dilations), "pads": [*begin, *(max(p, 0) for p in end)],
    }  # fmt: skip
    if transposed:
        attributes["output_padding"] = [max(-p, 0) for p in end]
    return _model("ConvTranspose" if transposed else "Conv", {"x": x, "w": w}, y, attributes)
