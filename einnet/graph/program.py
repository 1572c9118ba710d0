"""The tensor program: a DAG of scoped expressions and opaque nodes, weights kept apart from the network (workload = (F, Θ))."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from einnet.expr.nodes import Scope, Tensor, tensors
from einnet.expr.recursions.recursion import Recursion
from einnet.graph.dtypes import dtype_name

BYTES = frozenset({"u8", "i8"})
"""Types of integers of which programs multiply stored ones."""


@dataclass(frozen=True, slots=True)
class Node:
    """output = scope; `origin` names the ONNX nodes it stands for, for messages ("Conv 'layer1.0.conv1'")."""

    output: Tensor
    scope: Scope
    origin: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that it reads; not those that carry their values."""
        return tuple(name for name, t in tensors(self.scope).items() if t.values is None)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return (self.output,)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A node kept as it is: a serialised ONNX model, run by ONNX Runtime. A barrier for derivation.

    The model's graph inputs and outputs stand in the order of `inputs` and `outputs`; it holds one node, or the few nodes between which
    something else than a tensor passes. `why` says why there is no expression. A `recursion` over tensors in these orders says what the node computes
    where it is equations along time: who can compute those needs no ONNX Runtime.
    """

    outputs: tuple[Tensor, ...]
    inputs: tuple[str, ...]
    model: bytes
    origin: tuple[str, ...] = ()
    why: str = ""
    recursion: Recursion | None = None


ProgramNode = Union[Node, Opaque]


@dataclass(frozen=True, slots=True)
class Held:
    """The ONNX value that a tensor holds; dimension k of the tensor is dimension order[k] of the value."""

    value: str
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """What a model file says about itself: the opset of the standard operators, the graph's name, and notes of its makers."""

    opset: int = 18
    graph: str = "model"
    doc: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Program:
    """Nodes in an order in which producers come first.

    Tensor names are identifiers of the expression language; `names` maps those that stand for a model input or output back to the ONNX
    name. `outputs` are (ONNX name, tensor name) pairs, so that one tensor can be given out twice. `holds` tells of tensors, by name, which value of
    the model they are; passes keep it true, and tensors that are no value of the model are not in it. `spreads` are the origins of nodes in which a
    NaN or an infinity reaches more elements than in the model, `settled` of those that read no input, or add up fewer terms, because what they leave
    out is the same for all numbers.
    """

    inputs: tuple[Tensor, ...]
    nodes: tuple[ProgramNode, ...]
    outputs: tuple[tuple[str, str], ...]
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    title: str = "model"
    header: Header = field(default_factory=Header)
    holds: Mapping[str, Held] = field(default_factory=dict)
    spreads: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the program by name: inputs, weights, node results, and what scopes read."""
        found = {t.name: t for t in self.inputs}
        for name, value in self.weights.items():
            found[name] = Tensor(name, value.shape, dtype_name(value.dtype) or str(value.dtype), True)
        for node in self.nodes:
            if isinstance(node, Node):
                found.update(tensors(node.scope))
            found.update({t.name: t for t in node.outputs})
        return found

    def stored(self) -> set[str]:
        """Tensors that stand in memory, whatever reads them: those that are given out, and bytes."""
        return {tensor for _, tensor in self.outputs} | {node.output.name for node in self.expression_nodes() if node.output.dtype in BYTES}

    def users(self) -> dict[str, list[ProgramNode]]:
        """Which nodes read a tensor, each once, in order."""
        found: dict[str, list[ProgramNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def expression_nodes(self) -> Iterator[Node]:
        """The nodes that are expressions."""
        return (n for n in self.nodes if isinstance(n, Node))
