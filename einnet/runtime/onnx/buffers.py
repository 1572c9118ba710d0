"""The buffers of a plan as ONNX values: views become Reshape, Slice and Transpose of what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import gcd, prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from einnet.instantiate.kernels import Buffer, View, dense_view
from einnet.runtime.onnx.node_writer import Array, Emitter, Value

Dims = tuple[tuple[int, int], ...]
"""(extent, stride) of the dimensions that move."""


class Buffers:
    """What every buffer of a plan holds so far, and under which views it is known already.

    `initialisers` are the constants under the views that kernels take them by.
    """

    def __init__(self, e: Emitter, buffers: Mapping[str, Buffer], constants: Mapping[str, Array]) -> None:
        self.e, self.buffers, self.constants = e, buffers, constants
        self.known: dict[str, list[tuple[View, Value]]] = {}
        self.parts: dict[str, list[tuple[View, Value]]] = {}
        self.initialisers: dict[str, Array] = {}

    def write(self, view: View, value: Value) -> None:
        """A kernel wrote `value` there."""
        whole = 0 in view.shape or (prod(view.shape) == self.buffers[view.buffer].size and _injective(view))
        if whole:
            self.known[view.buffer] = [(view, value)]
        else:
            self.parts.setdefault(view.buffer, []).append((view, value))
            self.known.pop(view.buffer, None)

    def read(self, view: View) -> Value:
        """The value under a view."""
        for known, value in self.known.get(view.buffer, ()):
            if known.shape == view.shape and known.offset == view.offset and _dims(known) == _dims(view):
                return value
            if 0 in known.shape and 0 in view.shape:
                return self.e.reshape(value, view.shape)
        value = self._constant(view) if view.buffer in self.constants else self._arranged(view)
        self.known.setdefault(view.buffer, []).append((view, value))
        return value

    def _constant(self, view: View) -> Value:
        data = np.ascontiguousarray(strided(self.constants[view.buffer], view)).reshape(view.shape)
        name = f"{self.e.prefix}{view.buffer}_{len(self.known.get(view.buffer, ()))}"
        self.initialisers[name] = data
        return Value(name, view.shape)

    def _arranged(self, view: View) -> Value:
        if view.buffer not in self.known:
            self.known[view.buffer] = [self._joined(view.buffer)]
        for known, value in self.known[view.buffer]:
            order = _permutation(known, view)
            if order is not None:
                return self.e.reshape(self.e.transpose(value, order), view.shape)
        for known, value in self.known[view.buffer]:
            pieces = common_pieces(known, view, self.buffers[view.buffer].size)
            if pieces is not None:
                return self._rearranged(known, value, view, pieces)
        flat = self._flat(view.buffer)
        return self._box(view, flat) or self._windows(view, flat) or self._rows(view, flat)

    def _rearranged(self, known: View, value: Value, view: View, pieces: list[int]) -> Value:
        """A view of the whole buffer from another one: axes split into the pieces that both have, in the order of the wanted ones."""
        given = [p for n, s in zip(known.shape, known.strides) for p in _within(n, s, pieces)]
        wanted = [p for n, s in zip(view.shape, view.strides) for p in _within(n, s, pieces)]
        split = self.e.reshape(value, tuple(pieces[p + 1] // pieces[p] for p in given))
        return self.e.reshape(self.e.transpose(split, [given.index(p) for p in wanted]), view.shape)

    def _windows(self, view: View, flat: Value) -> Value | None:
        """Windows that are dense inside and may overlap: the buffer as pieces of which all windows consist, then a table of pieces.

        None for a view of a single element, or one whose windows have no longer pieces in common.
        """
        found = windows(view, flat.shape[0])
        if found is None:
            return None
        outer, inner, piece = found
        table = np.full((), view.offset // piece, dtype=np.int64)
        for a in outer:
            table = table[..., None] + view.strides[a] // piece * np.arange(view.shape[a], dtype=np.int64)
        within = prod(view.shape[a] for a in inner)
        table = table[..., None] + np.arange(within // piece, dtype=np.int64)
        value = self.e.gather(self.e.reshape(flat, (flat.shape[0] // piece, piece)), 0, table)
        axes = (*outer, *inner)
        value = self.e.reshape(value, tuple(view.shape[a] for a in axes))
        value = self.e.transpose(value, [axes.index(a) for a in sorted(axes)])
        ones = tuple(n if a in axes else 1 for a, n in enumerate(view.shape))
        return self.e.expand(self.e.reshape(value, ones), view.shape)

    def _rows(self, view: View, flat: Value) -> Value:
        """Any view: the buffer as rows as long as can be, of which a table that is as small as can be names some; then elements within rows."""
        row = row_length(view, flat.shape[0])
        outer = [a for a, s in enumerate(view.strides) if s % row == 0]
        inner = [a for a in range(len(view.shape)) if a not in outer]
        tables = [np.full((), offset, dtype=np.int64) for offset in divmod(view.offset, row)]
        for n, (axes, unit) in enumerate(((outer, row), (inner, 1))):
            for a in axes:
                steps = view.strides[a] // unit * np.arange(view.shape[a], dtype=np.int64)
                tables[n] = tables[n][..., None] + steps
        rows = self.e.gather(self.e.reshape(flat, (flat.shape[0] // row, row)), 0, tables[0])
        found = self.e.gather(rows, len(outer), tables[1])
        return self.e.transpose(found, [(*outer, *inner).index(a) for a in range(len(view.shape))])

    def _flat(self, buffer: str) -> Value:
        """The buffer as one dimension, from a view that covers it."""
        size = self.buffers[buffer].size
        for known, value in self.known[buffer]:
            if prod(known.shape) == size and _injective(known):
                return self._by_address(known, value)
        raise AssertionError(f"buffer {buffer} is read before all of it is written")

    def _by_address(self, view: View, value: Value) -> Value:
        """The elements of a view that is dense in some order, by their place in the buffer."""
        order = sorted(range(len(view.shape)), key=lambda a: (-view.strides[a] if view.shape[a] > 1 else 1, a))
        return self.e.reshape(self.e.transpose(value, order), (prod(view.shape),))

    def _joined(self, buffer: str) -> tuple[View, Value]:
        """Parts written one by one, as one value: consecutive stretches are concatenated (as they lie, where all lie alike), others scattered."""
        size = self.buffers[buffer].size
        parts = sorted(self.parts[buffer], key=lambda p: p[0].offset)
        whole = dense_view(buffer, (size,))
        ends = [v.offset for v, _ in parts[1:]] + [size]
        if parts[0][0].offset == 0 and all(_injective(v) and v.offset + prod(v.shape) == end for (v, _), end in zip(parts, ends)):
            first = parts[0][0]
            if all((v.shape, v.strides) == (first.shape, first.strides) for v, _ in parts):
                stacked = View(buffer, (len(parts), *first.shape), (prod(first.shape), *first.strides))
                values = [self.e.reshape(value, (1, *first.shape)) for _, value in parts]
                return stacked, self.e.op("Concat", values, stacked.shape, axis=0)
            return whole, self.e.op("Concat", [self._by_address(v, value) for v, value in parts], (size,), axis=0)
        flat = self.e.expand(self.e.number(0), (size,))
        for v, value in parts:
            count = (prod(v.shape),)
            table = np.ascontiguousarray(strided(np.arange(size, dtype=np.int64), v)).reshape(-1)
            flat = self.e.op("ScatterElements", (flat, self.e.constant(table), self.e.reshape(value, count)), (size,))
        return whole, flat

    def _box(self, view: View, flat: Value) -> Value | None:
        """A view that is a box of some dense array, broadcast dimensions aside: Reshape, Slice, Transpose; None for other views."""
        moving = sorted((a for a, n in enumerate(view.shape) if n > 1 and view.strides[a]), key=lambda a: -view.strides[a])
        strides = [view.strides[a] for a in moving]
        outer = flat.shape[0]
        full, starts, rest = [], [], view.offset
        for s in strides:
            if s <= 0 or outer % s:
                return None
            full.append(outer // s)
            starts.append(rest // s)
            rest, outer = rest % s, s
        if any(start + view.shape[a] > n for a, start, n in zip(moving, starts, full)):
            return None
        value = self.e.reshape(flat, (*full, outer))
        value = self.e.slice(value, len(full), rest, 1)
        for n, (a, start) in enumerate(zip(moving, starts)):
            value = self.e.slice(value, n, start, view.shape[a])
        value = self.e.reshape(value, tuple(view.shape[a] for a in moving))
        value = self.e.transpose(value, [moving.index(a) for a in sorted(moving)])
        ones = tuple(n if a in moving else 1 for a, n in enumerate(view.shape))
        return self.e.expand(self.e.reshape(value, ones), view.shape)


def strided(data: Array, view: View) -> Array:
    """A flat array under a view, without a copy."""
    step = data.itemsize
    return as_strided(data[view.offset :], view.shape, tuple(s * step for s in view.strides), writeable=False)


def _dims(view: View) -> Dims:
    return tuple((n, s) for n, s in zip(view.shape, view.strides) if n != 1)


def windows(view: View, size: int) -> tuple[list[int], list[int], int] | None:
    """(axes that step from window to window, axes that lie dense inside of one, both by descending stride; the length of a piece).

    Every window begins at a multiple of a piece and is some pieces long. None where a piece is a single element.
    """
    moving = sorted((a for a, n in enumerate(view.shape) if n > 1 and view.strides[a]), key=lambda a: view.strides[a])
    inner, length = list[int](), 1
    while moving and view.strides[moving[0]] == length:
        inner.insert(0, moving.pop(0))
        length *= view.shape[inner[0]]
    piece = gcd(length, view.offset, size, *(view.strides[a] for a in moving))
    return None if piece == 1 else (moving[::-1], inner, piece)


def common_pieces(one: View, other: View, size: int) -> list[int] | None:
    """Strides at which axes of two views of a whole buffer begin, and its size, ascending: each divides the next. None where they are not so."""
    if not all(prod(v.shape) == size and _injective(v) for v in (one, other)):
        return None
    found = sorted({1, size, *(s for v in (one, other) for _, s in _dims(v))})
    return found if all(b % a == 0 for a, b in pairwise(found)) else None


def _within(extent: int, stride: int, pieces: Sequence[int]) -> list[int]:
    """Numbers of the pieces that an axis is made of, that of the longest stride first."""
    return [p for p in reversed(range(len(pieces) - 1)) if extent > 1 and stride <= pieces[p] < stride * extent]


def row_length(view: View, size: int) -> int:
    """The greatest divisor of the size such that every dimension of the view either steps from row to row or stays, with others, in a row."""
    for row in sorted({s for s in view.strides if s > 1 and size % s == 0}, reverse=True):
        within = sum(s * (n - 1) for n, s in zip(view.shape, view.strides) if s % row)
        if view.offset % row + within < row:
            return row
    return 1


def _injective(view: View) -> bool:
    """The view is a dense array in some order of its dimensions."""
    dims = sorted(_dims(view), key=lambda d: d[1])
    expected = 1
    for extent, stride in dims:
        if stride != expected:
            return False
        expected *= extent
    return True


def _permutation(known: View, wanted: View) -> list[int] | None:
    """The order of the known view's axes that gives the wanted one, up to axes of extent 1; None where that is not enough."""
    if known.offset != wanted.offset or sorted(_dims(known)) != sorted(_dims(wanted)):
        return None
    axes = {(known.shape[a], known.strides[a]): a for a in range(len(known.shape)) if known.shape[a] != 1}
    if len(axes) != len(_dims(known)):
        return None
    return [axes[d] for d in _dims(wanted)] + [a for a, n in enumerate(known.shape) if n == 1]
