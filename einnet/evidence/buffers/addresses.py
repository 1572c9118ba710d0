"""Addresses as index functions: which element of one view lies where an element of another view lies."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from einnet.expr.index import Index, Range, as_index, bounds, combine, floor_div, simplify, var
from einnet.expr.nodes import Cond, Iter
from einnet.instantiate.kernels import NotLifted, View


def ranges_of(loops: tuple[Iter, ...]) -> dict[str, Range]:
    """The ranges of loops by name."""
    return {i.name: i.range for i in loops}


def address(view: View, loops: tuple[Iter, ...]) -> Index:
    """Where an element of the view lies, in elements from the start of its buffer; unit dimensions do not move it."""
    moving = [(var(i.name), s) for i, s, n in zip(loops, view.strides, view.shape, strict=True) if n > 1]
    return combine(*moving, (as_index(view.offset), 1))


def digits(view: View) -> list[int]:
    """The dimensions that move, the one with the greatest stride first.

    Raises NotLifted unless each stride is greater than all that the smaller ones reach together: then an address has one element at most.
    """
    moving = sorted((d for d, n in enumerate(view.shape) if n > 1), key=lambda d: -view.strides[d])
    reach = 0
    for d in reversed(moving):
        if view.strides[d] <= reach:
            raise NotLifted(f"elements of {view} share addresses, or cross each other")
        reach += view.strides[d] * (view.shape[d] - 1)
    return moving


def refined(view: View, other: View) -> tuple[tuple[Iter, ...], tuple[Index, ...], Index]:
    """Loops in which the elements of both views are told without a division, where there are such: the dimensions of the first, divided where those
    of the second begin and end. With the first's index and address in these loops."""
    borders = {b for s, n in zip(other.strides, other.shape) if n > 1 for b in (s, s * n)}
    loops: list[Iter] = []
    index: list[Index] = []
    where = as_index(view.offset)
    for d, (n, s) in enumerate(zip(view.shape, view.strides)):
        inside = sorted((b for b in borders if n > 1 and s < b < s * n and b % s == 0 and s * n % b == 0), reverse=True)
        chain = [s * n, *inside, s] if all(a % b == 0 for a, b in pairwise(inside)) else [s * n, s]
        mine = [Iter(f"i{d}_{k}" if len(chain) > 2 else f"i{d}", 0, a // b if n > 1 else n) for k, (a, b) in enumerate(pairwise(chain))]
        steps = chain[1:] if n > 1 else [s]
        mine = mine[: len(steps)]
        index.append(combine(*((var(i.name), b // s if n > 1 else 1) for i, b in zip(mine, steps))))
        where = combine((where, 1), *((var(i.name), b) for i, b in zip(mine, steps) if n > 1))
        loops += mine
    return tuple(loops), tuple(index), where


def element(view: View, at: Index, ranges: Mapping[str, Range]) -> tuple[tuple[Index, ...], tuple[Cond, ...]]:
    """The element of the view that lies at an address, and under which conditions there is one (none where that is so for all `ranges`).

    Raises NotLifted as `digits` does.
    """
    index = [Index() for _ in view.shape]
    conds: list[Cond] = []
    rest, order = simplify(at - view.offset, ranges), digits(view)
    for n, d in enumerate(order):
        reach = sum(view.strides[e] * (view.shape[e] - 1) for e in order[n + 1 :])
        index[d] = simplify(_digit(rest, view.strides[d], reach, ranges), ranges)
        rest = simplify(rest - index[d] * view.strides[d], ranges)
        low, high = bounds(index[d], ranges)
        if low < 0:
            conds.append(Cond(index[d]))
        if high >= view.shape[d]:
            conds.append(Cond(view.shape[d] - 1 - index[d]))
    if rest != Index() and (rest.den != 1 or bounds(rest, ranges) != (0, 0)):
        conds.append(Cond(Index(rest.terms, rest.const), True))
    return tuple(index), tuple(conds)


def _digit(rest: Index, stride: int, reach: int, ranges: Mapping[str, Range]) -> Index:
    """The place along the dimension of that stride, where the smaller ones reach so far: by no division where what is no multiple of the stride ends
    before the next, and what it has below 0 lies beyond all that the smaller ones reach, where there is no element."""
    if rest.den == 1:
        whole, left = (Index(tuple(t for t in rest.terms if (t[1] % stride == 0) == told)) for told in (True, False))
        low, high = bounds(left, ranges)
        carried = -(-(rest.const + high - stride + 1) // stride)
        if low + rest.const - carried * stride > reach - stride:
            return floor_div(whole, stride) + carried
    return floor_div(rest, stride)


def unfolded(view: View, shape: tuple[int, ...]) -> View | None:
    """A view in which neighbouring dimensions of that shape are one, over that shape; unit dimensions stand anywhere. None for any other view."""
    left = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
    extent, stride = 1, 1
    strides: list[int] = []
    for n in reversed(shape):
        if n > 1 and extent == 1 and left:
            extent, stride = left.pop()
        if extent % n:
            return None
        strides.append(stride)
        extent, stride = extent // n, stride * n
    return View(view.buffer, shape, tuple(reversed(strides)), view.offset) if extent == 1 and not left else None
