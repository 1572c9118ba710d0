"""Storage order of tensors: what order they want, and a program in which they have it.

An order lists the dimensions of the ONNX tensor as they are stored, outermost first. Scopes are closed functions of their loops, so a
permuted tensor is the same scope with permuted loops, read at permuted indices; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Mul, Read, Scope, Tensor, indices, map_reads, reads
from einnet.graph.contiguous import contiguous
from einnet.graph.operators.builders import loops_of
from einnet.graph.program import Held, Node, Opaque, Program, ProgramNode
from einnet.graph.rewrite import Fresh

Order = tuple[int, ...]


def permuted(tensor: Tensor, order: Order, name: str) -> Tensor:
    """The tensor as stored in that order."""
    return replace(tensor, name=name, shape=tuple(tensor.shape[k] for k in order))


def permute(program: Program, order: Mapping[str, Order]) -> Program:
    """Store the named tensors in other orders.

    Inputs and outputs of the program and of opaque nodes keep their ONNX order; a copy node stands between where the two differ.
    Permuted weights are transposed at once. A tensor none of whose elements would move stays as it is.
    """
    tensors = program.tensors()
    orders = {name: perm for name, perm in order.items() if moves(perm, tensors[name].shape)}
    return _Permutation(program, orders).program() if orders else program


def moves(order: Order, shape: Sequence[int]) -> bool:
    """Elements lie elsewhere in that order: dimensions of more than one element change places."""
    long = [k for k in order if shape[k] != 1]
    return long != sorted(long)


def in_onnx_order(program: Program) -> tuple[set[str], set[str]]:
    """The tensors that come in ONNX order, from outside or from opaque nodes, and those that somebody reads in it."""
    opaque = [node for node in program.nodes if isinstance(node, Opaque)]
    given = {t.name for t in program.inputs} | {t.name for node in opaque for t in node.outputs}
    return given, {name for _, name in program.outputs} | {name for node in opaque for name in node.inputs}


class _Permutation:
    def __init__(self, program: Program, orders: Mapping[str, Order]) -> None:
        self.source = program
        self.orders = orders
        self.fresh = Fresh(program)
        self.weights: dict[str, np.ndarray] = dict(program.weights)
        self.nodes: list[ProgramNode] = []
        given, self.plain = in_onnx_order(program)
        self.stored: dict[str, Tensor] = {}
        tensors = program.tensors()
        for name, perm in orders.items():
            both = name in self.plain or name in given
            self.stored[name] = permuted(tensors[name], perm, self.fresh(f"{name}_permuted") if both else name)

    def program(self) -> Program:
        for tensor in self.source.inputs:
            self.bring(tensor)
        for name, value in self.source.weights.items():
            if name in self.orders:
                if name not in self.plain:
                    del self.weights[name]
                self.weights[self.stored[name].name] = contiguous(np.transpose(value, self.orders[name]))
        for node in self.source.nodes:
            if isinstance(node, Opaque):
                self.nodes.append(node)
                for tensor in node.outputs:
                    self.bring(tensor)
            else:
                self.nodes.extend(self.rewritten(node))
        return replace(self.source, nodes=tuple(self.nodes), weights=self.weights, holds=self.holds())

    def holds(self) -> dict[str, Held]:
        """The values that the tensors hold, in their orders."""
        found = dict(self.source.holds)
        for name, perm in self.orders.items():
            held = self.source.holds.get(name)
            if held is not None:
                found[self.stored[name].name] = Held(held.value, tuple(held.order[k] for k in perm))
        return found

    def bring(self, tensor: Tensor) -> None:
        """Copy a tensor that arrives in ONNX order into its stored order."""
        if tensor.name in self.orders:
            perm, stored = self.orders[tensor.name], self.stored[tensor.name]
            loops = loops_of(tensor.shape)
            self.nodes.append(Node(stored, Scope(tuple(loops[k] for k in perm), (), Read(tensor, indices(loops)))))

    def rewritten(self, node: Node) -> Iterator[Node]:
        """The node over stored tensors, and a copy back where its result is also read in ONNX order."""
        scope = self.scope(node.scope)
        perm = self.orders.get(node.output.name)
        if perm is None:
            yield replace(node, scope=scope)
            return
        stored = self.stored[node.output.name]
        yield replace(node, output=stored, scope=replace(scope, loops=tuple(scope.loops[k] for k in perm)))
        if node.output.name in self.plain:
            loops = loops_of(node.output.shape)
            yield Node(node.output, Scope(loops, (), Read(stored, tuple(var(loops[k].name) for k in perm))), node.origin)

    def scope(self, scope: Scope) -> Scope:
        """The scope with its reads permuted, in nested scopes too."""

        def swap(r: Read) -> Body:
            if isinstance(r.base, Scope):
                return replace(r, base=self.scope(r.base))
            perm = self.orders.get(r.base.name)
            return r if perm is None else Read(self.stored[r.base.name], tuple(r.index[k] for k in perm), r.fill)

        return replace(scope, body=map_reads(scope.body, swap))


def channels_last(program: Program) -> dict[str, Order]:
    """Which tensors want their channels in the last dimension, as orders for `permute`.

    Convolutions say so for their data and result; it spreads along reads that keep dimensions apart (pointwise, pooling, concatenation).
    Tensors with fewer than three dimensions and weights are left alone. A convolution that adds up no channels is as well off in any order: where
    none that does reaches it, its tensors are stored so only if nothing has to be copied for that.
    """
    spread = _Spread(program)
    found = [(node, channels) for node in program.expression_nodes() if (channels := convolution_channels(node.scope)) is not None]
    channel = spread.by(((c.data.name, c.source), (node.output.name, c.target)) for node, c in found if c.added)
    for node, c in found:
        if not c.added and c.data.name not in channel:
            more = spread.by([((c.data.name, c.source), (node.output.name, c.target))], channel)
            if not (more.keys() - channel.keys()) & spread.fixed:
                channel = more
    shapes = {name: t.shape for name, t in program.tensors().items()}
    last = {name: (*(k for k in range(len(shapes[name])) if k != dim), dim) for name, dim in channel.items()}
    return {name: perm for name, perm in last.items() if perm != tuple(range(len(perm)))}


class _Spread:
    """How dimensions of channels spread. Tensors that are `fixed` come and go in ONNX order: to store them in another one they are copied."""

    def __init__(self, program: Program) -> None:
        self._tensors, self._nodes = program.tensors(), list(program.expression_nodes())
        self.fixed = frozenset[str]().union(*in_onnx_order(program))

    def by(self, told: Iterable[Sequence[tuple[str, int]]], known: Mapping[str, int] | None = None) -> dict[str, int]:
        """The dimensions of channels by tensor: what is `told` of some tensors and `known` of others, and where that leads."""
        channel = dict(known or {})
        for name, dimension in chain.from_iterable(told):
            self._learn(channel, name, dimension)
        while sum(self._passed_on(channel, node, read) for node in self._nodes for read in reads(node.scope.body)):
            pass
        return channel

    def _learn(self, channel: dict[str, int], name: str, dimension: int | None) -> bool:
        """Note a dimension, where that is news."""
        if dimension is None or name in channel or len(self._tensors[name].shape) < 3 or self._tensors[name].weight:
            return False
        channel[name] = dimension
        return True

    def _passed_on(self, channel: dict[str, int], node: Node, read: Read) -> bool:
        """From what a node reads to its result, or back."""
        if isinstance(read.base, Scope) or len(read.index) != len(node.scope.loops):
            return False
        pairs = dimension_pairs(read.index, node.scope)
        if read.base.name in channel:
            return self._learn(channel, node.output.name, pairs.get(channel[read.base.name]))
        if node.output.name in channel:
            back = {loop: k for k, loop in pairs.items()}
            return self._learn(channel, read.base.name, back.get(channel[node.output.name]))
        return False


def dimension_pairs(index: Sequence[Index], scope: Scope) -> dict[int, int]:
    """Dimensions of a read tensor by loops, {dimension: loop}; empty unless no dimension mixes loops and no loop serves two dimensions."""
    position = {i.name: k for k, i in enumerate(scope.loops)}
    pairs: dict[int, int] = {}
    for dimension, e in enumerate(index):
        loops = [position[name] for name in e.names() if name in position]
        if len(loops) > 1 or any(loop in pairs.values() for loop in loops):
            return {}
        if loops:
            pairs[dimension] = loops[0]
    return pairs


class Channels(NamedTuple):
    """The data of a convolution, the dimension of its channels, that of the result's, and whether several channels are added up."""

    data: Tensor
    source: int
    target: int
    added: bool


def convolution_channels(scope: Scope) -> Channels | None:
    """The channels of a convolution; None for anything else.

    Loops that do not index the filter are positions; where the data is read at a position moved by a summation iterator, or strided, the
    scope is a convolution. Channels are what both operands index by the same summation iterator alone.
    """
    if scope.reduce != "sum" or not isinstance(scope.body, Mul):
        return None
    factors = [a for a in scope.body.args if isinstance(a, Read) and isinstance(a.base, Tensor)]
    if len(factors) != 2 or len(scope.body.args) != 2:
        return None
    ways = (_channels_of(scope, data, kernel) for data, kernel in (factors, factors[::-1]))
    return next((found for found in ways if found), None)


def _channels_of(scope: Scope, data: Read, kernel: Read) -> Channels | None:
    """`convolution_channels` of a sum of products of data and a filter: None where the data is not moved, or there are several channels."""
    loops, sums = {i.name for i in scope.loops}, {i.name for i in scope.sums}
    shared = frozenset[str]().union(*(e.names() for e in kernel.index))
    if not any(is_moved(e, loops - shared, sums) for e in data.index):
        return None
    source = [k for k, e in enumerate(data.index) if e.names() & sums and e.names() <= shared]
    target = [k for k, i in enumerate(scope.loops) if i.name in shared]
    if len(source) != 1 or len(target) != 1 or isinstance(data.base, Scope):
        return None
    one = all(i.extent == 1 for i in scope.sums if i.name in data.index[source[0]].names())
    return Channels(data.base, source[0], target[0], not one or not data.index[source[0]].names() & loops)


def is_moved(e: Index, positions: set[str], sums: set[str]) -> bool:
    """An index that takes a position together with a summation iterator, or with a stride."""
    names = e.names()
    if not names & positions:
        return False
    return bool(names & sums) or e.den != 1 or any(abs(c) != 1 for _, c in e.terms)
