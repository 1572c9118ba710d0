"""The ways to count rows and columns of a table by two digits in which a few of its elements have a small rank: nearly none of a table that is no
product.

The whole may be of a larger rank than its samples show: `table_factors` looks at it in the ways that are found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np

from einnet.graph.passes.table_digits import Way, digit_extents, ways

SAMPLE = 10
"""Rows and columns of a matrix by which its rank is judged first."""

LEAST_GAIN = 1.25
"""How many times fewer multiplications a factored table has to take. Its factors may be such tables again, so that little is a beginning."""

MOST_RANK = 4
"""Terms of a factored table."""


def largest(table: np.ndarray) -> float:
    """The greatest magnitude; no number where some element is none. No element is copied: tables may be large, and are asked for this first."""
    return max(float(table.max()), -float(table.min()))


def fewest_products(table: np.ndarray, top: float) -> float:
    """Multiplications that the table takes in factors, as far as samples tell; infinite where it has none. `top` is its greatest magnitude."""
    return min((products for _, (products, _) in promising(table, top)), default=inf)


def promising(table: np.ndarray, top: float) -> Iterator[tuple[Way, tuple[int, int]]]:
    """The ways by which samples of a table have a small rank; the multiplications that both sums then take, and the elements of both. `top` is the
    greatest magnitude of its elements."""
    limit = 1e-6 * top
    usual = table[min(1, len(table) - 1)]  # waves of the first g are often only signs
    some = paying(*usual.shape)
    for at in small(usual, some, limit):
        way = some.way(at)
        rank = sampled_rank(usual, way, int(some.most[at]), limit)
        if rank is not None:
            yield way, (int(some.products[at]) * rank, int(some.elements[at]) * rank)


@dataclass(frozen=True, slots=True, eq=False)
class Paying:
    """The ways by which tables [k,c,n,d] may gain, as `table_digits.ways` has them, and for each of them:

    the `products` that both sums take at rank 1, the `elements` of both factors then, the largest rank that gains, and where a few `rows` and
    `columns` of the table are, at k1 = 0 and one n2, with their parts: [way, 0, :] and [way, 1, :].
    """

    ways: np.ndarray
    products: np.ndarray
    elements: np.ndarray
    most: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    def way(self, at: int) -> Way:
        rows, low_row, columns, low_column = map(int, self.ways[:, at])
        return Way(rows, bool(low_row), columns, bool(low_column))


@lru_cache(maxsize=16)
def paying(k: int, c: int, n: int, d: int) -> Paying:
    """What is known of the ways of all tables of a shape."""
    found = ways(k, n)
    rows, low_row, columns, low_column = found
    blocks, more = -(-k // rows), -(-n // columns)
    first, rest = np.where(low_row, rows, blocks), np.where(low_row, blocks, rows)
    summed, left = np.where(low_column, columns, more), np.where(low_column, more, columns)
    products, elements = left * first * (summed * d + rest * c), first * (summed * d + left * rest * c)
    most = np.minimum(MOST_RANK, k * c * n * d / (LEAST_GAIN * products)).astype(np.int64)
    (k2, part), (n1, other) = _few(rest, c), _few(summed, d)
    whole = np.where(low_column, np.maximum(1, n // columns), n - (more - 1) * columns)[:, None]
    row = np.where(low_row[:, None], rows[:, None] * k2, k2)
    column = np.where(low_column[:, None], n1 + columns[:, None] * (whole // 2), whole // 2 + columns[:, None] * n1)
    at = np.stack([np.where(row < k, row, 0), part], axis=1)
    along = np.stack([np.where(column < n, column, column[:, :1]), other], axis=1)
    pays = most > 0
    return Paying(found[:, pays], products[pays], elements[pays], most[pays], at[pays], along[pays])


def small(table: np.ndarray, some: Paying, limit: float) -> list[int]:
    """Those of the ways by which a few elements, at k1 = 0 and one n2, have a small rank: nearly none for a table that is no product."""
    left = sorted(at for most in range(1, MOST_RANK + 1) for at in hopeful(table, some, most, limit))
    if not left:
        return []
    ranks = (np.linalg.svd(sampled(table, some.rows[left], some.columns[left]), compute_uv=False) > limit * SAMPLE).sum(axis=1)
    return [at for at, rank in zip(left, ranks) if rank <= some.most[at]]


def hopeful(table: np.ndarray, some: Paying, most: int, limit: float) -> list[int]:
    """The ways that gain with at most so many terms, but for those of which one more row and column of the few elements surely has a larger rank."""
    ways = np.flatnonzero(some.most == most)
    more = full(sampled(table, some.rows[ways, :, : most + 1], some.columns[ways, :, : most + 1]), limit * SAMPLE)
    return list(map(int, ways[~more]))


def sampled(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """A matrix of a table's elements for each way: at these rows and columns."""
    return np.asarray(table[rows[:, 0, :, None], rows[:, 1, :, None], columns[:, 0, None, :], columns[:, 1, None, :]], np.float64)


def full(matrices: np.ndarray, limit: float) -> np.ndarray:
    """Whether all singular values of square matrices are surely above a limit, and so as many of what they are parts of.

    The least of r is |det| over the product of the others, which is at most (|M|^2/(r-1))^((r-1)/2), |M|^2 being the sum of all squares.
    """
    others = matrices.shape[-1] - 1
    most = ((matrices * matrices).sum(axis=(1, 2)) / others) ** (others / 2)
    return np.asarray(np.abs(np.linalg.det(matrices)) > limit * most)


def _few(extents: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Places among the values of digits of these extents, and their parts: the same number for every digit."""
    count = (extents * parts)[:, None]
    flat = np.arange(SAMPLE) * np.maximum(1, count // SAMPLE) % count
    return flat // parts, flat % parts


def _whole(extent: int, way: Way) -> int:
    """Values of n2 that have all values of n1 beside them, at least the first: where one is missing, any table has a smaller rank."""
    return max(1, extent // way.columns) if way.low_column else extent - (-(-extent // way.columns) - 1) * way.columns


def _filled(extent: int, way: Way) -> int:
    """Values of n2 that have all values of n1 beside them, or all but one: where few are, a rank is small for want of columns."""
    return max(1, extent // way.columns) if way.low_column else way.columns


def sampled_rank(table: np.ndarray, way: Way, most: int, limit: float) -> int | None:
    """The rank of a few rows and columns at four places (k1,n2); None where it is greater than `most`."""
    k, c, n, d = table.shape
    first, rest = digit_extents(k, way.rows, way.low_row)
    summed, _ = digit_extents(n, way.columns, way.low_column)
    rank, filled, whole = 0, _filled(n, way), _whole(n, way)
    for k1, n2 in ((0, whole // 2), (0, filled // 2), (first // 2, filled // 2), (min(1, first - 1), filled - 1)):
        k2, n1 = _spread(rest), _spread(summed)
        rows = k1 + way.rows * k2 if way.low_row else k2 + way.rows * k1
        columns = n1 + way.columns * n2 if way.low_column else n2 + way.columns * n1
        block = table[np.ix_(rows[rows < k], range(c), columns[columns < n], range(d))].astype(np.float64)
        values = np.linalg.svd(block.reshape(-1, block.shape[2] * d), compute_uv=False)
        rank = max(rank, int((values > limit * max(block.shape)).sum()))
        if rank > most:
            return None
    return max(rank, 1)


def _spread(extent: int) -> np.ndarray:
    """At most ten places: the first ones, and some further on."""
    return np.unique(np.concatenate([np.arange(min(extent, SAMPLE // 2)), np.linspace(0, extent - 1, SAMPLE // 2).astype(int)]))
