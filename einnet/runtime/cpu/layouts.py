"""Strides as vendor libraries like to see them: extent-1 dimensions carry no information, so theirs are chosen to complete a known layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from einnet.instantiate.kernels import View


def permuted_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor whose dimensions lie in memory in `order`, outermost first."""
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def agree(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """The same addresses: strides equal wherever the extent exceeds 1."""
    return all(n == 1 or p == q for n, p, q in zip(shape, a, b, strict=True))


def channels_last(rank: int) -> tuple[int, ...]:
    """The memory order of NHWC and its relatives, for logical (n, c, spatial...)."""
    return (0, *range(2, rank), 1)


def canonical_image(view: View) -> View:
    """A view (n, c, spatial...) with the strides of dense channels-last or channels-first if it is one of them, in this preference."""
    for order in (channels_last(len(view.shape)), tuple(range(len(view.shape)))):
        strides = permuted_strides(view.shape, order)
        if agree(view.shape, view.strides, strides):
            return replace(view, strides=strides)
    return view


def canonical_matrix(view: View) -> View:
    """A view (batch..., rows, columns) in which extent-1 dimensions have the strides of a matrix with one unit stride, if it can be seen as one, and
    before it the extent of all that follows."""
    *batch, rows, columns = view.shape
    *batch_strides, row, column = view.strides
    if columns == 1:
        row, column = (row, 1) if row > 1 else (1, max(rows, 1))
    elif rows == 1:
        row, column = (columns, 1) if column == 1 else (1, column)
    extent, outer = max(rows * row, columns * column), list[int]()
    for n, s in zip(reversed(batch), reversed(batch_strides), strict=True):
        outer.insert(0, extent if n == 1 else s)
        extent = max(extent, n * outer[0])
    return replace(view, strides=(*outer, row, column))


def broadcast(view: View, keep: int = 0) -> View:
    """Dimensions of stride 0 become extent 1, which broadcasts; the last `keep` dimensions stay as they are."""
    free = len(view.shape) - keep
    return replace(view, shape=tuple(1 if d < free and s == 0 else n for d, (n, s) in enumerate(zip(view.shape, view.strides, strict=True))))


def swapped(view: View) -> View:
    """The transposed matrix (last two dimensions)."""
    return replace(view, shape=(*view.shape[:-2], view.shape[-1], view.shape[-2]), strides=(*view.strides[:-2], view.strides[-1], view.strides[-2]))


def overlaps(view: View) -> bool:
    """Whether two index tuples may share an address (exact for nested strides, true where it cannot be told)."""
    reach = 1
    for stride, extent in sorted((s, n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach = stride * (extent - 1) + reach
    return False
