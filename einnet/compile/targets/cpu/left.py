"""Nodes that are recursions, left to ONNX Runtime where that takes less time with all threads: their equations run in one."""

from __future__ import annotations

from dataclasses import replace

from einnet.graph.program import Node, Opaque, Program, ProgramNode
from einnet.instantiate.kernels import Kernel, OpaqueCall
from einnet.runtime.costs import CpuCost
from einnet.search.plan import Assembly

LESS = 0.9
"""Of the time of its equations: a node that takes less than that is left."""


def left(program: Program, cost: CpuCost) -> Program:
    """The program with recursions for those nodes only that gain by them."""
    nodes = tuple(n if isinstance(n, Node) or n.recursion is None else faster(n, program, cost) for n in program.nodes)
    return program if nodes == program.nodes else replace(program, nodes=nodes)


def faster(node: Opaque, program: Program, cost: CpuCost) -> ProgramNode:
    """The node as it is, or without its recursion, and saying so."""
    call = call_of(node, program)
    if not isinstance(call, OpaqueCall) or call.recursion is None:
        return node
    along, alone = cost.costs([call, replace(call, recursion=None)])
    if alone >= LESS * along:
        return node
    times = f"{1e6 * alone:.3g} us beside {1e6 * along:.3g}"
    return replace(node, recursion=None, why=f"{node.why}, and ONNX Runtime's own code was measured to be faster than these: {times}")


def call_of(node: Opaque, program: Program) -> Kernel:
    """What runs the node in a plan."""
    assembly = Assembly(program)
    assembly.opaque(node)
    return assembly.kernels[-1]
