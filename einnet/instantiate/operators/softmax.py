"""Softmax: y = exp(x - max x) / Σ exp(x - max x) along one dimension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import ClassVar, Self

from einnet.expr.index import Index, as_index, var
from einnet.expr.nodes import Call, Const, Div, Iter, Read, Scope, fresh, indices, make_add, make_div, make_mul, substitute_body
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach
from einnet.expr.partings import apart
from einnet.instantiate.kernels import Shown, Value, dense_view, loops_of
from einnet.instantiate.kernels.kernel import OneOperand, ReadModel, StoreModel
from einnet.instantiate.kernels.primitive import RESULT, SOURCE, Primitive
from einnet.instantiate.kernels.views import Json, integers, read_view, view_json
from einnet.instantiate.matching.types import Match, Mismatch, NoFix, Operator, Table

INFERENCE, ACCURATE = 96, 0x30000
"""oneDNN's names of what a primitive is for and of how it takes the exponential."""

COST = 8
"""Operations that are counted for an element: a maximum, a difference, an exponential, a sum and a division."""


def softmax(x: Value, loops: tuple[Iter, ...], axis: int) -> Scope:
    """The expression over loops that walk x, whose box starts at 0 where it is a tensor's."""
    along = Iter(fresh(loops[axis].name, {i.name for i in loops}), loops[axis].lo, loops[axis].hi)
    rest = (*loops[:axis], *loops[axis + 1 :])
    others = indices(rest)
    terms: tuple[Index, ...] = tuple(var(along.name) if d == axis else ix for d, ix in enumerate(indices(loops)))
    greatest = Scope(rest, (along,), Read(x, terms), "max")
    raised = Scope(loops, (), Call("exp", (make_add((Read(x, indices(loops)), make_mul((Const(Fraction(-1)), Read(greatest, others))))),)))
    total = Scope(rest, (along,), Read(raised, terms))
    return Scope(loops, (), make_div(Read(raised, indices(loops)), Read(total, others)))


@dataclass(frozen=True, slots=True)
class Softmax(OneOperand):
    """Softmax along dimension `axis` of x; y has its shape."""

    axis: int
    kind: ClassVar[str] = "softmax"
    loses_nan: ClassVar[bool] = True
    """Of a row with NaN the library gives numbers for the other elements."""

    @property
    def flops(self) -> int:
        return COST * prod(self.y.shape)

    def along(self, dimension: int) -> tuple[int | None, ...] | None:
        return None if dimension == self.axis else (dimension,)

    def meaning(self, shown: Shown) -> Scope:
        return softmax(shown(self.x), loops_of(self.y.shape), self.axis)

    def primitives(self) -> Iterator[Primitive]:
        yield Primitive("softmax_forward", (INFERENCE, ACCURATE), ((SOURCE, self.x), (RESULT, self.y)), (self.axis,))

    def attributes(self) -> dict[str, Json]:
        return {"axis": self.axis}

    def json(self, store: StoreModel) -> dict[str, Json]:
        return {"x": view_json(self.x), "y": view_json(self.y), **self.attributes()}

    @classmethod
    def read(cls, value: Json, model: ReadModel) -> Self:
        (axis,) = integers([value["axis"]])
        return cls(read_view(value["x"]), read_view(value["y"]), axis)

    def describe(self) -> str:
        return f"Softmax {'x'.join(map(str, self.x.shape))} along {self.axis}"


def match_softmax(scope: Scope, table: Table) -> Match | list[Mismatch]:
    """The softmax of what is taken the maximum of, where its expression and the scope have one normal form. No step is tried to get to one."""
    if scope.sums or not isinstance(scope.body, Div) or any(i.lo for i in scope.loops):
        return [NoFix("it is no quotient over loops from 0")]
    for greatest in (s for s in scope.parts if s.reduce == "max" and len(s.sums) == 1):
        for axis, loop in enumerate(scope.loops):
            x = _operand(scope, greatest, axis) if loop.extent == greatest.sums[0].extent else None
            if x is not None and _equal(scope, softmax(x, scope.loops, axis)):
                view = dense_view("0", scope.shape)
                rows = tuple(i.name for i in scope.loops if i is not loop)
                return Match(table.name, Softmax(view, replace(view, buffer="out"), axis), (x,), (("rows", rows), ("k", (loop.name,))))
    return [NoFix("it is not the softmax of what it takes the maximum of")]


def _operand(scope: Scope, greatest: Scope, axis: int) -> Value | None:
    """What a maximum is taken of, over the loops of the scope: those of the maximum stand for the others in their order, but for unit ones."""
    (tap,) = greatest.sums
    rest = [i for n, i in enumerate(scope.loops) if n != axis and i.extent > 1]
    own = [i for i in greatest.loops if i.extent > 1]
    if [i.range for i in own] != [i.range for i in rest] or tap.range != scope.loops[axis].range:
        return None
    mapping = {i.name: as_index(i.lo) for i in greatest.loops} | {i.name: var(j.name) for i, j in zip(own, rest)}
    found = Scope(scope.loops, (), substitute_body(greatest.body, {**mapping, tap.name: var(scope.loops[axis].name)}))
    body = found.body
    if isinstance(body, Read) and body.base.box == scope.box and body.index == indices(scope.loops):
        return body.base
    return found


def _equal(scope: Scope, other: Scope) -> bool:
    """The two have one normal form, without what both read or as they are: what is a score is of no matter to a softmax, and may be large."""
    return any(_alike(*pair) for pair in dict.fromkeys((apart(scope, other, numbers=True), (scope, other))))


def _alike(scope: Scope, other: Scope) -> bool:
    try:
        return inline(scope).key == inline(other).key
    except OutOfReach:
        return False


SOFTMAX = Table("Softmax", (("rows, k", (True, True)),), "axis", match_softmax, sums=False)
OPERATOR = Operator(Softmax, (SOFTMAX,), backends=("cpu",))
