"""What products of bytes are made of: factors that are bytes, scales and zero points, and bodies taken apart into these."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from einnet.expr.integers import of
from einnet.expr.nodes import Add, Body, Call, Const, Div, Iter, Mul, Read, Scope, make_add, make_mul
from einnet.graph.program import ProgramNode

BYTE, SIGNED = "u8", "i8"
VALUES, MIDDLE = 256, 128
EXACT = 1 << 24
"""Up to here, float32 has every integer."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Scales along some loops, the greatest sum of absolute values of the integers of a row, and of what is added to them."""

    along: tuple[Iter, ...]
    scales: np.ndarray
    most: int
    moved: int


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor scale·(read + shift + beside) of a sum of products: a read of bytes, and numbers that do not vary along the sum.

    `nodes` compute what is read.
    """

    read: Read
    shift: Fraction
    beside: Body | None
    scale: float
    nodes: tuple[ProgramNode, ...]
    weights: Weights | None = None

    @property
    def moved(self) -> tuple[Body, ...]:
        """What is added to the bytes."""
        number = (Const(self.shift),) if self.shift else ()
        return (*number, *(() if self.beside is None else (self.beside,)))


def within_float32(scope: Scope, factor: Factor) -> bool:
    """Every sum that a product of bytes with a factor is made of is an integer that float32 has."""
    count = prod(i.extent for i in scope.sums)
    most = max(factor.weights.most, count * factor.weights.moved) if factor.weights else count * (VALUES - 1)
    return (VALUES - 1) * most <= EXACT


def parted(body: Body) -> tuple[Fraction, Body]:
    """A body as a positive number times another body."""
    args = body.args if isinstance(body, Mul) else (body,)
    numbers = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, Fraction) and a.value > 0]
    rest = [a for a in args if not (isinstance(a, Const) and isinstance(a.value, Fraction) and a.value > 0)]
    scale = Fraction(1)
    for n in numbers:
        scale *= Fraction(n)
    return (scale, make_mul(rest)) if rest else (Fraction(1), body)


def scaled(scale: Fraction, body: Body) -> Body:
    return body if scale == 1 else make_mul((Const(scale), body))


def shifted(body: Body, by: int) -> Body:
    """The body and a number, as one number where one is added already, within the ends that the body is cut off at."""
    match body:
        case Call("min", (Call("max", (inner, Const(low))), Const(high))):
            return Call("min", (Call("max", (shifted(inner, by), Const(low + by))), Const(high + by)))
    terms = body.args if isinstance(body, Add) else (body,)
    numbers = [t.value for t in terms if isinstance(t, Const) and isinstance(t.value, Fraction)]
    rest = [t for t in terms if not (isinstance(t, Const) and isinstance(t.value, Fraction))]
    total = sum(map(Fraction, numbers), Fraction(by))
    return make_add([*rest, Const(total)] if total or not rest else rest)


def plain(body: Body, scope: Scope) -> Body:
    """Without the rounding of integers, and without ends that no integer reaches."""
    match body:
        case Add(args) | Mul(args):
            found = [plain(a, scope) for a in args]
            return make_add(found) if isinstance(body, Add) else make_mul(found)
        case Call("round", (Div(num, Const(d)),)):
            scale, core = parted(num)
            return core if scale == d and of(core, scope.ranges) is not None else body
        case Call(("min" | "max") as name, (arg, Const(end))):
            inner = plain(arg, scope)
            ends = of(inner, scope.ranges)
            idle = ends is not None and (ends[1] <= end if name == "min" else ends[0] >= end)
            return inner if idle else Call(name, (inner, Const(end)))
    return body
