"""Functions of one tensor of bytes are tables of 256 bytes: y = f(x) with x and y bytes is T[x], however long f is.

A tensor whose every element is made of one byte of another tensor, at the same place, is known by its 256 values; so is what is made of several
such tensors of the same bytes. GELU of a quantised model is five nodes, each rounded to bytes, and one table. The values are computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from einnet.expr.functions import FUNCTIONS
from einnet.expr.index import var
from einnet.expr.nodes import Iter, Read, Scope, Tensor, functions_in, indices, map_reads, reads, used_names
from einnet.expr.selection import make
from einnet.expr.values.evaluate import evaluate
from einnet.graph.program import Node, Program, ProgramNode
from einnet.graph.rewrite import Fresh, prune

BYTE, VALUES = "u8", 256
LEAST_STAGES = 2
"""Tensors of bytes one after the other that a table replaces, unless a function is costly: to multiply, add and round is faster than to look up."""

OVER = Iter("v", 0, VALUES)


@dataclass(frozen=True, slots=True)
class Table:
    """Every element of a tensor is one of these values, by the byte that stands at its place in the source."""

    source: Tensor
    values: NDArray[np.float64]
    stages: int
    costly: bool

    @property
    def worth(self) -> bool:
        """Looking it up is faster than computing it."""
        return self.costly or self.stages >= LEAST_STAGES


def byte_tables(program: Program) -> Program:
    """The program with tables for functions of a byte."""
    finder = _Finder(program)
    nodes = tuple(finder.node(n) if isinstance(n, Node) else n for n in program.nodes)
    return prune(replace(program, nodes=nodes, weights={**program.weights, **finder.made})) if finder.made else program


@dataclass
class _Finder:
    program: Program
    known: dict[str, Table] = field(default_factory=dict)
    made: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fresh = Fresh(self.program)

    def node(self, node: Node) -> ProgramNode:
        """The node, reading a table where that is worth it."""
        found = self.table(node.scope)
        if found is None or (node.output.dtype == BYTE and not whole(found.values)):
            return node
        self.known[node.output.name] = found = replace(found, stages=found.stages + (node.output.dtype == BYTE))
        return replace(node, scope=self.looked_up(node, found)) if found.worth and node.output.dtype == BYTE else node

    def table(self, scope: Scope) -> Table | None:
        """The scope as a table of one tensor of bytes; None where it is another."""
        data = self.data(scope)
        tables = [t for r in data if (t := self.of(r, scope))]
        if len({t.source for t in tables}) != 1 or len(tables) < len(data):
            return None
        held = {self.fresh("byte"): t.values for t in tables}
        places = {r: Read(Tensor(name, (VALUES,)), (var(OVER.name),)) for r, name in zip(data, held, strict=True)}
        body = map_reads(scope.body, lambda r: places.get(r, r))
        if used_names(body) - {OVER.name}:
            return None
        values = evaluate(Scope((OVER,), (), body), {**self.program.weights, **held}, "float64")
        costly = any(t.costly for t in tables) or any(FUNCTIONS[name].costly for name in functions_in(scope.body))
        return Table(tables[0].source, values, max(t.stages for t in tables), costly)

    def data(self, scope: Scope) -> list[Read]:
        """What a scope without sums reads beside weights that are the same everywhere."""
        return [] if scope.sums else [r for r in dict.fromkeys(reads(scope.body)) if not self.number(r)]

    def number(self, r: Read) -> bool:
        """The read of a weight that is the same everywhere."""
        return isinstance(r.base, Tensor) and r.base.name in self.program.weights and not any(e.names() for e in r.index)

    def of(self, r: Read, scope: Scope) -> Table | None:
        """What is read at the scope's own places as a table: bytes are one of themselves."""
        tensor = r.base
        if not isinstance(tensor, Tensor) or r.index != indices(scope.loops) or tensor.box != scope.box:
            return None
        own = tensor.dtype == BYTE and not tensor.weight
        return self.known.get(tensor.name) or (Table(tensor, np.arange(VALUES, dtype=np.float64), 0, False) if own else None)

    def looked_up(self, node: Node, table: Table) -> Scope:
        """Σ[v] choose(equal(x, v), T[v], 0)."""
        name = self.fresh(f"{node.output.name}_table")
        self.made[name] = table.values.astype(np.uint8)
        loops = tuple(Iter(f"i{n}", i.lo, i.hi) for n, i in enumerate(node.scope.loops))
        place = Read(table.source, indices(loops))
        return Scope(loops, (OVER,), make(OVER, place, Read(Tensor(name, (VALUES,), BYTE, True), (var(OVER.name),))))


def whole(values: NDArray[np.float64]) -> bool:
    """All are bytes."""
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(values, np.clip(np.rint(values), 0, VALUES - 1)))
