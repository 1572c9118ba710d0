"""Iterators of one role whose strides nest count as one dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einnet.expr.nodes import Iter


@dataclass(frozen=True, slots=True)
class Dimension:
    """Iterators, outermost first, that walk memory like one of `extent` steps with the given stride in each operand."""

    names: tuple[str, ...]
    extent: int
    strides: tuple[int, ...]


def collapse(iters: Sequence[Iter], operands: Sequence[Mapping[str, int]]) -> list[Dimension]:
    """Merge iterators where stride(outer) = extent(inner)·stride(inner) in every operand; outermost first by the last operand's strides."""
    ordered = sorted(iters, key=lambda i: tuple(-abs(o.get(i.name, 0)) for o in reversed(operands)))
    result: list[Dimension] = []
    for i in ordered:
        strides = tuple(o.get(i.name, 0) for o in operands)
        if result and all(s == i.extent * t for s, t in zip(result[-1].strides, strides)):
            last = result[-1]
            result[-1] = Dimension((*last.names, i.name), last.extent * i.extent, strides)
        else:
            result.append(Dimension((i.name,), i.extent, strides))
    return result
