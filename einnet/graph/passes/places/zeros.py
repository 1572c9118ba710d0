"""Places along a dimension at which all that is added up is 0: features that a layer leaves 0 or the next one multiplies by 0, as pruning makes them.

    Σ[c<C] x[c]*W[f,c] = Σ[c<K] x[σ(c)]*W[f,σ(c)] where every term outside of the image of σ is 0

Dimensions that iterators walk side by side, in tensors, weights and scopes, are one class. A class loses the places at which each sum over it has a
term that is 0 for all numbers. No index function changes: iterators have fewer values, and weights the rows of those that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.functions import KEEPS_ZERO
from einnet.expr.index import Range, simplify, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Const,
    Div,
    Iter,
    Mul,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    bodies_in,
    reads,
    tensors,
    walk,
)  # fmt: skip
from einnet.expr.normal.totals import total
from einnet.graph.passes.places.scopes import written_anew
from einnet.graph.passes.places.unread import LEAST, readers_first
from einnet.graph.passes.settled import settling_of
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh

Zeros = NDArray[np.bool_]
"""For each place along a dimension, whether all is 0 there."""

Dimension = tuple[Scope | str, int]
"""A dimension of a tensor, by name; or an iterator of a scope, by where it stands among its loops and sums."""

ONE = Const(Fraction(1))


def drop_zero_places(program: Program) -> Program:
    """Dimensions between layers have the places where something is not 0, where that is a good part less than they had.

    It is true where inputs are numbers: `settled` names the nodes whose sums have fewer terms.
    """
    zeros = {name: found for name, value in program.weights.items() if (found := zero_slices(value))}
    if not zeros:
        return program
    classes = _Classes(program)
    kept = {c: np.flatnonzero(~left_out) for c, left_out in _left_out(program, zeros, classes).items()}
    return _with_places(program, classes, kept) if kept else program


Kept = Mapping[Dimension, NDArray[np.intp]]
"""The places that classes keep."""


def _with_places(program: Program, classes: _Classes, kept: Kept) -> Program:
    """The program in which some classes have those places alone."""
    changed, weights = _tensors_with_places(program, classes, kept)

    def exchanged(r: Read, _: Scope) -> Read:
        return Read(changed.get(r.base.name, r.base), r.index, r.fill) if isinstance(r.base, Tensor) else r

    def finish(s: Scope, body: Body) -> Scope:
        ends = ((i, kept.get(classes.of((s, n)))) for n, i in enumerate((*s.loops, *s.sums)))
        iters = tuple(i if at is None else Iter(i.name, 0, len(at)) for i, at in ends)
        return replace(s, loops=iters[: len(s.loops)], sums=iters[len(s.loops) :], body=body)

    nodes: list[ProgramNode] = []
    settled = list(program.settled)
    for node in program.nodes:
        if isinstance(node, Node) and (scope := written_anew(node.scope, exchanged, finish)) != node.scope:
            fewer = any(classes.of((s, n)) in kept for s in walk(node.scope) for n in range(len(s.loops), len(s.loops) + len(s.sums)))
            settled += node.origin[:1] if fewer else ()
            node = replace(node, output=changed.get(node.output.name, node.output), scope=scope)
        nodes.append(node)
    holds = {name: held for name, held in program.holds.items() if name not in changed}
    return replace(program, nodes=tuple(nodes), weights=weights, holds=holds, settled=tuple(dict.fromkeys(settled)))


def _tensors_with_places(program: Program, classes: _Classes, kept: Kept) -> tuple[dict[str, Tensor], dict[str, NDArray[Any]]]:
    """What stands for each tensor that loses places, by the name it had; and the weights, those that lose some under other names."""
    fresh, weights = Fresh(program), dict(program.weights)
    changed: dict[str, Tensor] = {}
    for name, t in program.tensors().items():
        places = {k: kept[c] for k in range(len(t.shape)) if (c := classes.of((name, k))) in kept}
        if not places:
            continue
        shape = tuple(len(places[k]) if k in places else extent for k, extent in enumerate(t.shape))
        changed[name] = replace(t, name=fresh(name) if name in weights else name, shape=shape)
        if name in weights:
            value = weights.pop(name)
            for axis, at in places.items():
                value = np.take(value, at, axis)
            weights[changed[name].name] = value
    return changed, weights


def zero_slices(value: NDArray[Any]) -> dict[int, Zeros]:
    """By dimension, of two places or more, the places at which an array is 0 throughout; dimensions that have none are not there."""
    found: dict[int, Zeros] = {}
    if value.dtype.kind != "f" or not value.size:
        return found
    for axis in (k for k, extent in enumerate(value.shape) if extent > 1):
        last = np.moveaxis(value, axis, -1)
        places = np.flatnonzero(last[(0,) * (value.ndim - 1)] == 0)
        places = places[[not last[..., k].any() for k in places]]
        if len(places):
            found[axis] = np.isin(np.arange(value.shape[axis]), places)
    return found


class _Classes:
    """Which dimensions are walked side by side, and which of these classes are as they are: what is given, given out, or indexed in any other way."""

    def __init__(self, program: Program) -> None:
        self.parent: dict[Dimension, Dimension] = {}
        self.fixed: set[Dimension] = set()
        whole = program.stored() | {t.name for t in program.inputs}
        for node in program.nodes:
            if isinstance(node, Node):
                for s in walk(node.scope):
                    self._read(s)
                for k, i in enumerate(node.scope.loops):
                    self._walks(node.scope, k, (node.output.name, k), i.range == (0, i.extent))
            else:
                whole |= {*node.inputs, *(t.name for t in node.outputs)}
        for name, t in program.tensors().items():
            for k in range(len(t.shape) if name in whole or t.values is not None else 0):
                self.fixed.add(self.of((name, k)))
        self.fixed = set(map(self.of, self.fixed))

    def of(self, d: Dimension) -> Dimension:
        """The dimension that stands for its class."""
        while (above := self.parent.setdefault(d, d)) != d:
            self.parent[d] = d = self.parent[above]
        return d

    def _read(self, s: Scope) -> None:
        names = {i.name: n for n, i in enumerate((*s.loops, *s.sums))}
        ranges = s.ranges
        for r in reads(s.body):
            for k, (ix, box) in enumerate(zip(r.index, r.base.box)):
                d: Dimension = (r.base if isinstance(r.base, Scope) else r.base.name, k)
                ix = simplify(ix, ranges)
                plain = next((n for n in ix.names() if ix == var(n) and ranges[n] == box and not r.fill), None)
                for name in ix.names():
                    self._walks(s, names[name], d, name == plain)
                if plain is None:
                    self.fixed.add(self.of(d))
        other = [c.index for b in bodies_in(s.body) if isinstance(b, Select) for c in b.conds]
        other += [b.index for b in bodies_in(s.body) if isinstance(b, Val)]
        for n in {names[name] for ix in other for name in ix.names()} | set(range(len(s.loops), len(names)) if s.reduce != "sum" else ()):
            self.fixed.add(self.of((s, n)))

    def _walks(self, s: Scope, n: int, d: Dimension, plain: bool) -> None:
        if plain:
            self.parent[self.of((s, n))] = self.of(d)
        else:
            self.fixed |= {self.of((s, n)), self.of(d)}


def _left_out(program: Program, weights: Mapping[str, Mapping[int, Zeros]], classes: _Classes) -> dict[Dimension, Zeros]:
    """The places that classes lose."""
    zeros: dict[Scope | str, Mapping[int, Zeros]] = {}
    zeros.update(weights)
    found: dict[Dimension, Zeros] = {}
    is_number = settling_of(program).is_number
    for node in program.expression_nodes():
        for s in reversed(readers_first(node.scope)):
            for n, i in enumerate((*s.loops, *s.sums)):
                zero = _zero(s.body, i, s.ranges, zeros, is_number)
                if n < len(s.loops):
                    zeros[s] = {**zeros.get(s, {}), n: zero}
                elif (c := classes.of((s, n))) not in classes.fixed:
                    found[c] = found[c] & zero if c in found else zero
        zeros[node.output.name] = zeros.get(node.scope, {})
    for zero in found.values():
        zero[0] &= not zero.all()
    return {c: zero for c, zero in found.items() if zero.mean() >= LEAST}


Known = Mapping[Scope | str, Mapping[int, Zeros]]


def _zero(body: Body, i: Iter, ranges: Mapping[str, Range], known: Known, is_number: Callable[[str], bool]) -> Zeros:
    """For each value of an iterator, whether the body is 0 there whatever the others are."""
    none = np.zeros(i.extent, dtype=bool)

    def zero(b: Body) -> Zeros:
        match b:
            case Read(base, index, fill) if not fill:
                of_base = known.get(base if isinstance(base, Scope) else base.name, {})
                walked = [k for k, (ix, box) in enumerate(zip(index, base.box)) if simplify(ix, ranges) == var(i.name) and box == i.range]
                return _any([none, *(of_base[k] for k in walked if k in of_base)])
            case Mul(args):
                either = _any([zero(a) for a in args])
                return either if either.any() and _are_numbers(args, is_number) else none
            case Add(args):
                return ~_any([~zero(a) for a in args])
            case Div(num, den):
                above = zero(num)
                return above if above.any() and _are_numbers((Div(ONE, den),), is_number) else none
            case Call(name, (arg,)) if name in KEEPS_ZERO:
                return zero(arg)
            case Select(_, then, other):
                return zero(then) & zero(other)
            case Const(value) if value == 0:
                return ~none
        return none

    return zero(body)


def _any(parts: list[Zeros]) -> Zeros:
    return np.asarray(np.array(parts).any(axis=0))


def _are_numbers(bodies: tuple[Body, ...], is_number: Callable[[str], bool]) -> bool:
    """All of them have values whatever the inputs are."""
    read = (r.base for b in bodies for r in reads(b))
    names = (name for base in read for name in (tensors(base) if isinstance(base, Scope) else (base.name,)))
    return all(map(total, bodies)) and all(map(is_number, names))
