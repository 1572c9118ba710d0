"""The meaning of the language, point by point, with Python's own rationals: slow, short, and independent of numpy."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import floor, prod

import numpy as np

from einnet.expr.index import value
from einnet.expr.nodes import INF, Add, Body, Call, Const, Div, Mul, Number, Read, Scope, Select, Val

FUNCTIONS = {
    "relu": lambda x: max(x, 0), "abs": abs, "sign": lambda x: (x > 0) - (x < 0), "max": max, "min": min, "floor": floor,
    "less": lambda x, y: int(x < y), "equal": lambda x, y: int(x == y), "not": lambda x: int(x == 0),
}  # fmt: skip


class Brute:
    """Evaluates scopes over given tensors; nested scopes are tabulated once."""

    def __init__(self, values: Mapping[str, np.ndarray]) -> None:
        self.values = values
        self.tables: dict[Scope, dict[tuple[int, ...], Number]] = {}

    def table(self, scope: Scope) -> dict[tuple[int, ...], Number]:
        """The value at every point of the box."""
        if scope not in self.tables:
            points = product(*(range(lo, hi) for lo, hi in scope.box))
            self.tables[scope] = {p: self.at(scope, p) for p in points}
        return self.tables[scope]

    def at(self, scope: Scope, point: tuple[int, ...]) -> Number:
        loops = {i.name: x for i, x in zip(scope.loops, point, strict=True)}
        inner = [{i.name: x for i, x in zip(scope.sums, at, strict=True)} for at in product(*(range(i.lo, i.hi) for i in scope.sums))]
        found = [self.body(scope.body, {**loops, **at}) for at in inner]
        if scope.reduce == "sum":
            return sum(found, Fraction(0))
        return max(found, default=-INF) if scope.reduce == "max" else min(found, default=INF)

    def read(self, r: Read, at: Mapping[str, int]) -> Number:
        """The element, or the fill where the place is none of the box."""
        place = [value(e, at) for e in r.index]
        if any(x.denominator != 1 or not lo <= x < hi for x, (lo, hi) in zip(place, r.base.box, strict=True)):
            return r.fill
        key = tuple(int(x) for x in place)
        if isinstance(r.base, Scope):
            return self.table(r.base)[key]
        found = self.values[r.base.name][key]
        return found if isinstance(found, Fraction) else Fraction(int(found))

    def body(self, b: Body, at: Mapping[str, int]) -> Number:
        match b:
            case Const(v):
                return v
            case Val(e):
                return value(e, at)
            case Read():
                return self.read(b, at)
            case Add(args):
                return sum((self.body(a, at) for a in args), Fraction(0))
            case Mul(args):
                return prod((self.body(a, at) for a in args), start=Fraction(1))
            case Div(num, den):
                return self.body(num, at) / self.body(den, at)
            case Call(name, args):
                return Fraction(FUNCTIONS[name](*(self.body(a, at) for a in args)))
            case Select(conds, then, other):
                where = all(value(c.index, at) == 0 if c.equal else value(c.index, at) >= 0 for c in conds)
                return self.body(then if where else other, at)
        raise TypeError(b)
