"""Sums of integers that are scaled, moved and rounded are scaled once: round((a·S + b)/s) of an integer S is round((S + b/a)·(a/s)).

Where b/a is an integer but for its rounding, as a bias of a quantised model is, the sum is one integer until it is multiplied, and floats are rounded
once before they are rounded to an integer. Engines that compute quantised models as integers do so; which expressions are such is read off them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.index import var
from einnet.expr.integers import BYTES
from einnet.expr.nodes import Add, Body, Call, Const, Div, Mul, Read, Scope, Tensor, indices, make_add, make_mul, reads
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh, prune

Numbers = NDArray[np.float64]

NEAR = 2.0**-21
"""How far from an integer what is added may be, relative to it: both of its factors were rounded to float32."""

GREATEST = 1 << 24
"""Up to here, float32 has every integer."""


@dataclass(frozen=True)
class Affine:
    """scale·read + offset, over loops of which both have one dimension each, of extent 1 where they do not vary; a number where there is no read."""

    read: Read | None
    scale: Numbers
    offset: Numbers

    def times(self, other: Affine) -> Affine | None:
        """The product with what has no read."""
        if other.read is not None:
            return None if self.read is not None else other.times(self)
        return Affine(self.read, self.scale * other.offset, self.offset * other.offset)

    def plus(self, other: Affine) -> Affine | None:
        """The sum, of which one part has a read."""
        if self.read is not None and other.read is not None:
            return None
        read, scale = (self.read, self.scale) if self.read is not None else (other.read, other.scale)
        return Affine(read, scale, self.offset + other.offset)


def integer_sums(program: Program) -> Program:
    """The program with one factor for each such sum."""
    made = _Pass(program)
    nodes = tuple(made.node(n) for n in program.nodes)
    return prune(replace(program, nodes=nodes, weights={**program.weights, **made.weights})) if made.weights or nodes != program.nodes else program


class _Pass:
    """What computes each tensor, how often it is read, and the weights that are made."""

    def __init__(self, program: Program) -> None:
        self.program, self.weights, self.fresh = program, dict[str, NDArray[Any]](), Fresh(program)
        self.nodes = {n.output.name: n for n in program.nodes if isinstance(n, Node)}
        self.uses = Counter(name for n in program.nodes for name in n.inputs) + Counter(name for _, name in program.outputs)

    def node(self, node: ProgramNode) -> ProgramNode:
        """The node, with its sum scaled once where it rounds one."""
        if not isinstance(node, Node) or node.scope.sums:
            return node
        body = self.rounding(node.scope.body, node.scope, node.output.name)
        return node if body is node.scope.body else replace(node, scope=replace(node.scope, body=body))

    def rounding(self, body: Body, scope: Scope, hint: str) -> Body:
        """A body with what it rounds last."""
        match body:
            case Call(name, (inner, Const() as end)) if name in ("min", "max"):
                found = self.rounding(inner, scope, hint)
                return body if found is inner else Call(name, (found, end))
            case Add((Call("round", _) as inner, Const() as zero)):
                found = self.rounding(inner, scope, hint)
                return body if found is inner else Add((found, zero))
            case Call("round", (Div(num, Const(Fraction() as s)),)) if s > 0:
                affine = self.affine(num, scope)
                once = self.once(affine, float(s), scope, hint) if affine and affine.read is not None else None
                return body if once is None else Call("round", (once,))
        return body

    def once(self, found: Affine, s: float, scope: Scope, hint: str) -> Body | None:
        """(S + b/a)·(a/s); None where b/a is no integer that float32 has, or a is 0."""
        assert found.read is not None
        if not (found.scale != 0).all():
            return None
        moved = found.offset / found.scale
        whole = np.rint(moved)
        if not (np.isfinite(moved) & (np.abs(moved - whole) <= NEAR * np.abs(whole)) & (np.abs(whole) <= GREATEST)).all():
            return None
        factor = found.scale.astype(np.float32) / np.float32(s)
        if not (np.isfinite(factor) & (factor != 0)).all():
            return None
        added = self.numbers(whole, scope, f"{hint}_added")
        return make_mul((make_add((found.read, added)) if whole.any() else found.read, self.numbers(factor, scope, f"{hint}_factor")))

    def numbers(self, values: NDArray[Any], scope: Scope, hint: str) -> Body:
        """Numbers over the loops along which they vary; one number where they are all the same."""
        if (values == values.flat[0]).all():
            return Const(Fraction(float(values.flat[0])))
        kept = [i for i, n in zip(scope.loops, values.shape, strict=True) if n > 1]
        name = self.fresh(hint)
        self.weights[name] = np.ascontiguousarray(values.reshape([i.extent for i in kept]), np.float32)
        return Read(Tensor(name, self.weights[name].shape, "f32", True), tuple(var(i.name) - i.lo for i in kept))

    def affine(self, body: Body, scope: Scope) -> Affine | None:
        """A body as a multiple of one sum of integers and a number, which may vary with the place; None where it is another."""
        ones = np.ones((1,) * len(scope.loops))
        match body:
            case Const(Fraction() as value):
                return Affine(None, ones, ones * float(value))
            case Add(args) | Mul(args):
                found = self.affine(args[0], scope)
                for arg in args[1:]:
                    other = self.affine(arg, scope) if found else None
                    found = None if found is None or other is None else found.plus(other) if isinstance(body, Add) else found.times(other)
                return found
            case Read(Tensor() as base, index):
                loops = [var(i.name) for i in scope.loops]
                places = [loops.index(e) for e in index if e in loops]
                if len(places) != len(index) or len(set(places)) != len(index) or any(i.lo for i in scope.loops):
                    return None
                if tuple(scope.loops[p].extent for p in places) != base.shape:
                    return None
                return self.constant(base, places, ones) if base.name in self.program.weights else self.behind(body, base, places, scope)
        return None

    def constant(self, base: Tensor, places: list[int], ones: Numbers) -> Affine:
        """A weight with a dimension for each loop."""
        values = np.asarray(self.program.weights[base.name], np.float64)
        order = np.argsort(places)
        shape = [1] * ones.ndim
        for p, n in zip(places, base.shape, strict=True):
            shape[p] = n
        return Affine(None, ones, values.transpose(order).reshape(shape))

    def behind(self, read: Read, base: Tensor, places: list[int], scope: Scope) -> Affine | None:
        """A tensor that nothing else reads, by what computes it: a sum of integers is read, of another the scope is looked at."""
        node = self.nodes.get(base.name)
        if node is None or self.uses[base.name] > 1 or len(places) != len(scope.loops) or base.dtype != "f32":
            return None
        if node.scope.sums:
            ones = np.ones((1,) * len(scope.loops))
            return Affine(read, ones, 0 * ones) if counts(node.scope) else None
        inner = self.affine(node.scope.body, node.scope)
        if inner is None or (inner.read is not None and inner.read.index != indices(node.scope.loops)):
            return None
        order = np.argsort(places)
        return Affine(inner.read and replace(inner.read, index=read.index), inner.scale.transpose(order), inner.offset.transpose(order))


def counts(scope: Scope) -> bool:
    """The scope is a sum of products of integers that are kept as bytes."""
    factors = scope.body.args if isinstance(scope.body, Mul) else ()
    integers = all(isinstance(f, Read) and isinstance(f.base, Tensor) and f.base.dtype in BYTES for f in factors)
    return scope.reduce == "sum" and len(factors) == 2 and integers and len(list(reads(scope.body))) == 2
