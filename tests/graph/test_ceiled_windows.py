"""Pooling with `ceil_mode`: shapes and values as ONNX Runtime has them, where the last window hangs over, or would start in the padding behind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import einnet
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque
from tests.graph.cases import compare, reference, values

SINCE = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}
DILATED = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}


def ways(op: str, opset: int) -> Iterator[dict[str, Any]]:
    """Windows, strides, dilations and padding of one dimension in which no side of the padding holds a whole window."""
    for kernel, stride, (before, after), dilation in product((1, 2, 3), (1, 2, 3, 4), ((0, 0), (1, 1), (0, 1), (1, 0), (1, 2)), (1, 2)):
        if max(before, after) >= kernel or (dilation > 1 and opset < DILATED[op]):
            continue
        extra = {"count_include_pad": (kernel + stride) % 2} if op == "AveragePool" else {}
        yield {"kernel_shape": [kernel], "strides": [stride], "pads": [before, after], **({"dilations": [dilation]} if dilation > 1 else {}), **extra}


def model_of(op: str, opset: int, size: int) -> onnx.ModelProto:
    """One node for each way; the outputs declare no shape."""
    nodes = [helper.make_node(op, ["x"], [f"y{n}"], name=f"n{n}", ceil_mode=1, **way) for n, way in enumerate(ways(op, opset))]
    outputs = [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, None) for n in nodes]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, size))], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


CASES = [(op, opset, size) for op in SINCE for opset in (10, 12, 17, 18, 19, 21, 22) for size in (6, 7) if opset >= SINCE[op]]


@pytest.mark.parametrize(("op", "opset", "size"), CASES)
def test_as_onnx_runtime(op: str, opset: int, size: int) -> None:
    model = model_of(op, opset, size)
    program = load(model)
    assert not [n for n in program.nodes if isinstance(n, Opaque)]
    compare(program, model, {"x": values((1, 2, size))})


def two_dimensions() -> onnx.ModelProto:
    """A maximum over 2x2 by 2 with padding 1 of 7x5: by the letter of the older standard (5,4), as it runs (4,3). Then something that reads it."""
    pool = helper.make_node("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    nodes = [pool, helper.make_node("Relu", ["p"], ["y"], name="relu")]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 2, 7, 5)), ("y", None)))
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_with_such_a_window_passes(tmp_path: Path) -> None:
    model, given = two_dimensions(), {"x": values((1, 2, 7, 5))}
    wanted = reference(model, given)["y"]
    assert wanted.shape == (1, 2, 4, 3)
    result = einnet.optimize(model, time_budget=1, max_depth=1, threads=1)
    assert result.report["verification"]["passed"]
    np.testing.assert_array_equal(result(given)["y"], wanted)
    np.testing.assert_array_equal(einnet.load(result.save(tmp_path / "p.einnet"))(given)["y"], wanted)
