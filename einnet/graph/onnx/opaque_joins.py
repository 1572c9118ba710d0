"""Opaque nodes joined: what can run one after the other is one model, so that ONNX Runtime optimizes across it as it would in the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import onnx
from onnx import compose, helper

from einnet.graph.program import Opaque, Program, ProgramNode


def join_opaque(program: Program) -> Program:
    """The program with its nodes so ordered that opaque ones come together, and each such run as one node.

    Expressions go first wherever they can; a run takes every opaque node that needs nothing but what is there and what the run computes. Parts of a
    program that have no input and no result in common stay apart: each can be run without the others.
    """
    given_out = {tensor for _, tensor in program.outputs}
    runs, belongs = ordered(program), islands(program)
    nodes: list[ProgramNode] = []
    for n, run in enumerate(runs):
        opaque = [node for node in run if joins(node)]
        if not opaque:
            nodes += run
            continue
        outside = given_out | {name for other in runs[n + 1 :] for node in other for name in node.inputs}
        together: dict[str, list[Opaque]] = {}
        for node in opaque:
            together.setdefault(belongs[node.outputs[0].name], []).append(node)
        nodes += [joined(group, outside) if len(group) > 1 else group[0] for group in together.values()]
    return replace(program, nodes=tuple(nodes))


def joins(node: ProgramNode) -> TypeGuard[Opaque]:
    """An opaque node that nothing but ONNX Runtime computes."""
    return isinstance(node, Opaque) and node.recursion is None


def islands(program: Program) -> dict[str, str]:
    """Of each tensor that is no weight one that it hangs together with, the same for all of these."""
    leads: dict[str, str] = {}

    def lead(name: str) -> str:
        while leads.setdefault(name, name) != name:
            leads[name] = name = leads[leads[name]]
        return name

    for node in program.nodes:
        first, *others = (name for name in (*(t.name for t in node.outputs), *node.inputs) if name not in program.weights)
        for name in (first, *others):
            leads[lead(name)] = lead(first)
    return {name: lead(name) for name in list(leads)}


def ordered(program: Program) -> list[list[ProgramNode]]:
    """Runs of nodes that do not join others and runs of those that do, in turn; within a run, and where there is a choice, in the program's order."""
    made = {t.name for node in program.nodes for t in node.outputs}
    done: set[str] = set()
    waiting = list(program.nodes)
    runs: list[list[ProgramNode]] = []
    opaque = False
    while waiting:
        run: list[ProgramNode] = []
        rest: list[ProgramNode] = []
        for node in waiting:
            if joins(node) == opaque and all(name in done or name not in made for name in node.inputs):
                run.append(node)
                done.update(t.name for t in node.outputs)
            else:
                rest.append(node)
        waiting, opaque = rest, not opaque
        if run:
            runs.append(run)
    return runs


def joined(nodes: Sequence[Opaque], outside: set[str]) -> Opaque:
    """One node for several; `outside` are the tensors that somebody else reads."""
    computed = {t.name: t for node in nodes for t in node.outputs}
    inputs = list(dict.fromkeys(name for node in nodes for name in node.inputs if name not in computed))
    outputs = tuple(t for t in computed.values() if t.name in outside)
    protos: list[onnx.NodeProto] = []
    initialisers: list[onnx.TensorProto] = []
    infos: dict[str, onnx.ValueInfoProto] = {}
    imports: dict[str, int] = {}
    version = 0
    for n, node in enumerate(nodes):
        model = onnx.load_model_from_string(node.model)
        version = max(version, model.ir_version)
        imports.update({o.domain: o.version for o in model.opset_import})
        graph = compose.add_prefix_graph(model.graph, f"n{n}_")
        for name, value in zip(node.inputs, graph.input):
            infos.setdefault(name, typed(value, name))
            protos.append(helper.make_node("Identity", [name], [value.name], name=f"{value.name}:taken"))
        protos += graph.node
        initialisers += graph.initializer
        for tensor, value in zip(node.outputs, graph.output):
            infos[tensor.name] = typed(value, tensor.name)
            protos.append(helper.make_node("Identity", [value.name], [tensor.name], name=f"{value.name}:given"))
    graph = helper.make_graph(protos, "opaque", [infos[n] for n in inputs], [infos[t.name] for t in outputs], initialisers)
    opsets = [helper.make_opsetid(domain, v) for domain, v in imports.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
    origin = tuple(dict.fromkeys(o for node in nodes for o in node.origin))
    why = "; ".join(dict.fromkeys(node.why for node in nodes))
    return Opaque(outputs, tuple(inputs), model.SerializeToString(), origin, why)


def typed(info: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    """The same type under another name."""
    other = onnx.ValueInfoProto()
    other.CopyFrom(info)
    other.name = name
    return other
