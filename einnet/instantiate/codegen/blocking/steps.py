"""The steps of a block: arrays that nests fill, one after the other or within loops, and which of them share memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Union

from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.ir import Load, Nest, expanded


class Fill(NamedTuple):
    """An array, its elements, and the nest that fills it."""

    array: str
    size: int
    nest: Nest


class Inner(NamedTuple):
    """Steps for one value of a loop after the other: what they hand on is small, and stays in the nearest cache."""

    loop: Iter
    steps: tuple[Step, ...]


Step = Union[Fill, "Inner"]


def fills(steps: Sequence[Step], times: int = 1) -> Iterator[tuple[int, Fill]]:
    """Every array that steps fill, and how often."""
    for step in steps:
        if isinstance(step, Inner):
            yield from fills(step.steps, times * step.loop.extent)
        else:
            yield times, step


def arrays_read(nest: Nest) -> set[str]:
    return {x.array for x, _ in expanded(nest.expr, nest.ranges) if isinstance(x, Load)}


def rooms(steps: Sequence[Step], after: Collection[str]) -> list[list[Fill]]:
    """The arrays that steps fill by their memory, where these are read afterwards."""
    read = [{name for _, f in fills([step]) for name in arrays_read(f.nest)} for step in steps]
    found: list[list[Fill]] = []
    for n, step in enumerate(steps):
        later = set(after).union(*read[n + 1 :])
        free = [room for room in found if room[-1].array not in later | read[n]]
        for fill in (f for _, f in fills([step]) if isinstance(step, Fill) or f.array in later):
            if free:
                room = min(free, key=lambda room: abs(room[0].size - fill.size))
                free.remove(room)
                room.append(fill)
            else:
                found.append([fill])
        if isinstance(step, Inner):
            found += [[f for f in room if f.array not in later] for room in rooms(step.steps, later)]
    return [room for room in found if room]


def mapped(steps: Sequence[Step], f: Callable[[Nest], Nest]) -> tuple[Step, ...]:
    """The steps with all nests changed."""
    return tuple(s._replace(steps=mapped(s.steps, f)) if isinstance(s, Inner) else s._replace(nest=f(s.nest)) for s in steps)
