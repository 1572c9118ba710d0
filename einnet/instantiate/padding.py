"""Padding of temporaries: kernels that walk all matrices of a batch at once need them to start in different cache sets.

A transform touches one line of every matrix at a time. Matrices that lie a multiple of a page apart fall into one set of the first-level
cache, which holds few of them; matrices that lie an odd number of lines apart use all sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from einnet.instantiate.kernels import LINE, Buffer, Kernel, Matmul, View, map_views, operand_views, result_views

FEW = 8
"""Matrices that any set has room for."""


def padded(kernels: list[Kernel], temporaries: Mapping[str, Buffer]) -> tuple[list[Kernel], dict[str, Buffer]]:
    """The same kernels over temporaries whose matrices, of more than `FEW`, start an odd number of lines apart."""
    found = dict(temporaries)
    for name, buffer in temporaries.items():
        views = [v for k in kernels for v in (*operand_views(k), *result_views(k)) if v.buffer == name]
        size = min((s for k in kernels for s in matrix_sizes(k, name)), default=0)
        if not size or buffer.size % size or buffer.size // size <= FEW or size % LINE or size // LINE % 2:
            continue
        if all(restrided(v, size, size + LINE) for v in views):
            kernels = [map_views(k, lambda v: (restrided(v, size, size + LINE) or v) if v.buffer == name else v) for k in kernels]  # noqa: B023
            found[name] = replace(buffer, size=buffer.size // size * (size + LINE))
    return kernels, found


def matrix_sizes(kernel: Kernel, name: str) -> Iterator[int]:
    """Distances of the matrices of a batched product in a buffer, where they do not overlap."""
    for v in (kernel.a, kernel.b, kernel.c) if isinstance(kernel, Matmul) else ():
        within = sum(s * (n - 1) for s, n in zip(v.strides[-2:], v.shape[-2:])) + 1
        steps = [s for s, n in zip(v.strides[:-2], v.shape[:-2]) if n > 1]
        if v.buffer == name and steps and min(steps) >= within:
            yield min(steps)


def restrided(view: View, size: int, wanted: int) -> View | None:
    """The view where address q·size + r has become q·wanted + r; None if a dimension of it crosses from r to q."""
    moving = [(s, n) for s, n in zip(view.strides, view.shape) if n > 1]
    inside = sum(s * (n - 1) for s, n in moving if s < size)
    if any(s >= size and s % size for s, _ in moving) or view.offset % size + inside >= size or prod(view.shape) == 0:
        return None

    def moved(address: int) -> int:
        return address // size * wanted + address % size

    return replace(view, strides=tuple(moved(s) for s in view.strides), offset=moved(view.offset))
