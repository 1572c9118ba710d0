"""Nests around one sum of products of two arrays, whatever their index functions: matrix products, convolutions, and what gathers its operands.

Σ[k] a(i,k)*b(j,k): loops that only one of the factors walks are the rows or the columns of a tile whose elements share what they read.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from einnet.expr.index import Floor
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.cuda.reduction_nest import contraction, self_contained
from einnet.instantiate.codegen.cuda.tiling import TOGETHER
from einnet.instantiate.codegen.ir import Apply, Expr, Load, Nest, Reduce, names


@dataclass(frozen=True)
class Contracted:
    """The nest is `rest` around Σ[sums] rows*columns. Loops that only `rows` walks are `down`, those that only `columns` walks `across`, all
    others `outer`: for each of their values there is a product of its own."""

    nest: Nest
    sums: tuple[Iter, ...]
    rows: Load
    columns: Load
    rest: Expr
    outer: tuple[Iter, ...]
    down: tuple[Iter, ...]
    across: tuple[Iter, ...]

    @property
    def terms(self) -> int:
        return prod(i.extent for i in self.sums)

    @property
    def height(self) -> int:
        return prod(i.extent for i in self.down)

    @property
    def width(self) -> int:
        return prod(i.extent for i in self.across)

    @property
    def batches(self) -> int:
        return prod(i.extent for i in self.outer)


def contracted(nest: Nest) -> Contracted | None:
    """The parts of a normalised nest of that form; None for one of another. Columns are what walks memory where the result does."""
    nest = self_contained(nest)
    found = contraction(nest)
    factors = _factors(found[0]) if found is not None else None
    if found is None or factors is None:
        return None
    reduce, rest = found
    along = next((i for i in nest.loops if abs(nest.address.coefficient(i.name)) == 1), None)
    rows, columns = factors[::-1] if along in _alone(nest, *factors) else factors
    down, across = _alone(nest, rows, columns), _alone(nest, columns, rows)
    outer = tuple(i for i in nest.loops if i not in down and i not in across)
    return Contracted(nest, _ordered(reduce.sums, rows, columns), rows, columns, rest, outer, down, across) if down and across else None


def _alone(nest: Nest, load: Load, other: Load) -> tuple[Iter, ...]:
    """The loops that a load walks and the other does not."""
    own = names(load) - names(other)
    return tuple(i for i in nest.loops if i.name in own)


def _factors(e: Reduce) -> tuple[Load, Load] | None:
    """The two arrays whose product is summed; where one is not read the term is 0."""
    if e.op != "sum" or not isinstance(e.body, Apply) or e.body.op != "mul" or len(e.body.args) != 2:
        return None
    a, b = e.body.args
    return (a, b) if isinstance(a, Load) and isinstance(b, Load) and a.fill == b.fill == 0.0 else None


def _ordered(sums: tuple[Iter, ...], *loads: Load) -> tuple[Iter, ...]:
    """The iterator of the sum along which most loads walk memory last."""
    return tuple(sorted(sums, key=lambda i: sum(abs(x.address.coefficient(i.name)) == 1 for x in loads)))


def together(load: Load, along: tuple[Iter, ...], others: tuple[Iter, ...]) -> bool:
    """Neighbours along the last of these iterators are neighbours in memory that one copy takes, from a multiple of 16 bytes on; others may be
    where they are only by multiples of that. (Arrays begin at multiples of 16 bytes, as those of a program do.)"""
    if not along or along[-1].extent % TOGETHER or along[-1].lo % TOGETHER:
        return False
    last, walked = along[-1].name, {i.name for i in (*along, *others)}
    address = load.address
    if any(isinstance(a, Floor) for a, _ in address.terms) or any(last in c.index.names() for c in load.guards):
        return False
    apart = [address.const, *(address.coefficient(n) for n in walked if n != last)]
    return address.coefficient(last) == 1 and address.den == 1 and all(c % TOGETHER == 0 for c in apart)
