"""A plan as an ONNX model: Matmul and Conv as operators of the standard, generated kernels as functions of the model, opaque nodes as they were."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from einnet.errors import UsageError
from einnet.expr.nodes import Number, Scope, exchange_in, tensors
from einnet.graph.in_file import model_bytes
from einnet.instantiate.epilogue_kernels import posted
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, OpaqueCall, Plan, Post, VendorKernel
from einnet.instantiate.kernels.generated import expressed
from einnet.instantiate.kernels.views import dense_view
from einnet.runtime.onnx.buffers import Buffers
from einnet.runtime.onnx.node_writer import LEAST_OPSET, Emitter, Value
from einnet.runtime.onnx.operand_order import in_loop_order
from einnet.runtime.onnx.scope import ScopeEmitter

DOMAIN = "einnet"
TYPES = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "u32": 12, "u64": 13, "bf16": 16,
}  # fmt: skip
LARGEST = (1 << 31) - (1 << 20)
"""Bytes that one file of the format can hold."""


def export(plan: Plan, opset: int = 18, metadata: Mapping[str, str] | None = None, title: str = "einnet") -> onnx.ModelProto:
    """The plan as a model with the same inputs and outputs.

    `opset` is the version of the standard operators, at least 13; that of the plan's opaque nodes, which are taken over, if there are any.

    Raises UsageError where the opaque nodes are of another version.
    """
    return Writer(plan, opset).model(title, metadata or {})


class Writer:
    """The nodes of a plan's kernels; names of nodes and values that are new start with `prefix`."""

    def __init__(self, plan: Plan, opset: int, prefix: str = "einnet_") -> None:
        if opset < LEAST_OPSET:
            raise UsageError(
                f"ONNX out writes operators of opset {LEAST_OPSET} or later, not {opset}: convert the model first (onnx.version_converter)"
            )
        self.plan, self.opset = plan, opset
        self.buffers = {b.name: b for b in plan.buffers}
        self.e = Emitter(opset, prefix)
        self.memory = Buffers(self.e, self.buffers, plan.constants)
        self.functions: dict[str, onnx.FunctionProto] = {}
        self.imports: dict[str, int] = {"": opset}
        self.opaque = 0
        for name, view in plan.inputs:
            self.memory.write(view, Value(name, view.shape))
        for kernel in plan.kernels:
            self.kernel(kernel)
        given = {name for name, _ in plan.inputs}
        for name, view in plan.outputs:
            if name in given:  # an input that is an output too is one value
                continue
            self.e.op("Identity", (self.memory.read(view),), view.shape, output=name)

    def kernel(self, kernel: Kernel) -> None:
        """Append one kernel's nodes."""
        match kernel:
            case Matmul():
                value = self.e.op("MatMul", (self.memory.read(kernel.a), self.memory.read(kernel.b)), kernel.c.shape)
                self.memory.write(kernel.c, self.posts(value, kernel.post))
            case Conv():
                self.memory.write(kernel.y, self.posts(self.conv(kernel), kernel.post))
            case EOperator():
                kernel = in_loop_order(kernel)
                operands = {name: self.memory.read(view) for name, view in kernel.operands}
                scope = kernel.scope
                value = self.generated(scope, [operands[name] for name in tensors(scope)])
                self.memory.write(kernel.out, self.e.reshape(value, kernel.out.shape))
            case OpaqueCall():
                self.inline(kernel)
            case VendorKernel():
                self.kernel(expressed(kernel))

    def conv(self, k: Conv) -> Value:
        groups, outer, inner, *taps = k.w.shape
        attributes: dict[str, Any] = {
            "group": groups, "strides": list(k.strides), "dilations": list(k.dilations), "kernel_shape": list(taps),
            "pads": [*k.pads_begin, *(max(p, 0) for p in k.pads_end)],
        }  # fmt: skip
        w = self.memory.read(k.w)
        if k.transposed:
            w = self.e.transpose(w, [0, 2, 1, *range(3, len(w.shape))])
            w = self.e.reshape(w, (groups * inner, outer, *taps))
            attributes["output_padding"] = [max(-p, 0) for p in k.pads_end]
            return self.e.op("ConvTranspose", (self.memory.read(k.x), w), k.y.shape, **attributes)
        return self.e.op("Conv", (self.memory.read(k.x), self.e.reshape(w, (groups * outer, inner, *taps))), k.y.shape, **attributes)

    def posts(self, value: Value, posts: Sequence[Post]) -> Value:
        """What a vendor kernel does to its result."""
        e, shape = self.e, value.shape
        for p in posts:
            match p.kind:
                case "add" | "mul":
                    assert p.operand is not None
                    value = e.op("Add" if p.kind == "add" else "Mul", (value, self.memory.read(p.operand)), shape)
                case "relu" if p.alpha:
                    value = e.op("LeakyRelu", (value,), shape, alpha=float(p.alpha))
                case "relu" | "tanh" | "sigmoid":
                    value = e.op(p.kind.capitalize(), (value,), shape)
                case "clip":
                    value = e.op("Clip", (value, self.scalar(p.alpha), self.scalar(p.beta)), shape)
                case "linear":
                    scaled = e.op("Mul", (value, self.scalar(p.alpha)), shape) if p.alpha != 1 else value
                    value = e.op("Add", (scaled, self.scalar(p.beta)), shape) if p.beta else scaled
                case _:
                    value = self.generated(posted(dense_view("Y", shape), (p,), dense_view("y", shape)).scope, (value,))
        return value

    def scalar(self, value: Number) -> Value:
        return self.e.constant(np.array(float(value), dtype=np.float32))

    def generated(self, scope: Scope, operands: Sequence[Value]) -> Value:
        """A call of the function that computes the scope; equal expressions share it."""
        scope = exchange_in(scope, {t.name: replace(t, name=f"x{n}") for n, t in enumerate(tensors(scope).values())})
        text = str(scope)
        name = "e_" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        if name not in self.functions:
            inner = Emitter(self.opset)
            given = tensors(scope).values()
            arguments = {t.name: Value(t.name, t.shape) for t in given}
            numbers = {t.name: arguments[t.name] if t.dtype == "f32" else inner.op("Cast", (arguments[t.name],), t.shape, to=1) for t in given}
            result = ScopeEmitter(inner, numbers).scope(scope)
            inner.op("Identity", (result,), result.shape, output="y")
            imports = [helper.make_opsetid("", self.opset)]
            self.functions[name] = helper.make_function(DOMAIN, name, list(arguments), ["y"], inner.nodes, imports)
            self.functions[name].doc_string = text
        self.imports[DOMAIN] = 1
        return self.e.op(name, operands, scope.shape, domain=DOMAIN)

    def inline(self, call: OpaqueCall) -> None:
        """The nodes of an opaque call, their values renamed."""
        model = onnx.load_model_from_string(model_bytes(call.model))
        for o in model.opset_import:
            domain = "" if o.domain == "ai.onnx" else o.domain
            if self.imports.setdefault(domain, o.version) != o.version:
                raise UsageError(f"{call.origin}: opset {o.version} of domain {domain or 'ai.onnx'!r} beside opset {self.imports[domain]}")
        prefix = f"{self.e.prefix}opaque{self.opaque}_"
        self.opaque += 1
        graph = onnx.compose.add_prefix_graph(model.graph, prefix)
        given = {prefix_name.name: self.memory.read(view).name for prefix_name, view in zip(graph.input, call.inputs)}
        inner = {i.name for i in graph.initializer}
        for i in graph.initializer:
            self.memory.initialisers[i.name] = numpy_helper.to_array(i)
        for name, source in given.items():
            if name not in inner:
                self.e.nodes.append(helper.make_node("Identity", [source], [name], name=f"{name}:taken"))
        self.e.nodes.extend(graph.node)
        for output, view in zip(graph.output, call.outputs):
            self.memory.write(view, Value(output.name, view.shape))

    def weights(self) -> list[onnx.TensorProto]:
        """The initialisers that nodes, or graphs inside of nodes, read."""
        used = {name for node in self.e.nodes for name in names_read(node)}
        return [numpy_helper.from_array(a, n) for n, a in self.memory.initialisers.items() if n in used]

    def model(self, title: str, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """All of it, with the names of the plan's inputs and outputs."""
        infos = {}
        for kind, ends in (("in", self.plan.inputs), ("out", self.plan.outputs)):
            infos[kind] = [helper.make_tensor_value_info(n, TYPES[self.buffers[v.buffer].dtype], list(v.shape)) for n, v in ends]
        graph = helper.make_graph(self.e.nodes, title, infos["in"], infos["out"], self.weights())
        imports = [helper.make_opsetid(domain, version) for domain, version in self.imports.items()]
        model = helper.make_model(
            graph, opset_imports=imports, functions=list(self.functions.values()), producer_name="einnet", ir_version=format_version(self.opset)
        )
        helper.set_model_props(model, dict(metadata))
        return model


def names_read(node: onnx.NodeProto) -> set[str]:
    """What a node reads, in the graphs inside of it too (with what these define themselves)."""
    graphs = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else [*a.graphs])]
    inner = [names_read(child) for g in graphs for child in g.node]
    return {name for name in node.input if name}.union(*inner, *({o.name for o in g.output} for g in graphs))


def format_version(opset: int) -> int:
    """The format's version that belongs to an opset; functions need 8."""
    return max(8, int(helper.find_min_ir_version_for([helper.make_opsetid("", opset)])))


def too_large(model: onnx.ModelProto) -> bool:
    """The weights do not fit one file of the format."""
    return bool(sum(4 * prod(i.dims) for i in model.graph.initializer) > LARGEST)
