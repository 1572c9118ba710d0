"""Strided windows on buffers, and their stored form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from einnet.expr.remember import Hashed, hashed_once

LINE = 16
"""Floats of a cache line, to which buffers are aligned."""

Json = Any


@hashed_once
@dataclass(frozen=True, slots=True)
class View(Hashed):
    """A strided window on a buffer: element (i0, i1, ...) lies `offset + Σ strides·i` elements after the buffer's start."""

    buffer: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def at(self, offset: int) -> View:
        """The view at another offset."""
        return self if offset == self.offset else View(self.buffer, self.shape, self.strides, offset)


def numbered(view: View, names: dict[str, str], offset: int) -> View:
    """The view at an offset, its buffer named by occurrence: `names` are those that were seen before."""
    return replace(view, buffer=names.setdefault(view.buffer, f"b{len(names)}"), offset=offset)


def distinct_elements(view: View) -> int:
    """Elements of a view, dimensions of stride 0 counted once."""
    return prod(n for n, s in zip(view.shape, view.strides, strict=True) if s)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for n in range(len(shape) - 2, -1, -1):
        strides[n] = strides[n + 1] * max(shape[n + 1], 1)
    return tuple(strides)


def dense_view(buffer: str, shape: tuple[int, ...]) -> View:
    """The whole buffer, row-major."""
    return View(buffer, shape, dense_strides(shape))


def strided_view(buffer: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> View:
    """A view whose dimensions of extent 1, which never move, get the stride that vendor libraries expect there: 1 in the last, else the reach."""
    reach = max((n * abs(s) for n, s in zip(shape, strides) if n > 1), default=1)
    last = len(shape) - 1
    return View(buffer, shape, tuple(s if n > 1 else (1 if d == last else reach) for d, (n, s) in enumerate(zip(shape, strides))), offset)


def view_json(view: View) -> Json:
    """The view as a JSON value."""
    return [view.buffer, list(view.shape), list(view.strides), view.offset]


def read_view(value: Json) -> View:
    """The inverse of `view_json`. Raises ValueError or TypeError for a value that is no view."""
    buffer, shape, strides, offset = value
    view = View(str(buffer), integers(shape), integers(strides), *integers([offset]))
    if len(view.shape) != len(view.strides):
        raise ValueError(f"a view with shape {shape} and strides {strides}")
    return view


def integers(values: Iterable[Json]) -> tuple[int, ...]:
    """Stored integers. Raises ValueError where one of them is something else."""
    found = tuple(values)
    if not all(type(v) is int for v in found):
        raise ValueError(f"expected integers, found {values}")
    return found
