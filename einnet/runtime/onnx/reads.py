"""A read with any quasi-affine index functions as Pad, Slice, Gather, Reshape and Transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from einnet.expr.index import Index, Range
from einnet.expr.nodes import Number
from einnet.expr.values.bodies import flat_address, numerator
from einnet.runtime.onnx.node_writer import Emitter, Value

MOST_PADDING = 16
"""Elements beyond three times the box up to which a dimension is padded on both sides, rather than by one element that all reads outside share."""


def read(e: Emitter, base: Value, box: Sequence[Range], index: Sequence[Index], ranges: Mapping[str, Range], fill: Number) -> tuple[Value, list[str]]:
    """The values of base[index] over the iterators that occur in it, an axis each, and their names in the order of the axes.

    Dimensions that share an iterator are taken together as one, by their flat address.
    """
    axes: list[int | str] = list(range(len(index)))
    value = base
    for dims, names in _groups(index):
        first = axes.index(dims[0])
        together = [a for a in range(len(axes)) if axes[a] not in dims[1:]]
        at = together.index(first)
        order = [*together[: at + 1], *(axes.index(d) for d in dims[1:]), *together[at + 1 :]]
        value = e.transpose(value, order)
        merged = int(np.prod([value.shape[at + n] for n in range(len(dims))], dtype=np.int64))
        value = e.reshape(value, (*value.shape[:at], merged, *value.shape[at + len(dims) :]))
        env = dict(zip(names, np.ix_(*(np.arange(*ranges[n], dtype=np.int64) for n in names))))
        extents = tuple(hi - lo for lo, hi in (ranges[n] for n in names))
        value = _take(e, value, at, [index[d] for d in dims], [box[d] for d in dims], env, extents, fill)
        kept = [axes[a] for a in together]
        axes = [*kept[:at], *names, *kept[at + 1 :]]
    return value, [str(a) for a in axes]


def _groups(index: Sequence[Index]) -> list[tuple[list[int], list[str]]]:
    """Dimensions connected by common iterators, with these iterators."""
    groups: list[tuple[list[int], list[str]]] = []
    for d, ix in enumerate(index):
        dims, names = [d], sorted(ix.names())
        for other in [g for g in groups if set(g[1]) & set(names)]:
            groups.remove(other)
            dims, names = sorted([*other[0], *dims]), sorted({*other[1], *names})
        groups.append((dims, names))
    return groups


def _take(
    e: Emitter, v: Value, axis: int, index: Sequence[Index], box: Sequence[Range], env: Mapping[str, NDArray[np.int64]], extents: tuple[int, ...],
    fill: Number,
) -> Value:  # fmt: skip
    """The elements of one axis (the dimensions of `box`, flat) that the index functions name."""
    if len(index) == 1 and index[0].den == 1 and 0 not in extents:
        at = np.broadcast_to(numerator(index[0], env) - box[0][0], extents)
        before, after = max(0, -int(at.min())), max(0, int(at.max()) + 1 - v.shape[axis])
        if before + after <= 2 * v.shape[axis] + MOST_PADDING:
            return e.gather(e.pad(v, axis, before, after, fill), axis, at + before)
    address, inside = flat_address(tuple(index), tuple(box), env)
    if inside is None:
        return e.gather(v, axis, np.broadcast_to(address, extents))
    table = np.broadcast_to(np.where(inside, address, v.shape[axis]), extents)
    return e.gather(e.pad(v, axis, 0, 1, fill), axis, table)
