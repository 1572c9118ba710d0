"""Matrix products in the terms of a BLAS: two strides for each matrix, one of them 1, and a list of batch dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from einnet.instantiate.kernels import Matmul, Post, View
from einnet.runtime.cuda.program import Batch, Gemm, Matrix


def addressable(view: View) -> bool:
    """The last two dimensions are a matrix with a unit stride and a leading dimension that is long enough."""
    (m, n), (row, column) = view.shape[-2:], view.strides[-2:]
    return (_unit(n, column) and _leads(m, row, n)) or (_unit(m, row) and _leads(n, column, m))


def _unit(extent: int, stride: int) -> bool:
    return extent == 1 or stride == 1


def _leads(count: int, stride: int, length: int) -> bool:
    return count == 1 or stride >= length


def matrix(view: View) -> Matrix:
    """The last two dimensions; a dimension of extent 1 gets the stride that makes the other one the leading one."""
    (m, n), (row, column) = view.shape[-2:], view.strides[-2:]
    if _unit(n, column) and _leads(m, row, n):
        return Matrix(view.buffer, view.offset, row if m > 1 else n, 1)
    return Matrix(view.buffer, view.offset, 1, column if n > 1 else m)


def bias_of(kernel: Matmul, post: Post) -> tuple[str, int] | None:
    """The place of a bias along the unit stride of c, the same for all batches; None where the post is something else."""
    if post.kind != "add" or post.operand is None or not addressable(kernel.c):
        return None
    at = len(kernel.c.shape) - (1 if matrix(kernel.c).column == 1 else 2)
    operand = post.operand
    varies = [d for d, (extent, stride) in enumerate(zip(operand.shape, operand.strides, strict=True)) if extent > 1 and stride]
    fits = varies == [at] and operand.strides[at] == 1 and operand.shape[at] == kernel.c.shape[at]
    return (operand.buffer, operand.offset) if fits else None


def gemm(kernel: Matmul) -> Gemm:
    """A fitted product (see `fit`): its matrices are addressable, its posts a bias and a relu."""
    (m, n), k = kernel.c.shape[-2:], kernel.a.shape[-1]
    bias = bias_of(kernel, kernel.post[0]) if kernel.post else None
    relu = bool(kernel.post) and kernel.post[-1].kind == "relu"
    return Gemm(m, n, k, matrix(kernel.a), matrix(kernel.b), matrix(kernel.c), batches(kernel), bias, relu, kernel.arithmetic.name)


def batches(kernel: Matmul) -> tuple[Batch, ...]:
    """The batch dimensions with more than one element, neighbours joined where all operands walk them as one."""
    found: list[Batch] = []
    for d, count in enumerate(kernel.c.shape[:-2]):
        if count == 1:
            continue
        a, b, c = ((v.strides[d] if v.shape[d] > 1 else 0) for v in (kernel.a, kernel.b, kernel.c))
        last = found[-1] if found else None
        if last and (last.a, last.b, last.c) == (count * a, count * b, count * c):
            found[-1] = Batch(last.count * count, a, b, c)
        else:
            found.append(Batch(count, a, b, c))
    return tuple(found)


def offsets(batches: tuple[Batch, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Elements to add to a, b and c for each product of the batch, outermost dimension first: (products, 3)."""
    found = np.zeros((1, 3), np.int64)
    for batch in batches:
        steps = np.arange(batch.count, dtype=np.int64)[:, None] * np.array([batch.a, batch.b, batch.c], np.int64)
        found = (found[:, None] + steps).reshape(-1, 3)
    return found
