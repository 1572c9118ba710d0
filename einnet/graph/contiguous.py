"""Arrays whose elements lie one after the other, in the order of their dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

SLAB = 128
"""Rows of a matrix that are transposed at once: they and what they become stay in the cache. numpy's own copy of 64 million elements takes six times
as long."""

LARGE = 1 << 18
"""Elements of an array from which on it is worth the while."""


def contiguous(array: Array) -> Array:
    """The array itself where its elements lie so, else a copy in which they do: row by row, or where the elements of a row lie farther apart than
    the rows, by slabs."""
    if array.size < LARGE or array.flags.c_contiguous or array.ndim < 2 or abs(array.strides[-1]) <= min(map(abs, array.strides[:-1])):
        return np.asarray(array, order="C")
    made: Array = np.empty(array.shape, array.dtype)
    for at in range(0, array.shape[-1], SLAB):
        made[..., at : at + SLAB] = array[..., at : at + SLAB].copy(order="K")
    return made
