"""One size exchanged for another: an expression at size a of a named dimension as the same expression at size b.

Where a is a prime that divides no number of the expression but those that the dimension made, an integer v means `v/a` times the dimension if a
divides it, and itself otherwise. That is a guess about an expression, and sound only because whoever uses the result proves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from einnet.expr.index import Index, combine, floor_div, var
from einnet.expr.nodes import Body, Cond, Const, Iter, Read, Scope, Select, Tensor, Val, children, rebuild, walk

_INTEGER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")


@dataclass(frozen=True)
class Resize:
    """Multiples of `old` become as many multiples of `new`, in tensors, ranges and index functions; numbers of the body stay as they are."""

    old: int
    new: int

    @cached_property
    def _done(self) -> dict[Scope, Scope]:
        return {}

    def integer(self, value: int) -> int:
        """A size, bound, offset or factor."""
        return value if value % self.old else value // self.old * self.new

    def tensor(self, tensor: Tensor) -> Tensor:
        """The tensor with its shape at the new size. Raises ValueError where its values are given and would be others."""
        shape = tuple(map(self.integer, tensor.shape))
        if tensor.values is not None and prod(shape) != len(tensor.values):
            raise ValueError(f"the values of {tensor.name} are given")
        return replace(tensor, shape=shape)

    def scope(self, scope: Scope) -> Scope:
        """The scope at the new size."""
        if scope not in self._done:
            loops, sums = (tuple(Iter(i.name, self.integer(i.lo), self.integer(i.hi)) for i in iters) for iters in (scope.loops, scope.sums))
            self._done[scope] = Scope(loops, sums, self._body(scope.body), scope.reduce)
        return self._done[scope]

    def text(self, parameters: str) -> str:
        """The parameters of a step at the new size."""
        return _INTEGER.sub(lambda m: str(self.integer(int(m[0]))), parameters)

    def _body(self, body: Body) -> Body:
        match body:
            case Read(base, index, fill):
                other = self.scope(base) if isinstance(base, Scope) else self.tensor(base)
                return Read(other, tuple(map(self._index, index)), fill)
            case Val(index):
                return Val(self._index(index))
            case Select(conds, then, other):
                return Select(tuple(Cond(self._index(c.index), c.equal) for c in conds), self._body(then), self._body(other))
        return rebuild(body, tuple(map(self._body, children(body))))

    def _index(self, e: Index) -> Index:
        atoms = ((var(a) if isinstance(a, str) else floor_div(self._index(a.num), self.integer(a.den)), self.integer(c)) for a, c in e.terms)
        return combine(*atoms, (Index((), self.integer(e.const)), 1)) / self.integer(e.den)


def doubtful(scope: Scope, size: int) -> str | None:
    """A number in a body that a size may have made, and nobody can tell: it stays as it is, and is told as the reason where that is wrong."""
    for s in walk(scope):
        for number in _numbers(s.body):
            if isinstance(number.value, float) or not number.value:
                continue
            if number.value.numerator % size == 0 or number.value.denominator % size == 0:
                return str(number.value)
    return None


def _numbers(body: Body) -> Iterator[Const]:
    if isinstance(body, Const):
        yield body
    for part in children(body):
        yield from _numbers(part)
