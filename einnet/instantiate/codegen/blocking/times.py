"""Square blocks of a walk along time: as many times as there are lanes, where what lies side by side in time and not in lanes is turned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from einnet.expr.index import Index, combine, var
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.ir import Load, Nest, expanded, substitute_expr
from einnet.instantiate.codegen.schedule import accesses, lane_costs, turns

WIDEST = 4
"""Steps from lane to lane up to which vectors are picked from their neighbours; larger ones are read and written element by element, or turned."""


def across(address: Index, time: Iter, lane: Iter | None) -> bool:
    """An address is contiguous along time and far apart from lane to lane."""
    return lane is not None and abs(address.coefficient(lane.name)) > WIDEST and plain(address, lane) and turns(address, time, lane)


def plain(address: Index, lane: Iter) -> bool:
    """The lane stands in no floor division of the address."""
    return lane.name not in Index(tuple(t for t in address.terms if t[0] != lane.name), address.const).names()


def turning(nest: Nest, time: Iter, lane: Iter | None) -> bool:
    """Something that is read or written at each time is turned in square blocks."""
    read = (e.address for e, _ in expanded(nest.expr, nest.ranges) if isinstance(e, Load))
    return across(nest.address, time, lane) or any(across(a, time, lane) for a in read)


def lane_of_walk(nest: Nest, time: Iter) -> Iter | None:
    """The loop around a walk whose vectors cost least, where square blocks along time are turned; None where there is none."""
    around = replace(nest, loops=(*nest.loops, time), outer=tuple((n, r) for n, r in nest.outer if n != time.name))
    costs = {i: c for i, c in lane_costs(around, tuple(accesses(nest.expr))).items() if i != time}
    return min(costs, key=lambda i: (costs[i], i is None))


def at_place(time: str, block: str, width: int, first: int) -> dict[str, Index]:
    """Time as a block and a place in it."""
    return {time: combine((var(block), width), (var(time + ".u"), 1), (Index((), first), 1))}


def row(mapped: Load, place: str, lane: str, number: int) -> Load:
    """Where a lane's values of a block stand, with its times in the lanes."""
    return substituted(mapped, {lane: Index((), number), place: var(lane)})


def substituted(load: Load, mapping: Mapping[str, Index]) -> Load:
    """An access with iterators replaced."""
    made = substitute_expr(load, mapping)
    assert isinstance(made, Load)
    return made
