"""Small ONNX models, and the comparison of a program with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque, Program
from einnet.runtime.ort import whole_sums

onnxruntime.set_default_logger_severity(4)

ELEMENT = {
    np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL,
    np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.int32): TensorProto.INT32,
}  # fmt: skip


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), name=f"{op}_{outputs[0]}", **attributes)


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    extra_domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, ELEMENT[a.dtype], a.shape) for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (extra_domains or {}).items())]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for out in inferred.graph.output:
        if out.type.WhichOneof("value") is None:
            out.type.tensor_type.elem_type = TensorProto.FLOAT
    return inferred


def options() -> onnxruntime.SessionOptions:
    """What the sessions of the reference are made with: sums of bytes are whole on every processor."""
    chosen = onnxruntime.SessionOptions()
    for entry in whole_sums():
        chosen.add_session_config_entry(*entry)
    return chosen


def reference(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs))))


def run_opaque(opaque: Opaque, values: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    session = onnxruntime.InferenceSession(opaque.model, options(), providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: v for i, v in zip(session.get_inputs(), values)})


def compare(program: Program, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], tolerance: float = 2e-5) -> None:
    """The program's outputs are those of ONNX Runtime, in shape and value."""
    expected = reference(model, inputs)
    found = interpret(program, inputs, run_opaque)
    assert list(found) == list(expected)
    for name, want in expected.items():
        assert found[name].shape == want.shape, name
        np.testing.assert_allclose(found[name], want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(np.nan_to_num(want)).max(initial=0))))


def values(shape: Sequence[int], seed: int = 0, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, tuple(shape)).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def check(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    opaque: bool | None = False,
    tolerance: float = 2e-5,
) -> Program:
    """Build, load and compare; returns the program. `opaque` says whether opaque nodes are expected (None: either)."""
    model = build(nodes, inputs, outputs, constants, opset)
    program = load(model)
    kept = [n for n in program.nodes if isinstance(n, Opaque)]
    assert opaque is None or bool(kept) == opaque, [(n.origin, n.why) for n in kept]
    compare(program, model, inputs, tolerance)
    return program
