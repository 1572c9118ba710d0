"""Elements at places that are data or a table: Gather, GatherElements and GatherND beyond what index functions say."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from einnet.expr import selection
from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Call, Const, Iter, Read, Scope, make_add, make_mul
from einnet.graph.operators.builders import loops_of, variables
from einnet.graph.operators.op import EXACT_INTEGERS, Function, Inexpressible, Op, Result, Unsupported

OVER = "v"
"""The iterator of places."""


def affine_of(values: np.ndarray) -> tuple[int, tuple[int, ...]] | None:
    """Constant and coefficients of an integer array that is affine in its own indices, or None."""
    origin = int(values[(0,) * values.ndim])
    steps = tuple(int(np.take(values, 1, axis=k)[(0,) * (values.ndim - 1)]) - origin if n > 1 else 0 for k, n in enumerate(values.shape))
    grid = np.indices(values.shape) if values.ndim else np.zeros((0,))
    model = origin + sum(s * g for s, g in zip(steps, grid))
    return (origin, steps) if np.array_equal(values, model) else None


def place_of(op: Op, values: np.ndarray, extent: int, loops: Sequence[Iter], hint: str) -> Index | Body:
    """Constant places along a dimension, over some loops: an index function, or the reads of a table. Places below 0 count from the end."""
    values = np.where(values < 0, values + extent, values).astype(np.int64)
    if values.size and (values.min() < 0 or values.max() >= extent):
        raise Inexpressible("an index is out of range")
    found = affine_of(values)
    if found is None:
        return Read(op.weight(values, hint), variables(loops))
    origin, steps = found
    return sum((var(i.name) * s for i, s in zip(loops, steps)), Index((), origin))


def place_by_data(op: Op, index: Sequence[Index], extent: int) -> Body:
    """Places that are data, read at an index."""
    place = op.read(1, index)
    return make_add((place, make_mul((Const(Fraction(extent)), Call("less", (place, Const(Fraction(0))))))))


def taken(op: Op, loops: tuple[Iter, ...], places: Sequence[Index | Body]) -> Result:
    """The first operand at places, one for each dimension, of which one at most is no index function."""
    x = op.input(0).tensor
    wanted = [k for k, place in enumerate(places) if not isinstance(place, Index)]
    if not wanted:
        return Scope(loops, (), op.read(0, [p for p in places if isinstance(p, Index)]))
    if len(wanted) > 1:
        return Unsupported("places along several dimensions are no index functions")
    (dimension,) = wanted
    over = Iter(OVER, 0, x.shape[dimension])
    if over.extent > EXACT_INTEGERS:
        return Unsupported(f"there are more than {EXACT_INTEGERS} places")
    place = places[dimension]
    assert not isinstance(place, Index)
    term = op.read(0, [p if isinstance(p, Index) else var(OVER) for p in places])
    return Scope(loops, (over,), selection.make(over, place, term))


def gather(op: Op) -> Result:
    """Y[.., j.., ..] = X[.., indices[j..], ..]."""
    x = op.input(0).tensor
    axis = op.integer("axis", 0) % len(x.shape)
    loops = loops_of(op.out.shape)
    inner = loops[axis : axis + len(op.input(1).shape)]
    values = op.input(1).value
    place = place_by_data(op, variables(inner), x.shape[axis]) if values is None else place_of(op, values, x.shape[axis], inner, "places")
    return taken(op, loops, (*variables(loops[:axis]), place, *variables(loops[axis + len(inner) :])))


def gather_elements(op: Op) -> Result:
    """Y[i..] = X[i.. but for the axis, indices[i..]]."""
    x = op.input(0).tensor
    axis = op.integer("axis", 0) % len(x.shape)
    loops = loops_of(op.out.shape)
    values = op.input(1).value
    place = place_by_data(op, variables(loops), x.shape[axis]) if values is None else place_of(op, values, x.shape[axis], loops, "places")
    return taken(op, loops, [place if k == axis else var(i.name) for k, i in enumerate(loops)])


def gather_nd(op: Op) -> Result:
    """Y[b.., j.., k..] = X[b.., indices[b.., j.., 0], indices[b.., j.., 1], .., k..]."""
    x, indices = op.input(0).tensor, op.input(1)
    batch, count = op.integer("batch_dims", 0), indices.shape[-1]
    loops = loops_of(op.out.shape)
    outer = loops[: len(indices.shape) - 1]
    places: list[Index | Body] = list(variables(loops[:batch]))
    for c in range(count):
        extent = x.shape[batch + c]
        if indices.value is None:
            places.append(place_by_data(op, (*variables(outer), Index((), c)), extent))
        else:
            places.append(place_of(op, indices.value[..., c], extent, outer, f"places{c}"))
    return taken(op, loops, (*places, *variables(loops[len(outer) :])))


GATHERING: dict[str, Function] = {"Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd}
