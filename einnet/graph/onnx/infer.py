"""Types and shapes of one node's results, by ONNX shape inference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from einnet.graph.dtypes import dtype_name
from einnet.graph.onnx.contributed.call import Undefined
from einnet.graph.onnx.function_bodies import STANDARD, opset, with_body, with_defaults
from einnet.graph.onnx.read import first_line

LEAST_FORMAT = 4
"""Version of the file format from which on an initialiser need not be an input: before, inference knows nothing of one that is none."""

POOLING = ("MaxPool", "AveragePool", "LpPool")
COUNTED = 22
"""Opset from which on the standard says what runtimes have always done with `ceil_mode`: a window that starts in the padding behind is none."""

FROM_THE_FRONT = {"Concat": "axis", "Slice": "axes"}
"""Operators whose first versions count dimensions from the front, and the attribute that does. Exporters wrote negative ones, which runtimes take."""

Types = Mapping[str, onnx.TypeProto]


@dataclass(eq=False)
class Fact:
    """What is known of one value: its ONNX name, element type, static shape, its contents if it is constant, and its type as inferred."""

    name: str
    elem: ir.DataType | None
    shape: tuple[int, ...] | None
    value: np.ndarray | None = None
    type: onnx.TypeProto | None = None

    @property
    def dtype(self) -> str | None:
        """The short type name if such a tensor may cross between kernels; bfloat16 stands between two casts only (`bfloat16.in_float32`)."""
        if self.elem == ir.DataType.BFLOAT16:
            return "bf16"
        try:
            return None if self.elem is None else dtype_name(self.elem.numpy())
        except TypeError:
            return None

    @property
    def crosses(self) -> bool:
        """A tensor of a plain type and a static shape."""
        return self.dtype is not None and self.shape is not None

    def refine(self, inferred: onnx.TypeProto | None) -> None:
        """Take over what inference found."""
        if inferred is None or inferred.WhichOneof("value") is None:
            return
        self.type = inferred
        if not inferred.HasField("tensor_type"):
            self.elem = self.shape = None
            return
        tensor = inferred.tensor_type
        if tensor.elem_type:
            self.elem = ir.DataType(tensor.elem_type)
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            self.shape = tuple(d.dim_value for d in tensor.shape.dim)


def build_model(
    model: ir.Model,
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[tuple[str, Fact]],
    held: Iterable[tuple[str, Fact]],
    outputs: Iterable[tuple[str, Fact | None]],
) -> onnx.ModelProto:
    """A model of a few nodes: typed inputs, constants as initialisers, outputs typed where that is known."""

    def info(name: str, fact: Fact | None) -> onnx.ValueInfoProto:
        if fact is not None and fact.elem is not None and fact.shape is not None:
            return onnx.helper.make_tensor_value_info(name, int(fact.elem), fact.shape)
        if fact is not None and fact.type is not None:
            return onnx.helper.make_value_info(name, fact.type)
        return onnx.helper.make_empty_tensor_value_info(name)

    graph = onnx.helper.make_graph(
        list(nodes),
        "opaque",
        [info(name, fact) for name, fact in inputs],
        [info(name, fact) for name, fact in outputs],
        [onnx.numpy_helper.from_array(fact.value, name) for name, fact in held if fact.value is not None],
    )
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.graph.opset_imports.items()]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=min(max(model.ir_version, LEAST_FORMAT), 10))


def infer(model: onnx.ModelProto) -> tuple[Types, str]:
    """Output types of a one-node model by name, and what inference complained about.

    An operator without an inference function of its own is inferred through its function body, where the standard defines it by one.
    """
    (node,) = model.graph.node
    count = next((a.i for a in node.attribute if a.name == "num_outputs"), len(node.output))
    if count != len(node.output):  # inference does not survive it
        return {}, f"num_outputs is {count}, and it has {len(node.output)} outputs"
    types, failure = _infer(with_defaults(with_axes_from_the_front(with_windows_that_count(model))))
    unknown = any(t.WhichOneof("value") is None for t in types.values())
    try:
        expanded = with_body(model) if unknown or failure else None
    except Undefined:
        expanded = None
    if expanded is not None:
        through, trouble = _infer(expanded)
        if not trouble or not failure:
            return through, trouble
    return types, failure


def _infer(model: onnx.ModelProto) -> tuple[Types, str]:
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:  # inference raises its own and checker types
        return {}, first_line(error)
    return {o.name: o.type for o in inferred.graph.output}, ""


def with_axes_from_the_front(model: onnx.ModelProto) -> onnx.ModelProto:
    """A one-node model with dimensions that are counted from behind counted from the front, where old versions do so; any other as it is."""
    (node,) = model.graph.node
    name = FROM_THE_FRONT.get(node.op_type) if node.domain in STANDARD else None
    if not any(a.name == name and min((a.i, *a.ints)) < 0 for a in node.attribute):
        return model
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in model.graph.input if v.type.tensor_type.HasField("shape")}
    ranks |= {t.name: len(t.dims) for t in model.graph.initializer}
    rank = ranks.get(node.input[0])
    if rank is None:
        return model
    told = onnx.ModelProto()
    told.CopyFrom(model)
    given = {a.name: a for a in told.graph.node[0].attribute}
    counted = given[str(name)]
    counted.i += rank if counted.i < 0 else 0
    counted.ints[:] = [a + rank if a < 0 else a for a in counted.ints]
    order = sorted(range(len(counted.ints)), key=counted.ints.__getitem__)
    for attribute in (a for a in given.values() if len(a.ints) == len(order)):
        attribute.ints[:] = [attribute.ints[n] for n in order]
    return told


def with_windows_that_count(model: onnx.ModelProto) -> onnx.ModelProto:
    """A one-node model that pools with `ceil_mode`, under the first opset whose inference counts windows as runtimes do; any other as it is."""
    (node,) = model.graph.node
    ceiled = any(a.name == "ceil_mode" and a.i for a in node.attribute)
    version = opset(model)
    if node.op_type not in POOLING or node.domain not in STANDARD or not ceiled or version >= COUNTED:
        return model
    later = onnx.ModelProto()
    later.CopyFrom(model)
    for imported in later.opset_import:
        if imported.domain in STANDARD:
            imported.version = COUNTED
    return later
