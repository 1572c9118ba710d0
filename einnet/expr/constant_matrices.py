"""Constant matrices applied to values with few operations: sums that several rows share are computed once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import isfinite

Matrix = tuple[tuple[float, ...], ...]
Terms = tuple[tuple[int, float], ...]
"""Σ coefficient·x[n], as pairs (n, coefficient)."""


TABLE_SIZE = 256
"""Constant operands up to this many elements become literals where they are read at known indices."""

SHORT = 1 << 12
"""Numbers whose denominator is a power of two up to here are short, and so are their products in single precision."""


@dataclass(frozen=True, slots=True)
class LinearMap:
    """y[i] = Σ rows[i] over x[0], ..., x[columns-1] and the shared sums, the k-th of which is x[columns+k]."""

    columns: int
    shared: tuple[Terms, ...]
    rows: tuple[Terms, ...]

    @property
    def steps(self) -> int:
        """Additions, a product that is added being one, and products that are added to nothing."""
        return sum(len(terms) - 1 + all(abs(c) != 1.0 for _, c in terms) for terms in (*self.shared, *self.rows) if terms)


@lru_cache(maxsize=1024)
def factored(matrix: Matrix) -> LinearMap:
    """The matrix as a linear map in which a two-term sum that stands in several rows, up to a factor, is shared; most frequent ones first.

    Where all elements have few binary digits, all coefficients have: what is exact without sharing is exact with it.
    """
    rows = [{n: c for n, c in enumerate(row) if c} for row in matrix]
    columns = len(matrix[0]) if matrix else 0
    shared: list[Terms] = []
    digital = all(short(c) for row in matrix for c in row)
    while True:
        found: Counter[tuple[int, int, float]] = Counter()
        whole: Counter[tuple[int, int, float]] = Counter()
        for row in rows:
            for i, j in permutations(row, 2):
                pair = (i, j, row[j] / row[i])
                if digital and not short(pair[2]):
                    continue
                found[pair] += 1
                whole[pair] += abs(row[i]) == 1.0
        best = max(found, key=lambda pair: (found[pair], whole[pair], abs(pair[2]) == 1.0, -pair[0], -pair[1]), default=None)
        if best is None or found[best] < 2:
            return LinearMap(columns, tuple(shared), tuple(tuple(sorted(row.items())) for row in rows))
        i, j, ratio = best
        for row in rows:
            if i in row and j in row and row[j] / row[i] == ratio:
                row[columns + len(shared)] = row.pop(i)
                del row[j]
        shared.append(((i, 1.0), (j, ratio)))


def short(x: float) -> bool:
    """A number of few binary digits."""
    if not isfinite(x):
        return False
    numerator, denominator = x.as_integer_ratio()
    return denominator <= SHORT and abs(numerator) <= SHORT * denominator
