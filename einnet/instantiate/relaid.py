"""Copies that only change the order of elements: what is written in one order can be written in the other at once, and read where it lies.

An address falls into digits, each of which moves by one step in the order that is copied and by another in the copy. A view whose dimensions
move inside digits is a view in the other order, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from einnet.expr.index import Floor, Index, affine_parts, as_index, combine, in_range, simplify, substitute, var
from einnet.expr.nodes import Iter, Read
from einnet.instantiate.address import name_of
from einnet.instantiate.kernels import EOperator, View, strided_view


@dataclass(frozen=True, slots=True)
class Digit:
    """`extent` elements, `step` apart in one order and `other` apart in the other."""

    extent: int
    step: int
    other: int


@dataclass(frozen=True, slots=True)
class Relaid:
    """The digits of a dense tensor's addresses, the greatest first, and where its first element lies in the other order."""

    digits: tuple[Digit, ...]
    offset: int

    def view(self, v: View, buffer: str) -> View | None:
        """A view of the dense tensor as a view of `buffer`, which holds it in the other order; None where strides cannot say it."""
        reach = {d: v.offset // d.step % d.extent for d in self.digits}
        offset = self.offset + sum(d.other * n for d, n in reach.items())
        strides: list[int] = []
        for s, n in zip(v.strides, v.shape, strict=True):
            digit = next((d for d in self.digits if d.step <= s), None) if n > 1 else None
            if n > 1 and (digit is None or s % digit.step):
                return None
            strides.append(s // digit.step * digit.other if digit else 0)
            if digit:
                reach[digit] += s // digit.step * (n - 1)
        inside = all(n < d.extent for d, n in reach.items())
        return strided_view(buffer, v.shape, tuple(strides), offset) if inside else None


def relaid(kernel: EOperator) -> tuple[Relaid | None, Relaid | None]:
    """How a kernel that only copies a tensor in another order lays it: what is copied within the copy, and the copy within what is copied.

    None for what is not walked from its beginning to its end without gaps, both for any kernel that does more than to copy.
    """
    found = moved(kernel)
    if found is None:
        return None, None
    digits, source, out = found
    swapped = [Digit(d.extent, d.other, d.step) for d in digits]
    whole = not source and prod(d.extent for d in digits) == prod(kernel.operand_views[0].shape)
    return None if not whole else _dense(digits, out), None if out else _dense(swapped, source)


def moved(kernel: EOperator) -> tuple[list[Digit], int, int] | None:
    """The digits by which a kernel that copies walks what it reads (`step`) and what it writes (`other`), and where it begins in both."""
    scope, views = kernel.scope, dict(kernel.operands)
    if scope.sums or not isinstance(scope.body, Read) or list(views) != [name_of(scope.body)] or any(i.lo for i in scope.loops):
        return None
    read, view = scope.body, views[name_of(scope.body)]
    loops: dict[str, tuple[Iter, int]] = {}
    named: dict[str, Index] = {}
    for i, stride in zip(scope.loops, kernel.out.strides, strict=True):
        chain = sorted({i.extent, 1, *_divisors(read.index, i.name)}, reverse=True)
        if any(a % b for a, b in pairwise(chain)):
            return None
        own = {f"{i.name}_{b}": (Iter(f"{i.name}_{b}", 0, a // b), b) for a, b in pairwise(chain)}
        named[i.name] = combine(*((var(name), b) for name, (_, b) in own.items()))
        loops |= {name: (digit, stride * b) for name, (digit, b) in own.items()}
    ranges = {name: digit.range for name, (digit, _) in loops.items()}
    index = [simplify(substitute(ix, named), ranges) for ix in read.index]
    parts = affine_parts(combine(*zip(index, view.strides), (as_index(view.offset), 1)))
    if parts is None or not all(in_range(ix, box, ranges) for ix, box in zip(index, read.base.box)):
        return None
    steps, offset = parts
    return [Digit(i.extent, steps.get(name, 0), other) for name, (i, other) in loops.items()], offset, kernel.out.offset


def _divisors(index: Iterable[Index], name: str) -> list[int]:
    """The numbers by which an iterator alone is divided."""
    return [atom.den for ix in index for atom, _ in ix.terms if isinstance(atom, Floor) and atom.num == var(name)]


def _dense(digits: Iterable[Digit], offset: int) -> Relaid | None:
    """Digits that walk a dense tensor, neighbours that move as one put together; None where the walk leaves gaps or comes back."""
    found: list[Digit] = []
    for d in sorted((d for d in digits if d.extent > 1), key=lambda d: d.step):
        below = found[-1] if found else None
        if d.step != (below.step * below.extent if below else 1) or d.other <= 0:
            return None
        if below and d.other == below.other * below.extent:
            found[-1] = replace(below, extent=below.extent * d.extent)
        else:
            found.append(d)
    return Relaid(tuple(reversed(found)), offset) if found else None
