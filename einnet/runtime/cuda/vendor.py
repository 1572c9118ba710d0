"""What the steps of CUDA libraries mean, in numpy: the reference for a device, and how the host runs them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from einnet.instantiate.kernels import Conv, Post, View
from einnet.runtime.cuda.gemm import offsets
from einnet.runtime.cuda.program import Batch, Gemm, Matrix
from einnet.runtime.rounded import rounded

Array = np.ndarray[Any, np.dtype[Any]]
Window = Callable[[View], Array]


def window(view: View, flat: Array) -> Array:
    """The view as an array on a flat buffer."""
    return as_strided(flat[view.offset :], view.shape, [s * flat.itemsize for s in view.strides])


def run_gemm(step: Gemm, at: Window) -> None:
    """The product, by the step's own strides; where batches have none in common, one after the other from where each lies."""
    if not step.scattered:
        _multiply(step, at, step.batches, (0, 0, 0))
        return
    for a, b, c in offsets(step.batches).tolist():
        _multiply(step, at, (), (a, b, c))


def _multiply(step: Gemm, at: Window, batches: tuple[Batch, ...], more: tuple[int, int, int]) -> None:
    """Products of so many batches that begin `more` elements after those of a, b and c."""
    counts = tuple(b.count for b in batches)

    def operand(m: Matrix, begin: int, rows: int, columns: int, strides: tuple[int, ...]) -> Array:
        return at(View(m.buffer, (*counts, rows, columns), (*strides, m.row, m.column), m.offset + begin))

    a = operand(step.a, more[0], step.m, step.k, tuple(b.a for b in batches))
    b = operand(step.b, more[1], step.k, step.n, tuple(b.b for b in batches))
    y = np.matmul(rounded(a, step.factors), rounded(b, step.factors))
    if step.bias is not None:
        buffer, offset = step.bias
        by_column = step.c.column == 1
        bias = at(View(buffer, (step.n if by_column else step.m,), (1,), offset))
        y += bias if by_column else bias[:, None]
    operand(step.c, more[2], step.m, step.n, tuple(b.c for b in batches))[...] = np.maximum(y, 0) if step.relu else y


def run_conv(step: Conv, at: Window) -> None:
    """The convolution or its transpose, tap by tap."""
    x, w, y = rounded(at(step.x), step.arithmetic), rounded(at(step.w), step.arithmetic), at(step.y)
    groups, filters, channels, *taps = w.shape
    grouped = x.reshape(x.shape[0], groups, channels, *x.shape[2:])
    result = np.zeros((x.shape[0], groups, filters, *y.shape[2:]), x.dtype)
    for tap in product(*map(range, taps)):
        at_tap: Any = (..., *tap)
        inside, outside = _overlap(step, x.shape[2:], y.shape[2:], tap)
        source, target = (inside, outside) if step.transposed else (outside, inside)
        part = grouped[(slice(None), slice(None), slice(None), *source)]
        if part.size:
            flat = part.reshape(*part.shape[:3], -1)
            result[(slice(None), slice(None), slice(None), *target)] += np.matmul(w[at_tap], flat).reshape(
                *part.shape[:2], filters, *part.shape[3:]
            )
    y[...] = _posts(result.reshape(y.shape), step.post, at)


def _overlap(step: Conv, given: tuple[int, ...], made: tuple[int, ...], tap: tuple[int, ...]) -> tuple[list[slice], list[slice]]:
    """The positions i, of those that are numbered one by one, and i·stride + tap·dilation - pad, which a tap connects."""
    small, large = (given, made) if step.transposed else (made, given)
    ones, others = [], []
    for n, m, s, d, p, r in zip(small, large, step.strides, step.dilations, step.pads_begin, tap, strict=True):
        shift = r * d - p
        first, last = max(0, -(shift // s)), min(n - 1, (m - 1 - shift) // s)
        count = max(0, last - first + 1)
        start = max(0, first * s + shift)
        ones.append(slice(first, first + count))
        others.append(slice(start, start + (count - 1) * s + 1 if count else start, s))
    return ones, others


def _posts(y: Array, posts: tuple[Post, ...], at: Window) -> Array:
    for post in posts:
        if post.kind == "add" and post.operand is not None:
            y = y + at(post.operand)
        else:
            assert post.kind == "relu" and post.alpha == 0.0, f"no CUDA library fuses {post}"
            y = np.maximum(y, 0)
    return y
