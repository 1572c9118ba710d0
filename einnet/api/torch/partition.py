"""Which nodes of a graph are taken, and the graph with these in parts.

A node is taken by what it is (an operator that torch's exporter has ONNX for, without randomness or writes) and by what it reads and gives
(tensors in the processor's memory, of element types that programs have). Which of the parts gain anything is measured later.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from einnet.api.torch.halves import HALVES, WIDE
from einnet.api.torch.simpler import simpler
from einnet.api.torch.sizes import from_inputs
from einnet.graph.onnx.exported import registry

Node = Any
GraphModule = Any

COMPUTED = (WIDE, *HALVES)
"""Element types of what programs compute, in float32."""

CARRIED = (*COMPUTED, torch.int64, torch.int32, torch.bool)
"""Element types of tensors that parts read and give."""


@cache
def known(target: Any) -> bool:
    """The exporter has ONNX for the operator, or does not tell."""
    found = registry()
    return found is None or bool(found[0].is_registered(target))


@cache
def decompositions() -> Mapping[Any, Any]:
    """Operators by simpler ones, as torch says it: where the exporter has no ONNX, and where elements may be dropped at random and are not."""
    found = {}
    for target, body in torch._decomp.core_aten_decompositions().items():
        if not isinstance(target, torch._ops.OpOverload):
            continue
        if DROPPED in (a.name for a in target._schema.arguments):
            found[target] = kept_whole(target, body)
        elif not known(target):
            found[target] = body
    found |= {target: body for target, body in torch._decomp.decomposition_table.items() if updates(target)}
    return found | {target: body for target, body in simpler().items() if not known(target)}


UPDATES = "training"
"""The argument of operators that update statistics: ONNX has another momentum and another variance, which torch's exporter does not tell apart."""


def updates(target: Any) -> bool:
    """A functional operator that gives updated statistics beside its result."""
    return isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable and UPDATES in (a.name for a in target._schema.arguments)


DROPPED = "dropout_p"
"""The argument of operators that drop elements, by how probably; such an operator counts as random whatever it is."""


def kept_whole(target: Any, body: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of an operator for calls that drop nothing, with results in the layout that the operator gives them."""
    place = [a.name for a in target._schema.arguments].index(DROPPED)

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        dropped = kwargs.get(DROPPED, args[place] if place < len(args) else 0.0)
        return laid_out(body(*args, **kwargs), layout(target, args, kwargs)) if dropped == 0.0 else NotImplemented

    return decomposition


def layout(target: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives as tensors without elements: their shapes and strides."""

    def hollow(x: Any) -> Any:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, torch.Tensor) else x

    with _disable_current_modes():
        args, kwargs = tree_map(hollow, (args, kwargs))
        return target(*args, **kwargs)


def laid_out(results: Sequence[Any], like: Sequence[Any]) -> tuple[Any, ...]:
    """Results with the strides of these, where they have their shape: who views a result rests on how it lies."""
    return tuple(arranged(x, y) if x.shape == y.shape and x.stride() != y.stride() else x for x, y in zip(results, like))


def arranged(x: Any, like: Any) -> Any:
    """A tensor that lies in memory in another's order of dimensions."""
    order = sorted(range(x.dim()), key=like.stride, reverse=True)
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.permute(order).contiguous().permute(back)


class Support:
    """Whether a node is taken, with the reason where it is not, by operator; of a graph with symbolic sizes perhaps those of fixed sizes alone."""

    def __init__(self, fixed: bool = False) -> None:
        self.reasons: dict[str, str] = {}
        self._fixed = fixed

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """The interface of torch's partitioner."""
        if node.op != "call_function":
            return False
        if node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (tuple, list)):
            return self.is_node_supported(submodules, node.args[0])
        if node.target in (operator.getitem,) or not isinstance(node.target, torch._ops.OpOverload):
            return False  # arithmetic on sizes: torch does it
        reason = refused(node)
        if reason is not None:
            self.reasons.setdefault(str(node.target), reason)
        return reason is None and (not self._fixed or fixed(node))


def refused(node: Node) -> str | None:
    """Why an operator's node is not taken; None where it is."""
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return "it draws random numbers"
    if node.target._schema.is_mutable:
        return "it writes its inputs"
    if not known(node.target):
        return "torch's exporter has no ONNX for it"
    for value in tensors([node, *node.all_input_nodes]):
        if value.device.type != "cpu":
            return f"it computes on {value.device.type}"
        if value.dtype not in CARRIED:
            return f"it has elements of type {str(value.dtype).removeprefix('torch.')}"
        if value.layout is not torch.strided:
            return f"it has a tensor of layout {value.layout}"
        if free_unbacked_symbols(value):
            return "a shape depends on data"
    if not list(tensors([node])):
        return "it gives no tensor"
    return None


def fixed(node: Node) -> bool:
    """What the node reads and gives has no symbolic size, and it is called with none."""
    read = [node, *node.all_input_nodes]
    symbolic = any(isinstance(n.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)) for n in read)
    return not symbolic and not any(free_symbols(t) for t in tensors(read))


def fixed_share(graph: GraphModule) -> float:
    """How much of what the graph's nodes read and give belongs to those that are taken and of fixed sizes: 0 to 1, by the sizes of the first call."""
    support, every, taken = Support(fixed=True), 0, 0
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and not moves(node):
            count = sum(elements(t) for t in tensors([node, *node.all_input_nodes]))
            every += count
            taken += count if support.is_node_supported({}, node) else 0
    return taken / every if every else 0.0


def elements(tensor: Any) -> int:
    """How many elements the tensor has, by the sizes of the first call."""
    return prod(size if isinstance(size, int) else size.node.hint or 1 for size in tensor.shape)


def tensors(nodes: list[Node]) -> Iterator[Any]:
    """The tensors that these nodes give, as torch's shape propagation knows them."""
    for node in nodes:
        value = node.meta.get("val")
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(one, torch.Tensor):
                yield one


def computes(nodes: list[Node]) -> bool:
    """Some node computes with floating-point numbers, and does not only move them: it gives them, or reads them as a comparison does."""
    called = [n for n in nodes if n.op == "call_function" and not moves(n)]
    return any(t.dtype in COMPUTED for n in called for t in tensors([n, *n.all_input_nodes]))


def moves(node: Node) -> bool:
    """The node is a view of its input, or takes one of several outputs."""
    return node.target is operator.getitem or views(node)


def views(node: Node) -> bool:
    """The node's result lies in the memory of its input."""
    if node.target is operator.getitem:
        return bool(views(node.args[0]))
    return node.op == "call_function" and any(r.alias_info is not None for r in node.target._schema.returns)


def without_last_views(nodes: Iterable[Node]) -> list[Node]:
    """The nodes of a part without the views that nothing in it reads: they cost nothing, and what aliases what stays as it is.

    Of a view that is read within the part and outside (a piece of a split, whose other pieces are results, reads such a one, too) there is one more,
    behind the part.
    """
    kept = dict.fromkeys(nodes)
    for node in sorted(kept, reverse=True):
        if views(node) and not any(user in kept for user in node.users):
            del kept[node]
    for node in sorted(kept, reverse=True):
        outside = [user for user in node.users if user not in kept]
        if views(node) and outside:
            with node.graph.inserting_after(node):
                again = node.graph.node_copy(node)
            for user in outside:
                user.replace_input_with(node, again)
    return list(kept)


def in_parts(graph: GraphModule, support: Support) -> list[list[Node]]:
    """The nodes that are taken in as few parts as follow one another, the first part first.

    A node's part is counted from the end: as many nodes that are not taken stand between it and the graph's outputs, in turns with such that are, as
    parts follow its own. So it is as near as can be to what reads it, no part reads what a later one gives, and the time is linear in the nodes
    (torch's own partitioner looks for a cycle at each step: 11 s for the 3,300 operators of a language model of 30 layers).
    """
    nodes = graph.graph.nodes
    taken = {node: bool(support.is_node_supported({}, node)) for node in nodes}
    behind: dict[Node, int] = {}
    parts: dict[int, list[Node]] = {}
    for node in reversed(nodes):
        behind[node] = max((behind[user] + (taken[user] and not taken[node]) for user in node.users), default=0)
    for node in nodes:
        if node.target is operator.getitem and taken[node]:
            behind[node] = behind[node.args[0]]  # one of several results is taken where they are made
        if taken[node]:
            parts.setdefault(behind[node], []).append(node)
    return [parts[count] for count in sorted(parts, reverse=True)]


def partition(graph: GraphModule, fixed: bool = False) -> tuple[GraphModule, list[str], dict[str, str]]:
    """The graph with the parts that are taken as submodules, their names in order, and by operator why it is not taken.

    What is `fixed` has no symbolic sizes.
    """
    from_inputs(graph)
    support = Support(fixed)
    groups = [without_last_views(nodes) for nodes in in_parts(graph, support)]
    fused = fuse_by_partitions(graph, [dict.fromkeys(nodes) for nodes in groups if computes(nodes)])
    names = [node.target for node in fused.graph.nodes if node.op == "call_module"]
    return fused, names, support.reasons
