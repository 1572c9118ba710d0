"""The sizes of several dimensions: how they are written, which tuples of them are measured, and which tuple a call has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import isqrt
from typing import Any

import numpy as np

from einnet.compile.ranges.sizes import dimension_of
from einnet.errors import UsageError
from einnet.graph.dimension import Dimension

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = tuple[int, ...]
Shape = tuple[int | str, ...]

MOST_DIMENSIONS = 3
"""Corners double with every dimension, and each is measured."""

Range = str | tuple[str, int, int]
Ranges = Range | Sequence[Range]


def dimensions_of(given: Ranges) -> tuple[Dimension, ...]:
    """The dimensions of "batch=1..8 seq=16..512", or of a sequence of such ranges or of ("batch", 1, 8).

    Raises UsageError for what is none, for a name that is given twice and for too many.
    """
    found = tuple(dimension_of(one, most=None) for one in split(given))
    names = [d.name for d in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"dimension {twice[0]!r} is given two ranges")
    if not 1 <= len(found) <= MOST_DIMENSIONS:
        raise UsageError(f"{len(found)} dimensions have ranges; an artifact serves 1 to {MOST_DIMENSIONS}")
    return found


def split(given: Ranges) -> list[Range]:
    """The ranges one by one."""
    if isinstance(given, str):
        return [*given.split()] or [given]
    one = len(given) == 3 and isinstance(given[0], str) and all(isinstance(n, int) for n in given[1:])
    if one or not all(isinstance(g, (str, tuple, list)) for g in given):
        return [given]  # type: ignore[list-item]
    return [part for g in given for part in split(g)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Domain:
    """Tuples of sizes, one for each dimension, and the shapes of the inputs by the names of these, in the model's order."""

    dimensions: tuple[Dimension, ...]
    shapes: Mapping[str, Shape]

    def __str__(self) -> str:
        return ", ".join(map(str, self.dimensions))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.dimensions)

    def told(self, sizes: Sizes) -> str:
        """batch = 3, seq = 100"""
        return ", ".join(f"{name} = {size}" for name, size in zip(self.names, sizes, strict=True))

    def measured(self) -> list[Sizes]:
        """The middle, by ratio, and the corners: small ones first."""
        ends = [dict.fromkeys((d.lowest, d.highest)) for d in self.dimensions]
        middle = tuple(isqrt(d.lowest * d.highest) for d in self.dimensions)
        return sorted({*product(*ends), middle}, key=lambda sizes: (np.prod(sizes, dtype=float), sizes))

    def check(self, sizes: Sizes) -> Sizes:
        """The sizes. Raises UsageError for one out of its range, with the range."""
        for size, (name, lowest, highest) in zip(sizes, self.dimensions, strict=True):
            if not lowest <= size <= highest:
                raise UsageError(f"{name} is {size}; the program serves {lowest}..{highest}")
        return sizes

    def ordered(self, sizes: Sizes, named: Mapping[str, int]) -> Sizes:
        """The sizes in the order of the dimensions, which are given so, or by name. Raises UsageError for others than one for each dimension."""
        found = {**dict(zip(self.names, sizes)), **named}
        if len(sizes) + len(named) != len(self.names) or found.keys() != set(self.names):
            raise UsageError(f"expected a size for each of {', '.join(self.names)}")
        return self.check(tuple(found[name] for name in self.names))

    @cached_property
    def _places(self) -> dict[str, list[tuple[str, int]]]:
        """Where each dimension stands: inputs and axes."""
        return {d: [(name, n) for name, shape in self.shapes.items() for n, dim in enumerate(shape) if dim == d] for d in self.names}

    def sizes(self, inputs: Mapping[str, Array]) -> Sizes:
        """The sizes that inputs have. Raises UsageError where they disagree, where none of a dimension's inputs is there, and out of the ranges."""
        shapes = {name: np.shape(value) for name, value in inputs.items()}
        return self.check(tuple(self._size(name, shapes) for name in self.names))

    def _size(self, dimension: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
        places = [(name, axis) for name, axis in self._places[dimension] if axis < len(shapes.get(name, ()))]
        found = {shapes[name][axis]: (axis, name) for name, axis in reversed(places)}
        if not found:
            where = " or ".join(repr(name) for name, _ in self._places[dimension])
            raise UsageError(f"nothing tells {dimension}: it is a dimension of input {where}")
        if len(found) > 1:
            told = ", ".join(f"{size} by dimension {axis} of input {name!r}" for size, (axis, name) in sorted(found.items()))
            raise UsageError(f"the inputs disagree about {dimension}: {told}")
        return next(iter(found))

    def shapes_at(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Static shapes of the inputs."""
        known = dict(zip(self.names, sizes, strict=True))
        return {name: tuple(known[dim] if isinstance(dim, str) else dim for dim in shape) for name, shape in self.shapes.items()}


def key(sizes: Iterable[int]) -> str:
    """8x512: what the plan for these sizes is called in files."""
    return "x".join(map(str, sizes))


def sizes_of(text: str) -> Sizes:
    """The inverse of `key`."""
    return tuple(map(int, text.split("x")))
