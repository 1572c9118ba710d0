"""Choices between numbers by remainders: a table made at compile time is read faster than a remainder is computed for every element."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from einnet.expr.index import Floor
from einnet.expr.nodes import Body, Const, Read, Scope, Select, Tensor, children, indices, rebuild, used_names

LARGEST = 1 << 25
"""Elements of the largest table."""

Table = Callable[[Scope], Tensor]
"""The constant that holds a scope without operands."""


def tabled(scope: Scope, table: Table) -> Body:
    """The body with choices between numbers on conditions that hold a floor division read from tables, where each entry is read again."""

    def replaced(body: Body) -> Body:
        if isinstance(body, Select) and divides(body) and isinstance(body.then, Const) and isinstance(body.other, Const):
            used = used_names(body)
            loops = tuple(i for i in (*scope.loops, *scope.sums) if i.name in used)
            size, points = prod(i.extent for i in loops), prod(i.extent for i in (*scope.loops, *scope.sums))
            if size <= LARGEST and size < points and not any(i.lo for i in loops):
                return Read(table(Scope(loops, (), body)), indices(loops))
        args = children(body)
        return rebuild(body, tuple(map(replaced, args))) if args else body

    return replaced(scope.body)


def divides(body: Select) -> bool:
    """A condition holds a floor division."""
    return any(isinstance(atom, Floor) for c in body.conds for atom, _ in c.index.terms)
