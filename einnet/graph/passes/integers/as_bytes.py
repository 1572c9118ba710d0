"""Tensors that are integers but for a scale are kept as bytes, and products of such with each other and with weights are added up as integers.

A tensor x = s·(u + p), where u takes 256 values and s > 0 and p do not vary with the place, is replaced by u. Where it is a factor of a contraction
with w = t·(n + q) of integers n, weights or another such tensor, and t and q vary along the result only,

    Σ x·w = (Σ u·n + p·Σ n + q·Σ u + p·q·Σ 1)·(s·t)

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
from einnet.expr.integers import MOST_TERMS, holds, inside, of
from einnet.expr.nodes import (
    Add,
    Body,
    Const,
    Iter,
    Mul,
    Number,
    Read,
    Scope,
    Tensor,
    flat,
    indices,
    make_add,
    make_mul,
    map_reads,
    used_names,
)  # fmt: skip
from einnet.graph.passes.constant_folding import evaluate_weights
from einnet.graph.passes.integers.byte_factors import BYTE, MIDDLE, SIGNED, VALUES, Factor, Weights, parted, plain, scaled, shifted, within_float32
from einnet.graph.passes.integers.scaled_integers import on_grid
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh, prune


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor is scale·(bytes + shift + beside), at the same places; `beside` is an integer that is the same everywhere, of each run."""

    bytes: Tensor
    scale: Fraction
    shift: int
    beside: Body | None = None

    def read(self, r: Read, ranges: Mapping[str, Range]) -> Body | None:
        """A read of the tensor, by its bytes; None where what stands outside of it is no integer of theirs."""
        outside = Fraction(0) if inside(r.index, r, ranges) else self.outside(r.fill)
        if outside is None:
            return None
        whole = shifted(Read(self.bytes, r.index, outside), self.shift)
        return scaled(self.scale, make_add((whole, self.beside)) if self.beside else whole)

    def outside(self, fill: Number) -> Number | None:
        """What the bytes are read as where the tensor is read as `fill`; None where that is no integer."""
        if isinstance(fill, float) and isinf(fill):
            return fill
        if self.beside is not None:
            return None
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
        return self.pointwise(replace(node, scope=replace(scope, body=plain(flat(map_reads(scope.body, lambda r: self.read(r, scope))), scope))))

    def read(self, r: Read, scope: Scope) -> Body:
        """A read by the bytes of its tensor, where it has any."""
        held = self.known.get(r.base.name) if isinstance(r.base, Tensor) else None
        return r if held is None else held.read(r, scope.ranges) or r

    def selected(self, node: Node, r: Read) -> list[ProgramNode]:
        """A tensor each of whose elements is one of another tensor: so are the bytes."""
        held = self.known.get(r.base.name) if isinstance(r.base, Tensor) else None
        outside = None if held is None else Fraction(0) if inside(r.index, r, node.scope.ranges) else held.outside(r.fill)
        if held is None or outside is None:
            return [node]
        scope = replace(node.scope, body=Read(held.bytes, r.index, outside))
        return self.kept(node, scope, held.scale, held.shift, held.beside) if holds(BYTE, scope) else [node]

    def pointwise(self, node: Node) -> list[ProgramNode]:
        """A node without sums: bytes where it is a number times an integer of few values."""
        scale, core = parted(node.scope.body)
        ends = of(core, node.scope.ranges)
        if ends is None:
            return [node]
        source = self.moved(core, node.scope)
        if source is not None:
            self.known[node.output.name] = replace(source, scale=scale)
        if source is not None or not ends[1] - ends[0] < VALUES:
            return [node]
        low = int(ends[0])
        return self.kept(node, replace(node.scope, body=shifted(core, -low)), scale, low)

    def moved(self, core: Body, scope: Scope) -> Held | None:
        """The bytes of which a body, an integer, is a copy but for what is added: a number, and what is the same everywhere."""
        terms = core.args if isinstance(core, Add) else (core,)
        rest, shift = [t for t in terms if not isinstance(t, Const)], sum(t.value for t in terms if isinstance(t, Const))
        own, others = [t for t in rest if used_names(t)], [t for t in rest if not used_names(t)]
        if len(own) != 1 or not isinstance(read := own[0], Read) or not isinstance(read.base, Tensor) or read.base.dtype != BYTE:
            return None
        same = read.index == indices(scope.loops) and read.base.box == scope.box
        return Held(read.base, Fraction(1), int(shift), make_add(others) if others else None) if same else None

    def kept(self, node: Node, scope: Scope, scale: Fraction, shift: int, beside: Body | None = None) -> list[ProgramNode]:
        """The bytes of a node as a node of their own, and the node that reads them."""
        if not holds(BYTE, scope):
            return [node]
        held = Held(Tensor(self.fresh(f"{node.output.name}_bytes"), scope.shape, BYTE), scale, shift, beside)
        self.known[node.output.name] = held
        body = held.read(Read(node.output, indices(scope.loops)), scope.ranges)
        assert body is not None, "inside there is no fill"
        return [Node(held.bytes, scope, node.origin), Node(node.output, Scope(scope.loops, (), body), node.origin)]

    def product(self, node: Node) -> list[ProgramNode] | None:
        """A contraction of bytes with weights or bytes, added up as integers; None for another one."""
        scope = node.scope
        args = scope.body.args if isinstance(scope.body, Mul) else ()
        if scope.reduce != "sum" or len(args) != 2 or prod(i.extent for i in scope.sums) > MOST_TERMS:
            return None
        for data, other in (args, args[::-1]):
            found = self.data(data, scope, node)
            factor = found and (self.weighted(scope, other) or self.signed(scope, other, node))
            if found and factor and (found.beside is factor.beside is None or within_float32(scope, factor)):
                return [*found.nodes, *factor.nodes, *self.summed(node, found, factor, first=data is args[0])]
        return None

    def data(self, x: Body, scope: Scope, node: Node) -> Factor | None:
        """A read of bytes that is 0 outside, where their zero point stands around them."""
        held = self.known.get(x.base.name) if isinstance(x, Read) and isinstance(x.base, Tensor) else None
        if held is None or not isinstance(x, Read) or x.fill:
            return None
        u, nodes, around = Read(held.bytes, x.index), list[ProgramNode](), not inside(x.index, x, scope.ranges)
        if around and held.beside is not None:
            return None
        if around and held.shift:
            padding, u = self.padded(Read(held.bytes, x.index, Fraction(-held.shift)), scope, node)
            nodes.append(padding)
        return Factor(u, Fraction(held.shift), held.beside, float(held.scale), tuple(nodes))

    def signed(self, scope: Scope, x: Body, node: Node) -> Factor | None:
        """A read of other bytes as integers from -128 to 127."""
        found = self.data(x, scope, node) if isinstance(x, Read) and inside(x.index, x, scope.ranges) else None
        if found is None or not isinstance(found.read.base, Tensor):
            return None
        source = found.read.base
        loops = tuple(Iter(f"s{d}", 0, n) for d, n in enumerate(source.shape))
        body = make_add((Read(source, indices(loops)), Const(Fraction(-MIDDLE))))
        made = Tensor(self.fresh(f"{source.name}_signed"), source.shape, SIGNED)
        return replace(found, read=Read(made, found.read.index), shift=found.shift + MIDDLE, nodes=(Node(made, Scope(loops, (), body), node.origin),))

    def weighted(self, scope: Scope, weight: Body) -> Factor | None:
        """A read of weights as one of integers, and their scales along some loops; None where they are none, or their scale varies along a sum."""
        if not isinstance(weight, Read) or not isinstance(weight.base, Tensor) or weight.fill or weight.base.name not in self.program.weights:
            return None
        loops = {var(i.name): i for i in scope.loops}
        kept = [d for d, e in enumerate(weight.index) if e in loops]
        found = on_grid(np.asarray(self.program.weights[weight.base.name]), kept)
        if found is None or (found.shifts.any() and not inside(weight.index, weight, scope.ranges)):
            return None
        name = self.fresh(f"{weight.base.name}_integers")
        self.weights[name] = found.integers
        along = tuple(loops[weight.index[d]] for d in kept)
        read, moved = Read(Tensor(name, weight.base.shape, SIGNED, True), weight.index), found.shifts
        beside = self.array(f"{name}_middle", moved, along) if moved.any() else None
        rows = np.abs(found.integers.astype(np.int64)).sum(tuple(d for d in range(found.integers.ndim) if d not in kept))
        return Factor(read, Fraction(0), beside, 1.0, (), Weights(along, found.scales, int(rows.max()), int(np.abs(moved).max())))

    def array(self, hint: str, values: np.ndarray, along: tuple[Iter, ...]) -> Read:
        """Numbers along some loops, as weights that are read there."""
        name = self.fresh(hint)
        self.weights[name] = np.asarray(values, np.float32)
        return Read(Tensor(name, values.shape, "f32", True), tuple(var(i.name) for i in along))

    def summed(self, node: Node, data: Factor, other: Factor, first: bool) -> list[ProgramNode]:
        """Σ (u + p)·(n + q) = Σ u·n + p·Σ n + q·Σ u + p·q·Σ 1, times the scales."""
        scope, nodes = node.scope, list[ProgramNode]()
        total = Tensor(self.fresh(f"{node.output.name}_sum"), scope.shape)
        nodes.append(Node(total, replace(scope, body=Mul((data.read, other.read) if first else (other.read, data.read))), node.origin))
        terms: list[Body] = [Read(total, indices(scope.loops))]
        for moved, read in ((data.moved, other.read), (other.moved, data.read)):
            for by in moved:
                more, node_of = self.sum_of(scope, read, by if isinstance(by, Const) else None, node)
                nodes.append(node_of)
                terms.append(more if isinstance(by, Const) else make_mul((by, more)))
        count = Const(Fraction(prod(i.extent for i in scope.sums)))
        terms += [make_mul((count, p, q)) for p in data.moved for q in other.moved]
        scales = data.scale * other.scale * (other.weights.scales if other.weights else np.ones(()))
        factor = self.array(f"{node.output.name}_scale", scales, other.weights.along if other.weights else ())
        return [*nodes, replace(node, scope=Scope(scope.loops, (), make_mul((make_add(terms), factor))))]

    def padded(self, u: Read, scope: Scope, node: Node) -> tuple[Node, Read]:
        """The bytes with what stands around them, where a sum reads beyond their box, and the read of these."""
        ends = [bounds(e, scope.ranges) for e in u.index]
        loops = tuple(Iter(f"p{d}", 0, high - low + 1) for d, (low, high) in enumerate(ends))
        base = Tensor(self.fresh(f"{node.output.name}_padded"), tuple(i.extent for i in loops), BYTE)
        index = tuple(var(i.name) + low for i, (low, _) in zip(loops, ends, strict=True))
        made = Node(base, Scope(loops, (), Read(u.base, index, u.fill)), node.origin)
        return made, Read(base, tuple(e - low for e, (low, _) in zip(u.index, ends, strict=True)))

    def sum_of(self, scope: Scope, factor: Read, times: Const | None, node: Node) -> tuple[Read, Node]:
        """Σ n, or Σ m·n, along the loops that a factor knows, and where it is read; known when the program is made where the factor is."""
        names = used_names(factor)
        loops = tuple(i for i in scope.loops if i.name in names)
        known = isinstance(factor.base, Tensor) and factor.base.weight
        tensor = Tensor(self.fresh(f"{node.output.name}_shift"), tuple(i.extent for i in loops), "f32", known)
        made = Node(tensor, Scope(loops, scope.sums, make_mul((times, factor)) if times else factor), node.origin)
        return Read(tensor, tuple(var(i.name) - i.lo for i in loops)), made
