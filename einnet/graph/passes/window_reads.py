"""Copies that are larger than what they copy: their readers read the source itself, so that no band or window is materialised."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from einnet.expr.index import Index, bounds, simplify, substitute
from einnet.expr.nodes import Body, Read, Scope, Tensor, map_reads
from einnet.graph.program import Node, Program, ProgramNode


def read_through(program: Program) -> Program:
    """Copies read what the copies before them read, and other nodes read through expanding copies where affine index functions remain."""
    copies: dict[str, Scope] = {}
    nodes: list[ProgramNode] = []
    for node in program.nodes:
        if isinstance(node, Node):
            node = replace(node, scope=composed(node.scope, copies))
            if copied(node.scope) is not None:
                copies[node.output.name] = node.scope
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def copied(scope: Scope) -> Read | None:
    """The read of a tensor that is all the scope does, of one element type."""
    body = scope.body
    return body if not scope.sums and scope.reduce == "sum" and isinstance(body, Read) and isinstance(body.base, Tensor) else None


def composed(scope: Scope, copies: dict[str, Scope]) -> Scope:
    """L[x] f(C[Φ(x)]) = L[x] f(A[g(Φ(x))]) for a copy C = L[z] A[g(z)] that is read inside its box."""
    whole = copied(scope) is not None

    def through(r: Read) -> Body:
        copy = copies.get(r.base.name) if isinstance(r.base, Tensor) else None
        source = copied(copy) if copy is not None else None
        if copy is None or source is None or r.base.dtype != source.base.dtype or not inside(r, copy, scope):  # type: ignore[union-attr]
            return r
        mapping = {i.name: ix for i, ix in zip(copy.loops, r.index)}
        index = tuple(simplify(substitute(ix, mapping), scope.ranges) for ix in source.index)
        return Read(source.base, index, source.fill) if whole or (expands(copy, source) and all(map(plain, index))) else r

    body = map_reads(scope.body, through)
    return scope if body is scope.body else replace(scope, body=body)


def inside(r: Read, copy: Scope, reader: Scope) -> bool:
    """The read stays in the copy's box, where the copy is what it says."""
    within = (bounds(ix, reader.ranges) for ix in r.index)
    return all(ix.den == 1 and lo <= least and most < hi for ix, (least, most), (lo, hi) in zip(r.index, within, copy.box))


def expands(copy: Scope, source: Read) -> bool:
    """There are more elements in the copy than in what it copies."""
    return prod(copy.shape) > prod(source.base.shape)


def plain(ix: Index) -> bool:
    return ix.is_affine
