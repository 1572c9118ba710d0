"""Where a tensor is the same along a dimension, readers read it at one place: what was repeated before layers and functions is computed once.

    T = L[i,j] f(j):    T[e(x), j] = T[0, j] where e(x) is in T

Nobody reads the other places then, and `unread` drops them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from einnet.expr.index import as_index, in_range
from einnet.expr.nodes import Read, Scope, Tensor, used_names
from einnet.graph.passes.places.scopes import written_anew
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
    def once(r: Read, s: Scope) -> Read:
        same = alike.get(r.base.name, ()) if isinstance(r.base, Tensor) else _alike(r.base)
        places = enumerate(zip(r.index, r.base.box))
        index = tuple(as_index(lo) if k in same and in_range(ix, (lo, hi), s.ranges) else ix for k, (ix, (lo, hi)) in places)
        return r if index == r.index else Read(r.base, index, r.fill)

    return written_anew(scope, once, lambda s, body: s if body is s.body else replace(s, body=body))
