"""Arrays of numbers that are integers but for a scale, as quantised weights are: found by their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

GREATEST = 255
"""The greatest integer that is looked for."""

LEAST_BYTE, GREATEST_BYTE = -128, 127

NEAR = 2.0**-21
"""How far a number may be from its multiple of the scale, relative to it: float32 has that product, and the greatest one, within 2^-24."""

SAMPLE = 64
"""Numbers of a row on which a scale is tried before it is on all."""

FEW = 6
"""Numbers among these on which every scale is tried."""


@dataclass(frozen=True)
class Grid:
    """Numbers are (integers + shifts)·scales: integers of a byte, and a whole number and a scale for each place along some dimensions."""

    integers: NDArray[np.int8]
    shifts: NDArray[np.int64]
    scales: NDArray[np.float64]


def on_grid(values: NDArray[Any], kept: Sequence[int]) -> Grid | None:
    """The values as integers that have a byte, and a shift and a scale for each place along the dimensions `kept`; None where there are none.

    The scales are the greatest that do, in float32 where the values are the products of the integers with such; where all of a place is 0, it
    is 1. The shifts are the least that do, 0 for what is a byte as it is.
    """
    if values.dtype != np.float32 or not values.size or not np.isfinite(values).all():
        return None
    order = [*kept, *(d for d in range(values.ndim) if d not in kept)]
    shape = tuple(values.shape[d] for d in order)
    rows = values.transpose(order).reshape(prod(shape[: len(kept)]), -1).astype(np.float64)
    scales = _scales(rows)
    if scales is None:
        return None
    whole = np.rint(rows / scales[:, None]).astype(np.int64)
    scales = _rounded(rows, whole, scales)
    shifts = np.maximum(whole.max(axis=1) - GREATEST_BYTE, 0) + np.minimum(whole.min(axis=1) - LEAST_BYTE, 0)
    whole -= shifts[:, None]
    if whole.min() < LEAST_BYTE or whole.max() > GREATEST_BYTE:
        return None
    along = shape[: len(kept)]
    integers = np.ascontiguousarray(whole.astype(np.int8).reshape(shape).transpose(np.argsort(order)))
    return Grid(integers, shifts.reshape(along), scales.reshape(along))


def _scales(rows: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """A scale for each row; None where one has none."""
    most = np.abs(rows).max(axis=1)
    largest = np.where(most > 0, most, 1.0)
    sample = rows[:, np.linspace(0, rows.shape[1] - 1, min(SAMPLE, rows.shape[1])).astype(int)]
    likely = np.stack([_fits(sample[:, :: -(-sample.shape[1] // FEW)], largest / count) for count in range(1, GREATEST + 1)])
    for n, count in enumerate(range(1, GREATEST + 1)):
        rows_left = np.flatnonzero(likely[n])
        likely[n, rows_left] = _fits(sample[rows_left], largest[rows_left] / count)
    scales, waiting = np.ones(len(rows)), most > 0
    while waiting.any():
        if not likely[:, waiting].any(axis=0).all():
            return None
        first = likely.argmax(axis=0)
        tried = largest / (first + 1)
        found = waiting & _fits(rows, tried)
        scales[found] = tried[found]
        likely[first, np.arange(len(rows))] = False
        waiting &= ~found
    return scales


def _rounded(rows: NDArray[np.float64], whole: NDArray[np.int64], scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scales, or numbers of float32 next to them whose products with the integers, rounded, are the values bit for bit."""
    near, found = scales.astype(np.float32), scales.copy()
    waiting = np.ones(len(rows), bool)
    for one in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0))):
        left = np.flatnonzero(waiting)
        same = (whole[left].astype(np.float32) * one[left, None] == rows[left]).all(axis=1)
        found[left[same]], waiting[left[same]] = one[left[same]], False
    return found


def _fits(rows: NDArray[np.float64], scales: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The rows that are multiples of their scales."""
    nearest = np.rint(rows / scales[:, None]) * scales[:, None]
    return np.asarray((np.abs(rows - nearest) <= NEAR * np.abs(rows)).all(axis=1))
