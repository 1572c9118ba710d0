"""Where a tensor is the same along a dimension, readers read it at one place: what was repeated before layers and functions is computed once.

    T = L[i,j] f(j):    T[e(x), j] = T[0, j] where e(x) is in T

Nobody reads the other places then, and `unread` drops them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from einnet.expr.index import Range, as_index, in_range
from einnet.expr.nodes import Read, Scope, Tensor, map_reads, used_names
from einnet.graph.program import Node, Program, ProgramNode


def read_alike(program: Program) -> Program:
    """Tensors and scopes inside expressions are read at the first of places that are alike. Reads that may be outside stay as they are."""
    alike: dict[str, frozenset[int]] = {}
    nodes: list[ProgramNode] = []
    for node in program.nodes:
        if isinstance(node, Node):
            scope = _read_once(node.scope, alike)
            node = node if scope is node.scope else replace(node, scope=scope)
            alike[node.output.name] = _alike(scope)
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _alike(scope: Scope) -> frozenset[int]:
    """The dimensions of more than one place along which a scope that reads what is alike at one place is the same."""
    used = used_names(scope.body)
    return frozenset(k for k, i in enumerate(scope.loops) if i.extent > 1 and i.name not in used)


def _read_once(scope: Scope, alike: Mapping[str, Collection[int]]) -> Scope:
    done: dict[Scope, Scope] = {}

    def once(s: Scope) -> Scope:
        if s not in done:
            body = map_reads(s.body, lambda r: read(r, s.ranges))
            done[s] = s if body is s.body else replace(s, body=body)
        return done[s]

    def read(r: Read, ranges: Mapping[str, Range]) -> Read:
        base = r.base if isinstance(r.base, Tensor) else once(r.base)
        same = alike.get(base.name, ()) if isinstance(base, Tensor) else _alike(base)
        index = tuple(as_index(lo) if k in same and in_range(ix, (lo, hi), ranges) else ix for k, (ix, (lo, hi)) in enumerate(zip(r.index, base.box)))
        return r if base is r.base and index == r.index else Read(base, index, r.fill)

    return once(scope)
