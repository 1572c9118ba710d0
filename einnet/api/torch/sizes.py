"""Sizes of tensors in a graph, computed from the sizes among its inputs."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import torch

Node = Any
GraphModule = Any
Expression = Any
"""Of sympy, as torch has it for a size."""

ASKED = (torch.ops.aten.sym_size.int, torch.ops.aten.sym_numel.default)
"""Operators that give a size of a tensor."""


def from_inputs(graph: GraphModule) -> None:
    """Compute the sizes that the graph asks its tensors for from sizes among its inputs, where these are known as sums and products of such.

    A size that is asked of a tensor is there only when that is: it would cut what computes the tensor, and what is called with the size, in two.
    """
    asked = [node for node in graph.graph.nodes if node.op == "call_function" and node.target in ASKED]
    if not asked:
        return
    writer = _Writer(graph)
    for node in asked:
        found = writer.size(expression(node.meta.get("val")))
        if found is not None:
            node.replace_all_uses_with(found) if isinstance(found, torch.fx.Node) else _put(node, found)
            graph.graph.erase_node(node)


def expression(size: Any) -> Expression | int | None:
    """What torch knows of a size: a number, or an expression of symbols."""
    return size if isinstance(size, int) else size.node.expr if isinstance(size, torch.SymInt) else None


def _put(node: Node, number: int) -> None:
    """Put a number where a node is read."""
    for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, lambda n: number if n is node else n)
        user.kwargs = torch.fx.map_arg(user.kwargs, lambda n: number if n is node else n)


class _Writer:
    """Writes arithmetic on sizes behind the inputs of a graph."""

    def __init__(self, graph: GraphModule) -> None:
        self.graph = graph.graph
        self.known: dict[Expression, Node] = {}
        for node in self.graph.nodes:
            found = expression(node.meta.get("val")) if node.op == "placeholder" else None
            if getattr(found, "is_Symbol", False):
                self.known.setdefault(found, node)
        self.first = next(node for node in self.graph.nodes if node.op != "placeholder")

    def size(self, wanted: Expression | int | None) -> Node | int | None:
        """The node that gives a size, or a number; None where it is no sum and no product of sizes among the inputs."""
        if wanted is None or isinstance(wanted, int) or wanted.is_Integer:
            return None if wanted is None else int(wanted)
        if wanted not in self.known:
            call = operator.add if wanted.is_Add else operator.mul if wanted.is_Mul else None
            parts = [self.size(part) for part in wanted.args] if call else []
            if not call or any(part is None for part in parts):
                return None
            self.known[wanted] = reduce(lambda a, b: self._called(call, a, b), parts)
        return self.known[wanted]

    def _called(self, call: Any, a: Any, b: Any) -> Node:
        with self.graph.inserting_before(self.first):
            made = self.graph.call_function(call, (a, b))
        made.meta["val"] = call(*(x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in (a, b)))
        return made
