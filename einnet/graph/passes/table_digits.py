"""Rows and columns of a table counted by two digits each: which digits there are, and tables and what is known of them by these."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True, slots=True)
class Way:
    """Digits of rows and columns: k by k % rows and k // rows, n likewise; by `low_row` k1 is k % rows, by `low_column` n1 is n % columns."""

    rows: int
    low_row: bool
    columns: int
    low_column: bool


def ways(k: int, n: int) -> np.ndarray:
    """Digits for rows and columns, of each by what divides it, the other or twice the other: a table may have half of its rows or columns.

    An array of what a Way has, in the order in which it has them, with one way in each column.
    """
    rows = [m for m in range(2, k) if k % m == 0 or 2 * n % m == 0]
    columns = [m for m in range(2, n) if n % m == 0 or 2 * k % m == 0]
    every = np.meshgrid(np.array(rows, np.int64), np.array(columns, np.int64), [1, 0], [0, 1], indexing="ij")
    return np.array([every[0], every[2], every[1], every[3]]).reshape(4, -1)


def digit_extents(extent: int, size: int, low: bool) -> tuple[int, int]:
    """How many values the chosen digit has, and the other."""
    blocks = -(-extent // size)
    return (size, blocks) if low else (blocks, size)


def arranged(table: np.ndarray, way: Way) -> np.ndarray:
    """The table by digits, [g, k1, n2, k2, c, n1, d]; rows and columns that are missing are 0."""
    g, k, c, n, d = table.shape
    blocks, more = -(-k // way.rows), -(-n // way.columns)
    padded = np.pad(table, ((0, 0), (0, blocks * way.rows - k), (0, 0), (0, more * way.columns - n), (0, 0)))
    parts = padded.reshape(g, blocks, way.rows, c, more, way.columns, d)
    rows = (2, 1) if way.low_row else (1, 2)
    columns = (5, 4) if way.low_column else (4, 5)
    return parts.transpose(0, rows[0], columns[1], rows[1], 3, columns[0], 6)


def product(way: Way, first: np.ndarray, second: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The table W[g,k,c,n,d] that A and B are factors of."""
    g, k, c, n, d = shape
    parts = sum(
        first[:, :, :, r].transpose(0, 2, 1, 3, 4)[:, :, :, None, None] * second[:, :, :, r][:, :, :, :, :, None, None]
        for r in range(first.shape[3])
    )
    parts = np.asarray(parts)  # g k1 n2 k2 c n1 d
    rows = (3, 1) if way.low_row else (1, 3)
    columns = (2, 5) if way.low_column else (5, 2)
    whole = parts.transpose(0, rows[0], rows[1], 4, columns[0], columns[1], 6)
    whole = whole.reshape(len(whole), prod(whole.shape[1:3]), c, prod(whole.shape[4:6]), d)
    return np.broadcast_to(whole, (g, *whole.shape[1:]))[:, :k, :, :n]


def without_noise(values: np.ndarray) -> np.ndarray:
    """Numbers to 2^-40 of the largest: what is 0, and what is one number in several places, is so whatever order a processor adds in.

    Who verifies a program computes its tables again, maybe on another processor, and compares them bit by bit.
    """
    step = float(np.abs(values).max(initial=0.0)) * 2.0**-40
    return np.round(values / step) * step + 0.0 if step else values


def columns_by_digits(known: np.ndarray, way: Way) -> np.ndarray:
    """What is known of columns [g,n] by digits, [g,n2,n1]; nothing of those that are missing."""
    parts = by_digits(known, way.columns)
    return parts if way.low_column else parts.transpose(0, 2, 1)


def rows_by_digits(known: np.ndarray, way: Way) -> np.ndarray:
    """What is known of rows [g,k] by digits, [g,k1,k2]; nothing of those that are missing."""
    parts = by_digits(known, way.rows)
    return parts.transpose(0, 2, 1) if way.low_row else parts


def by_digits(known: np.ndarray, size: int) -> np.ndarray:
    """[g,i] as [g, i // size, i % size]."""
    blocks = -(-known.shape[1] // size)
    return np.pad(known, ((0, 0), (0, blocks * size - known.shape[1]))).reshape(len(known), blocks, size)
