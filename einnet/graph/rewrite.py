"""Small rewrites of whole programs that the passes share: exchange tensors, drop what nobody uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from einnet.expr.index import Index, var
from einnet.expr.nodes import Read, Scope, Tensor, exchange_in, tensors
from einnet.graph.onnx.naming import take
from einnet.graph.program import Node, Program, ProgramNode


def anonymous(scope: Scope) -> Scope:
    """The scope with its tensors named by first occurrence."""
    return exchange_in(scope, {t.name: replace(t, name=f"t{n}") for n, t in enumerate(tensors(scope).values())})


def exchange_tensors(program: Program, exchange: Mapping[str, Tensor]) -> Program:
    """Read and give out other tensors of the same shape and value in place of those named."""
    if not exchange:
        return program

    def name(old: str) -> str:
        return exchange[old].name if old in exchange else old

    nodes: list[ProgramNode] = []
    for node in program.nodes:
        if isinstance(node, Node):
            scope = exchange_in(node.scope, exchange)
            nodes.append(node if scope is node.scope else replace(node, scope=scope))
        else:
            nodes.append(replace(node, inputs=tuple(map(name, node.inputs))))
    outputs = tuple((onnx, name(tensor)) for onnx, tensor in program.outputs)
    holds = {exchange[old].name: held for old, held in program.holds.items() if old in exchange}
    return replace(program, nodes=tuple(nodes), outputs=outputs, names=names_of(program, outputs), holds={**holds, **program.holds})


def names_of(program: Program, outputs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """ONNX names of inputs and outputs by tensor; a tensor that is both keeps the input's."""
    inputs = {t.name: program.names.get(t.name, t.name) for t in program.inputs}
    return {tensor: onnx for onnx, tensor in reversed(tuple(outputs))} | inputs


def prune(program: Program) -> Program:
    """Without nodes and weights that no output depends on. An opaque node stays while any of its outputs is used."""
    wanted = {tensor for _, tensor in program.outputs}
    kept: list[ProgramNode] = []
    for node in reversed(program.nodes):
        if any(t.name in wanted for t in node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    weights = {name: value for name, value in program.weights.items() if name in wanted}
    return replace(program, nodes=tuple(reversed(kept)), weights=weights)


def is_copy(scope: Scope) -> Tensor | None:
    """The tensor of which the scope is an exact copy, box and all; else None."""
    body = scope.body
    if scope.sums or not isinstance(body, Read) or not isinstance(body.base, Tensor) or body.base.box != scope.box:
        return None
    straight = (e == var(i.name) or (i.extent == 1 and e == Index()) for e, i in zip(body.index, scope.loops))
    return body.base if all(straight) else None


class Fresh:
    """Tensor names that the program does not use yet."""

    def __init__(self, program: Program) -> None:
        self.taken = set(program.tensors()) | set(program.weights)

    def __call__(self, name: str) -> str:
        return take(name, self.taken)
