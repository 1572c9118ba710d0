"""Weights that are sums of few products of vectors, found by their values: W[g,k,n] = Σ[r] A[g,k,r]*B[g,r,n] for every g.

Of the dimensions that vary one group is rows, one is columns, and the rest, for each place of which there is a matrix, is g. A sum over rows and
columns then takes two sums with fewer products: a filter of rank two is two pairs of filters along one dimension each, and a product with a matrix of
small rank is two thin products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Literal

import numpy as np

from einnet.expr.values.blas import on_one_thread
from einnet.graph.passes.table_factors import GROWTH, ROUNDING
from einnet.graph.passes.table_samples import LEAST_GAIN

EPSILON = 2.0**-24
"""Rounding of float32: singular values of what is rounded so are at most this, times the largest element, times the roots of both extents."""

Walk = Literal["loop", "sum", "window"]
"""What walks a dimension of a weight: a loop, a sum, or a sum that reads along with a loop."""

MOST_RANK = 128
"""Products of which a matrix may be a sum; fewer where there is a choice of rows and columns, so that all choices together take no longer: what a
sample takes grows with the cube."""

MORE = 8
"""Rows and columns beyond the rank that is asked, by which it is judged first."""

SURELY = 0.5
"""Share of the least singular value that noise has at most where a bound of that suffices: rounding of the bound itself is far less."""

MOST_ELEMENTS = 1 << 24
"""Of a weight that is looked at."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """The dimensions of rows and of columns, and the factors: A over the other dimensions, rows and r; B over the others, r and columns."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    left: np.ndarray
    right: np.ndarray


@on_one_thread
def low_rank(values: np.ndarray, walks: Sequence[Walk]) -> LowRank | None:
    """The weight, its dimensions walked so, as sums of few products; None where its values are no such sums, or no multiplications are saved."""
    varying = [n for n, extent in enumerate(values.shape) if extent > 1]
    found = list(groups(varying)) if values.size <= MOST_ELEMENTS else []
    best: tuple[float, LowRank] | None = None
    for rows, columns in found:
        batch = tuple(n for n in varying if n not in (*rows, *columns))
        each = share(values.shape, walks, rows, columns)
        most = min(int((1 / LEAST_GAIN if best is None else best[0]) / each), int(MOST_RANK / len(found) ** (1 / 3)))
        if most < 1 or sampled_rank(values, rows, columns, most + MORE) > most:
            continue
        shape = tuple(prod(values.shape[n] for n in group) for group in (batch, rows, columns))
        matrices = values.squeeze().transpose([varying.index(n) for n in (*batch, *rows, *columns)]).reshape(shape)
        pair = in_products(matrices.astype(np.float64), most)
        if pair is not None and (best is None or each * pair[0].shape[-1] < best[0]):
            best = each * pair[0].shape[-1], LowRank(rows, columns, *pair)
    return None if best is None else best[1]


def share(shape: Sequence[int], walks: Sequence[Walk], rows: Sequence[int], columns: Sequence[int]) -> float:
    """Multiplications of both sums for each term, as a share of those that the weight takes whole.

    The first sum is over the rows that are summed, for each of the columns that are; the second over these, for each loop of either. A window is
    where the sums meet the loops of what is read: it is summed once, and no loop more.
    """

    def extent(dims: Sequence[int], *kinds: Walk) -> int:
        return prod(shape[n] for n in dims if walks[n] in kinds)

    pairs = ((extent(one, "sum", "window"), extent(other, "loop", "window")) for one, other in ((rows, columns), (columns, rows)))
    return min(1 / summed + 1 / kept for summed, kept in pairs)


def groups(varying: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Rows and columns: the first of the rows stands before the first of the columns."""
    for size in range(2, len(varying) + 1):
        for taken in combinations(varying, size):
            for count in range(1, size):
                for rows in combinations(taken, count):
                    if rows[0] == taken[0]:
                        yield rows, tuple(n for n in taken if n not in rows)


def sampled_rank(values: np.ndarray, rows: Sequence[int], columns: Sequence[int], most: int) -> int:
    """The rank of at most that many rows and columns of the first matrix: no more than that of the matrix."""
    index: list[np.ndarray | int] = [0] * values.ndim
    for group, shape in ((rows, (-1, 1)), (columns, (1, -1))):
        extents = [values.shape[n] for n in group]
        taken = np.unique(np.linspace(0, prod(extents) - 1, most).astype(int))
        for n, places in zip(group, np.unravel_index(taken, extents)):
            index[n] = places.reshape(shape)
    block = values[tuple(index)].astype(np.float64)
    limit = float(noise(block))
    return min(block.shape) if of_full_rank(block, limit) else int((np.linalg.svd(block, compute_uv=False) > limit).sum())


def of_full_rank(matrix: np.ndarray, limit: float) -> bool:
    """Surely no singular value is within the limit: 1 / ||1/R|| of Q R = A is no more than the least of them, and takes no decomposition in turns."""
    triangle = np.linalg.qr(matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T, mode="r")
    if not np.diagonal(triangle).all():
        return False
    inverse = np.linalg.norm(np.linalg.inv(triangle))
    return bool(np.isfinite(inverse) and inverse * limit < SURELY)


def in_products(matrices: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    """A[g,k,r] and B[g,r,n] in float32, r at most `most`, with the matrices [g,k,n] as their products; None where there are none."""
    left, sizes, right = decomposed(matrices, most + MORE)
    rank = int((sizes > noise(matrices)[:, None]).sum(axis=1).max())
    if not 1 <= rank <= most:
        return None
    root = np.sqrt(sizes[:, :rank])
    a = (left[:, :, :rank] * root[:, None]).astype(np.float32)
    b = (right[:, :rank] * root[:, :, None]).astype(np.float32)
    x, y = a.astype(np.float64), b.astype(np.float64)
    top = np.abs(matrices).max(axis=(1, 2), keepdims=True)
    near = (np.abs(x @ y - matrices) <= ROUNDING * top).all()
    return (a, b) if near and (np.abs(x) @ np.abs(y) <= GROWTH * top).all() else None


def decomposed(matrices: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The singular value decomposition, of as many values as asked at most: exact, up to rounding, where the rank is less.

    The columns' space is that of a few random combinations of them, so that a large matrix takes a few thin products.
    """
    if min(matrices.shape[1:]) <= most:
        left, sizes, right = np.linalg.svd(matrices, full_matrices=False)
        return left, sizes, right
    mixed = matrices @ np.random.default_rng(0).standard_normal((matrices.shape[2], most))
    basis = np.linalg.qr(mixed)[0]
    left, sizes, right = np.linalg.svd(basis.transpose(0, 2, 1) @ matrices, full_matrices=False)
    return basis @ left, sizes, right


def noise(matrices: np.ndarray) -> np.ndarray:
    """Up to what singular values may come of rounding alone: of matrices [..,k,n] one number each."""
    rows, columns = matrices.shape[-2:]
    return np.asarray(EPSILON * np.abs(matrices).max(axis=(-2, -1)) * (np.sqrt(rows) + np.sqrt(columns)))
