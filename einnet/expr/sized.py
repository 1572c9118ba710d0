"""Index functions of an unknown size N: `many·N + rest`, at the points of a scope that are in one of N slices.

Every operation is an identity in N: at every N >= 1 the result has the value that it has with N put in. Quotients by N are integers that isl proves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from einnet.expr.index import ZERO, Index, Range, floor_div, simplify, var
from einnet.expr.nodes import Cond
from einnet.expr.sets import PARAMETER, Relation, same_relation

SLICE = "#s"
"""A name that no iterator has: which of the N slices is looked at."""


class Unsliced(Exception):
    """Why an expression is not said to be N copies of one."""


@dataclass(frozen=True, slots=True)
class Sized:
    """many·N + rest. `many` names neither N nor a slice; `rest` may name both (PARAMETER, SLICE), `many` has no denominator."""

    many: Index
    rest: Index

    @property
    def is_const(self) -> bool:
        return self.many.is_const and self.rest.is_const

    @property
    def den(self) -> int:
        return self.rest.den

    def __add__(self, other: Sized) -> Sized:
        return Sized(self.many + other.many, self.rest + other.rest)

    def __sub__(self, other: Sized) -> Sized:
        return Sized(self.many - other.many, self.rest - other.rest)

    def __neg__(self) -> Sized:
        return Sized(-self.many, -self.rest)

    def times(self, other: Sized) -> Sized:
        """The product with a constant. Raises Unsliced where N² or N times a slice occurs."""
        k, factor = other.many.const, other.rest.const
        if k and (self.many != ZERO or self.rest.den != 1 or {PARAMETER, SLICE} & self.rest.names()):
            raise Unsliced("the size is multiplied by what follows it")
        return Sized(self.many * factor + (self.rest * k if k else ZERO), self.rest * factor)


@dataclass(frozen=True)
class Frame:
    """The points of a scope in one slice: what its iterators are, and the ranges of the names they are made of, which do not follow N."""

    iterators: Mapping[str, Sized]
    ranges: Mapping[str, Range]

    @property
    def domain(self) -> tuple[str, ...]:
        return (SLICE, *self.ranges)

    @property
    def conds(self) -> frozenset[Cond]:
        """N >= 1, 0 <= slice < N, and the ranges."""
        size, inside = var(PARAMETER), var(SLICE)
        ends = (c for n, (lo, hi) in self.ranges.items() for c in (Cond(var(n) - lo), Cond(hi - 1 - var(n))))
        return frozenset((Cond(size - 1), Cond(inside), Cond(size - 1 - inside), *ends))

    def floored(self, e: Sized, k: int) -> Index:
        """⌊(many·N + rest) / k·N⌋ = many/k + ⌊rest / k·N⌋ where k divides many, and ⌊(many + ⌊rest / N⌋) / k⌋."""
        many = simplify(e.many, self.ranges)
        if k > 1 and (many / k).den == 1:
            try:
                return many / k + self.quotient(e.rest, k)
            except Unsliced:
                pass
        return floor_div(many + self.quotient(e.rest, 1), k)

    def quotient(self, rest: Index, k: int) -> int:
        """The j with j·k·N <= rest < (j+1)·k·N at all points of the frame and every N. Raises Unsliced where none is found."""
        for j in (0, -1, 1):
            left = rest - j * k * var(PARAMETER)
            inside = frozenset((Cond(left), Cond(k * var(PARAMETER) - 1 - left)))
            if rest.den == 1 and same_relation(Relation(self.domain, (), self.conds), Relation(self.domain, (), self.conds | inside)):
                return j
        raise Unsliced("a quotient by the size is not the same at all points")
