"""Tensors that are integers but for a scale are kept as bytes, and products of such with weights of that kind are added up as integers.

A tensor x = s·(u + m), where u takes 256 values and s > 0 and m are numbers, is replaced by u. Where it is a factor of a contraction with weights
w = t·n of integers n, and t varies along the result only,

    Σ x·w = (Σ u·n + Σ m·n)·(s·t)

with Σ u·n exact in 32 bits. Nothing is known of quantisation: what is an integer is read off the expressions (`expr.whole`), and off the values of
weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import isinf, prod

import numpy as np

from einnet.expr.index import Range, bounds, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Const,
    Div,
    Iter,
    Mul,
    Number,
    Read,
    Scope,
    Tensor,
    indices,
    make_add,
    make_mul,
    map_reads,
    used_names,
)  # fmt: skip
from einnet.expr.whole import MOST_TERMS, holds, inside, of
from einnet.graph.passes.constant_folding import evaluate_weights
from einnet.graph.passes.grid import on_grid
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh, prune

BYTE, SIGNED = "u8", "i8"
VALUES = 256


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor is scale·(bytes + shift), at the same places."""

    bytes: Tensor
    scale: Fraction
    shift: int

    def read(self, r: Read, ranges: Mapping[str, Range]) -> Body | None:
        """A read of the tensor, by its bytes; None where what stands outside of it is no integer of theirs."""
        outside = Fraction(0) if inside(r.index, r, ranges) else self.outside(r.fill)
        if outside is None:
            return None
        whole: Body = Read(self.bytes, r.index, outside)
        return scaled(self.scale, shifted(whole, self.shift))

    def outside(self, fill: Number) -> Number | None:
        """What the bytes are read as where the tensor is read as `fill`; None where that is no integer."""
        if isinstance(fill, float) and isinf(fill):
            return fill
        found = Fraction(fill) / self.scale - self.shift
        return found if found.denominator == 1 else None


def as_bytes(program: Program) -> Program:
    """The program with bytes for tensors that are integers but for a scale, and with products of bytes."""
    made = _Pass(program)
    for node in program.nodes:
        made.nodes += made.node(node) if isinstance(node, Node) else [node]
    return prune(evaluate_weights(replace(program, nodes=tuple(made.nodes), weights=made.weights)))


def keeps_bytes(program: Program) -> bool:
    """Tensors that the program computes are bytes."""
    return any(node.output.dtype == BYTE for node in program.expression_nodes())


@dataclass
class _Pass:
    program: Program
    nodes: list[ProgramNode] = field(default_factory=list)
    known: dict[str, Held] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fresh = Fresh(self.program)
        self.weights = dict(self.program.weights)
        self.known.update({t.name: Held(t, Fraction(1), 0) for t in self.program.inputs if t.dtype == BYTE})

    def node(self, node: Node) -> list[ProgramNode]:
        """What stands for a node; its own tensor is there, too, as long as somebody reads it."""
        if node.output.dtype != "f32":
            return [node]
        scope = node.scope
        if isinstance(scope.body, Read) and (not scope.sums or scope.reduce in ("max", "min")):
            return self.selected(node, scope.body)
        if scope.sums:
            return self.product(node) or [node]
        return self.pointwise(replace(node, scope=replace(scope, body=plain(map_reads(scope.body, lambda r: self.read(r, scope)), scope))))

    def read(self, r: Read, scope: Scope) -> Body:
        """A read by the bytes of its tensor, where it has any."""
        held = self.known.get(r.base.name) if isinstance(r.base, Tensor) else None
        return r if held is None else held.read(r, scope.ranges) or r

    def selected(self, node: Node, r: Read) -> list[ProgramNode]:
        """A tensor each of whose elements is one of another tensor: so are the bytes."""
        held = self.known.get(r.base.name) if isinstance(r.base, Tensor) else None
        outside = held.outside(r.fill) if held else None
        if held is None or outside is None:
            return [node]
        scope = replace(node.scope, body=Read(held.bytes, r.index, outside))
        return self.kept(node, scope, held.scale, held.shift) if holds(BYTE, scope) else [node]

    def pointwise(self, node: Node) -> list[ProgramNode]:
        """A node without sums: bytes where it is a number times an integer of few values."""
        scale, core = parted(node.scope.body)
        ends = of(core, node.scope.ranges)
        if ends is None or not ends[1] - ends[0] < VALUES:
            return [node]
        source = self.moved(core, node.scope)
        if source is not None:
            self.known[node.output.name] = Held(source[0], scale, source[1])
            return [node]
        low = int(ends[0])
        return self.kept(node, replace(node.scope, body=shifted(core, -low)), scale, low)

    def moved(self, core: Body, scope: Scope) -> tuple[Tensor, int] | None:
        """The bytes of which a body is a copy but for a number that is added, and that number."""
        terms = core.args if isinstance(core, Add) else (core,)
        rest, shift = [t for t in terms if not isinstance(t, Const)], sum(t.value for t in terms if isinstance(t, Const))
        if len(rest) != 1 or not isinstance(read := rest[0], Read) or not isinstance(read.base, Tensor) or read.base.dtype != BYTE:
            return None
        return (read.base, int(shift)) if read.index == indices(scope.loops) and read.base.box == scope.box else None

    def kept(self, node: Node, scope: Scope, scale: Fraction, shift: int) -> list[ProgramNode]:
        """The bytes of a node as a node of their own, and the node that reads them."""
        if not holds(BYTE, scope):
            return [node]
        held = Held(Tensor(self.fresh(f"{node.output.name}_bytes"), scope.shape, BYTE), scale, shift)
        self.known[node.output.name] = held
        body = held.read(Read(node.output, indices(scope.loops)), scope.ranges)
        assert body is not None, "inside there is no fill"
        return [Node(held.bytes, scope, node.origin), Node(node.output, Scope(scope.loops, (), body), node.origin)]

    def product(self, node: Node) -> list[ProgramNode] | None:
        """A contraction of bytes and weights, added up as integers; None for another one."""
        scope = node.scope
        args = scope.body.args if isinstance(scope.body, Mul) else ()
        if scope.reduce != "sum" or len(args) != 2 or prod(i.extent for i in scope.sums) > MOST_TERMS:
            return None
        for data, weight in (args, args[::-1]):
            if isinstance(data, Read) and isinstance(data.base, Tensor) and data.base.name in self.known and not data.fill:
                found = self.weighted(scope, weight)
                if found is not None:
                    return self.summed(node, data, *found, first=data is args[0])
        return None

    def weighted(self, scope: Scope, weight: Body) -> tuple[Read, tuple[Iter, ...], np.ndarray] | None:
        """A read of weights as one of integers, and their scales along some loops; None where they are none, or their scale varies along a sum."""
        if not isinstance(weight, Read) or not isinstance(weight.base, Tensor) or weight.fill or weight.base.name not in self.program.weights:
            return None
        loops = {var(i.name): i for i in scope.loops}
        kept = [d for d, e in enumerate(weight.index) if e in loops]
        found = on_grid(np.asarray(self.program.weights[weight.base.name]), kept)
        if found is None:
            return None
        name = self.fresh(f"{weight.base.name}_integers")
        self.weights[name] = found[0]
        return Read(Tensor(name, weight.base.shape, SIGNED, True), weight.index), tuple(loops[weight.index[d]] for d in kept), found[1]

    def summed(self, node: Node, data: Read, weight: Read, along: tuple[Iter, ...], scales: np.ndarray, first: bool) -> list[ProgramNode]:
        """(Σ u·n + Σ m·n)·(s·t)."""
        held, scope, nodes = self.known[str(getattr(data.base, "name", ""))], node.scope, list[ProgramNode]()
        u = Read(held.bytes, data.index)
        if held.shift and not inside(u.index, u, scope.ranges):
            padding, u = self.padded(Read(held.bytes, data.index, Fraction(-held.shift)), scope, node)
            nodes.append(padding)
        total = Tensor(self.fresh(f"{node.output.name}_sum"), scope.shape)
        nodes.append(Node(total, replace(scope, body=Mul((u, weight) if first else (weight, u))), node.origin))
        body: Body = Read(total, indices(scope.loops))
        if held.shift:
            more, node_of = self.constant_sum(scope, weight, held.shift, node)
            nodes.append(node_of)
            body = make_add((body, more))
        name = self.fresh(f"{node.output.name}_scale")
        self.weights[name] = np.asarray(scales * float(held.scale), np.float32)
        factor = Read(Tensor(name, scales.shape, "f32", True), tuple(var(i.name) for i in along))
        return [*nodes, replace(node, scope=Scope(scope.loops, (), make_mul((body, factor))))]

    def padded(self, u: Read, scope: Scope, node: Node) -> tuple[Node, Read]:
        """The bytes with what stands around them, where a sum reads beyond their box, and the read of these."""
        ends = [bounds(e, scope.ranges) for e in u.index]
        loops = tuple(Iter(f"p{d}", 0, high - low + 1) for d, (low, high) in enumerate(ends))
        base = Tensor(self.fresh(f"{node.output.name}_padded"), tuple(i.extent for i in loops), BYTE)
        index = tuple(var(i.name) + low for i, (low, _) in zip(loops, ends, strict=True))
        made = Node(base, Scope(loops, (), Read(u.base, index, u.fill)), node.origin)
        return made, Read(base, tuple(e - low for e, (low, _) in zip(u.index, ends, strict=True)))

    def constant_sum(self, scope: Scope, weight: Read, shift: int, node: Node) -> tuple[Read, Node]:
        """Σ m·n along the loops that the weights know, as weights, and where they are read."""
        names = used_names(weight)
        loops = tuple(i for i in scope.loops if i.name in names)
        tensor = Tensor(self.fresh(f"{node.output.name}_shift"), tuple(i.extent for i in loops), "f32", True)
        made = Node(tensor, Scope(loops, scope.sums, make_mul((Const(Fraction(shift)), weight))), node.origin)
        return Read(tensor, tuple(var(i.name) - i.lo for i in loops)), made


def parted(body: Body) -> tuple[Fraction, Body]:
    """A body as a positive number times another body."""
    args = body.args if isinstance(body, Mul) else (body,)
    numbers = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, Fraction) and a.value > 0]
    rest = [a for a in args if not (isinstance(a, Const) and isinstance(a.value, Fraction) and a.value > 0)]
    scale = Fraction(1)
    for n in numbers:
        scale *= Fraction(n)
    return (scale, make_mul(rest)) if rest else (Fraction(1), body)


def scaled(scale: Fraction, body: Body) -> Body:
    return body if scale == 1 else make_mul((Const(scale), body))


def shifted(body: Body, by: int) -> Body:
    """The body and a number, as one number where one is added already, within the ends that the body is cut off at."""
    match body:
        case Call("min", (Call("max", (inner, Const(low))), Const(high))):
            return Call("min", (Call("max", (shifted(inner, by), Const(low + by))), Const(high + by)))
    terms = body.args if isinstance(body, Add) else (body,)
    numbers = [t.value for t in terms if isinstance(t, Const) and isinstance(t.value, Fraction)]
    rest = [t for t in terms if not (isinstance(t, Const) and isinstance(t.value, Fraction))]
    total = sum(map(Fraction, numbers), Fraction(by))
    return make_add([*rest, Const(total)] if total or not rest else rest)


def plain(body: Body, scope: Scope) -> Body:
    """Without the rounding of integers, and without ends that no integer reaches."""
    match body:
        case Add(args) | Mul(args):
            found = [plain(a, scope) for a in args]
            return make_add(found) if isinstance(body, Add) else make_mul(found)
        case Call("round", (Div(num, Const(d)),)):
            scale, core = parted(num)
            return core if scale == d and of(core, scope.ranges) is not None else body
        case Call(("min" | "max") as name, (arg, Const(end))):
            inner = plain(arg, scope)
            ends = of(inner, scope.ranges)
            idle = ends is not None and (ends[1] <= end if name == "min" else ends[0] >= end)
            return inner if idle else Call(name, (inner, Const(end)))
    return body
