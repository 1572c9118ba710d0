"""Tables that are products of smaller ones once their rows and columns are counted by two digits, found by their values alone.

W[k,n] = Σ[r<R] A[k1,n1,n2,r]*B[k1,k2,n2,r], where (k1,k2) and (n1,n2) are digits of k and n: for every k1 and n2 the rest is a matrix of small
rank R. A product with W then takes two sums, over n1 and over (n2,r), in place of one over n. Where A and B are such tables again, so do they.
The transforms of Fourier, cosine transforms, and products of Kronecker are tables of this kind; nothing here knows of any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod

import numpy as np

from einnet.expr.values.blas import on_one_thread
from einnet.graph.passes.matrices_apart import LONGEST, NEARLY_HALF
from einnet.graph.passes.table_digits import Way, arranged, columns_by_digits, digit_extents, product, rows_by_digits, without_noise
from einnet.graph.passes.table_samples import LEAST_GAIN, MOST_RANK, largest, promising

ROUNDING = 4e-7
"""How far an element may be from the sum of products, relative to the largest: that of a few numbers rounded to float32."""

LEAST_SIZE = 256
"""Elements of the smallest table, of one g, that is looked at."""

GROWTH = 4.0
"""By how much the products of a factored table may exceed its largest element."""

SHORTEST = 1e-3
"""Columns that are shorter, relative to the longest, say nothing of the others: what is in them may be rounding alone."""

AWKWARD = 1.25
"""How many times dearer a way is that leaves a factor which is no matrix in code, and is not said in digits again."""

AT_ONCE = 1 << 16
"""Elements of the matrices that are looked at together: they stay in a cache."""

TRIES = 4
"""Ways that are tried in full, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Factored:
    """W[g,k,c,n,d] = Σ[r] A[g,n2,k1,r,n1,d] * B[g,k1,n2,r,k2,c] * s[g,n]; an extent is 1 where a factor does not depend on a digit or on g."""

    way: Way
    first: np.ndarray
    second: np.ndarray
    scale: np.ndarray | None
    """By what columns are longer or shorter than others; None where that is not told from the rest."""
    products: int
    """Multiplications that both sums take for a column of data."""
    error: float
    """The greatest distance of an element from the product, relative to the largest element."""


@dataclass(frozen=True, slots=True)
class Part:
    """A factor as a table, and which of its rows [g,k] and columns [g,n] are read at all."""

    table: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


def everything(table: np.ndarray) -> Part:
    """A table that is read as a whole."""
    g, k, _, n, _ = table.shape
    return Part(table, np.ones((g, k), bool), np.ones((g, n), bool))


@dataclass(frozen=True, slots=True)
class Level:
    """A table without the scale s[g,n] of its columns, which are 0 where they are not `known`: what they are there is not asked.

    Those that are not `read` are no part of the table.
    """

    table: np.ndarray
    scale: np.ndarray | None
    known: np.ndarray | None
    read: np.ndarray | None = None

    def there(self, way: Way) -> np.ndarray:
        """What is known of columns by digits, [g, n2, n1]; of those that are missing nothing is."""
        g, _, _, n, _ = self.table.shape
        return columns_by_digits(np.ones((g, n), bool) if self.known is None else self.known, way)


@on_one_thread
def factored(table: np.ndarray, columns: np.ndarray | None = None) -> Factored | None:
    """The table W[g,k,c,n,d] as a sum of products of two smaller ones; None where its values are no such sum, or nothing is gained.

    `columns` [g,n] tells which are read at all; where they are not, W is 0 and the product may be anything.
    """
    top = largest(table) if table[0].size >= LEAST_SIZE else 0.0
    if not isfinite(top) or top == 0:
        return None
    likely = sorted(promising(table, top), key=lambda pair: price(table.shape, *pair))[:TRIES]
    if not likely:
        return None
    exact = table.astype(np.float64)
    found = in_factors(exact, Level(exact, None, columns, columns), likely)
    if found is None or found.first.shape[1] > 1:
        level = leveled(exact, columns)
        better = None if level is None else in_factors(exact, level, likely)
        found = better if better is not None and (found is None or better.first.shape[1] == 1) else found
    return found


def leveled(table: np.ndarray, columns: np.ndarray | None) -> Level | None:
    """The table with columns of one length; None where they are so."""
    length = np.sqrt((table * table).sum(axis=(1, 2, 4)))
    read = columns if columns is not None else np.full((len(table), table.shape[3]), True)
    usual = float(np.median(length[read])) if read.any() else 0.0
    if usual == 0 or (np.abs(length[read] - usual) <= ROUNDING * usual).all():
        return None
    known = read & (length > SHORTEST * float(length.max()))
    scale = np.where(read, length / usual, 1.0)
    level = np.where(known, 1 / np.where(known, scale, 1.0), 0.0)[:, None, None, :, None] * table
    top = float(np.abs(level).max())
    return Level(level / top, scale * top, known, columns)


def in_factors(exact: np.ndarray, level: Level, likely: Sequence[tuple[Way, tuple[int, int]]]) -> Factored | None:
    """The table by factors of what it is without a scale of its columns, in the first of these ways that will do. Samples of the level itself would
    tell less: columns that are 0 there pass for any way."""
    for way, (counted, _) in likely:
        pair = split(arranged(level.table, way), ROUNDING * float(np.abs(level.table).max()), level.there(way))
        if pair is not None:
            made = _rounded(exact, way, *pair, level)
            lied = made is not None and made.products > counted and LEAST_GAIN * _nested_products(made, exact.shape) > exact[0].size
            return None if lied else made
    return None


def price(shape: tuple[int, ...], way: Way, counts: tuple[int, int]) -> tuple[float, int]:
    """By what ways are ordered: the products of both sums, more where a factor is too small to be said in digits again and too large for code."""
    _, k, c, n, d = shape
    (k1, k2), (n1, n2) = digit_extents(k, way.rows, way.low_row), digit_extents(n, way.columns, way.low_column)
    rank = counts[0] // (n2 * k1 * (n1 * d + k2 * c))
    sides = ((k1 * rank * n1 * d, max(k1, n1)), (k2 * c * n2 * rank, max(k2, n2)))
    return counts[0] * (AWKWARD if any(size < LEAST_SIZE and longest > LONGEST for size, longest in sides) else 1.0), counts[1]


def gains(found: Factored, table: np.ndarray) -> bool:
    """The factors take fewer products than the table, as they are or in factors again: samples may show a smaller rank than the whole has."""
    whole = int(table[0].size)
    return found.products < whole or _nested_products(found, table.shape) < whole


def factors(found: Factored, rows: np.ndarray, columns: np.ndarray) -> tuple[Part, Part]:
    """A and B as tables, of a table of which these are read: A[g n2,k1,r,n1,d], and B[g k1,k2,c,n2,r] with what it is summed over last."""
    a, b = found.first, found.second
    second = b.transpose(0, 1, 4, 5, 2, 3)
    k, n = rows_by_digits(rows, found.way), columns_by_digits(columns, found.way)
    return (
        Part(a.reshape(-1, *a.shape[2:]), within(np.asarray(k.any(axis=2))[:, None], a.shape[:2]), within(n, a.shape[:2])),
        Part(second.reshape(-1, *second.shape[2:]), within(k, b.shape[:2]), within(np.asarray(n.any(axis=2))[:, None], b.shape[:2])),
    )


def within(known: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
    """What is read at any of the places that a factor does not tell apart, [g n2, ...]."""
    for axis, extent in enumerate(places):
        if known.shape[axis] != extent:
            known = np.asarray(known.any(axis=axis, keepdims=True) if extent == 1 else np.repeat(known, extent, axis))
    return known.reshape(-1, known.shape[-1])


def _nested_products(found: Factored, shape: tuple[int, ...]) -> int:
    """Multiplications for a column of data and one g, where the factors of factors count."""
    _, k, _, n, _ = shape
    (k1, _), (_, n2) = digit_extents(k, found.way.rows, found.way.low_row), digit_extents(n, found.way.columns, found.way.low_column)
    parts = factors(found, np.ones((1, k), bool), np.ones((1, n), bool))
    return sum(times * _least_products(part.table) for times, part in zip((n2, k1), parts, strict=True))


def _least_products(table: np.ndarray) -> int:
    """The same of a table, whole or as products."""
    found = factored(table)
    return int(table[0].size) if found is None else min(int(table[0].size), _nested_products(found, table.shape))


def split(parts: np.ndarray, limit: float, known: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """A[g,n2,k1,r,n1,d] and B[g,k1,n2,r,k2,c] with the fewest terms: A without n2 where there is one, else B without k1, else both; or None.

    Of which columns something is `known` is given as [g,n2,n1].
    """
    g, k1, n2, k2, c, n1, d = parts.shape
    each = skeleton(parts.reshape(g * k1 * n2, k2 * c, n1 * d), limit)
    if each is None:
        return None
    first = everywhere(parts, limit, known)
    if first is not None and first[0].shape[3] == each[0].shape[-1]:
        return first
    turned = skeleton(parts.transpose(0, 2, 1, 5, 6, 3, 4).reshape(g * n2, k1 * n1 * d, k2 * c), limit)
    if turned is not None and turned[0].shape[-1] == each[0].shape[-1]:
        left, right = turned
        across = left.reshape(g, n2, k1, n1, d, -1).transpose(0, 1, 2, 5, 3, 4)
        return across, right.reshape(g, 1, n2, -1, k2, c)
    left, right = each
    return right.reshape(g, k1, n2, -1, n1, d).transpose(0, 2, 1, 3, 4, 5), left.reshape(g, k1, n2, k2, c, -1).transpose(0, 1, 2, 5, 3, 4)


def everywhere(parts: np.ndarray, limit: float, known: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """A[g,1,k1,r,n1,d], the same for all n2, and B; where some columns of an n2 are not known, B is what the others say."""
    g, k1, n2, k2, c, n1, d = parts.shape
    whole = known.all(axis=(0, 2))
    if not whole.any():
        return None
    found = skeleton(parts[:, :, whole].reshape(g * k1, -1, n1 * d), limit)
    if found is None:
        return None
    left, right = found
    rank = left.shape[-1]
    second = np.zeros((g, k1, n2, rank, k2, c))
    second[:, :, whole] = left.reshape(g, k1, -1, k2, c, rank).transpose(0, 1, 2, 5, 3, 4)
    first = right.reshape(g, k1, rank, n1, d)
    for at in np.flatnonzero(~whole):
        for own in range(g):
            there = np.flatnonzero(known[own, at])
            given = parts[own, :, at][..., there, :].reshape(k1, k2 * c, -1)
            inverse = np.linalg.pinv(first[own][:, :, there].reshape(k1, rank, -1), rcond=1e-6)
            second[own, :, at] = (given @ inverse).reshape(k1, k2, c, rank).transpose(0, 3, 1, 2)
    again = None if whole.all() else skeleton(second.transpose(0, 1, 2, 4, 5, 3).reshape(g * k1, n2 * k2 * c, rank), limit)
    if again is None or again[0].shape[-1] != rank:
        return first[:, None], second
    left, right = again  # rows where digits are 0, which were left out above
    return (right.reshape(g, k1, rank, rank) @ first.reshape(g, k1, rank, n1 * d)).reshape(g, 1, k1, rank, n1, d), left.reshape(
        g, k1, n2, k2, c, rank
    ).transpose(0, 1, 2, 5, 3, 4)


def skeleton(matrices: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Every matrix as a product with a few rows that stand for all of its own: [b,rows,r] and [b,r,columns]; None where four are too few."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for part in np.array_split(matrices, min(len(matrices), -(-matrices.size // AT_ONCE))):
        pair = _skeleton(part, limit)
        if pair is None:
            return None
        found.append(pair)
    rank = max(left.shape[-1] for left, _ in found)
    wide = [(((0, 0), (0, 0), (0, rank - left.shape[-1])), ((0, 0), (0, rank - left.shape[-1]), (0, 0))) for left, _ in found]
    return tuple(np.concatenate([np.pad(pair[n], pads[n]) for pair, pads in zip(found, wide)]) for n in (0, 1))  # type: ignore[return-value]


def _skeleton(matrices: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows at right angles, as long as the first that is taken, and what every row is of them.

    Taken is the first row of which nearly half as much is left as of any: so the factor on the right is as simple as the table is where digits are 0,
    and small numbers are never divided by. Nearly, as just half is left where waves are a sixth of a turn apart, and rounding would decide.
    """
    rest = matrices.copy()
    every = np.arange(len(matrices))
    length: np.ndarray | None = None
    units: list[np.ndarray] = []
    for _ in range(MOST_RANK):
        norms = (rest * rest).sum(axis=2)
        top = norms.max(axis=1, keepdims=True)
        best = (norms >= NEARLY_HALF**2 * top).argmax(axis=1)
        own = np.sqrt(norms[every, best])
        small = own <= limit * np.sqrt(matrices.shape[2])
        length = own if length is None else length
        units.append(np.where(small[:, None], 0.0, rest[every, best] / np.where(small, 1.0, own)[:, None]))
        rest -= (rest * units[-1][:, None, :]).sum(axis=2)[:, :, None] * units[-1][:, None, :]
        if np.abs(rest).max() <= limit:
            right = np.stack(units, axis=1)
            left = np.einsum("brn,bun->bru", matrices, right)
            return left / np.where(length > 0, length, 1.0)[:, None, None], right * length[:, None, None]
    return None


def whole(found: Factored, shape: tuple[int, ...]) -> np.ndarray:
    """The table W[g,k,c,n,d] that its factors say."""
    made = product(found.way, found.first.astype(np.float64), found.second.astype(np.float64), shape)
    return made if found.scale is None else made * found.scale.astype(np.float64)[:, None, None, :, None]


def _rounded(table: np.ndarray, way: Way, first: np.ndarray, second: np.ndarray, level: Level) -> Factored | None:
    """Both factors in float32, without what they do not depend on; None where they are too far from the table, or grow."""
    a, b = (_thin(without_noise(f).astype(np.float32)) for f in (first, second))
    x, y = a.astype(np.float64), b.astype(np.float64)
    top = float(np.abs(table).max())
    s = None if level.scale is None else without_noise(level.scale).astype(np.float32)
    columns = 1.0 if s is None else s.astype(np.float64)[:, None, None, :, None]
    read = 1.0 if level.read is None else level.read[:, None, None, :, None]
    error = float(np.abs(read * (columns * product(way, x, y, table.shape) - table)).max()) / top
    growth = float((columns * product(way, np.abs(x), np.abs(y), table.shape)).max()) / top
    return Factored(way, a, b, s, products(first, second), error) if error <= ROUNDING and growth <= GROWTH else None


def products(first: np.ndarray, second: np.ndarray) -> int:
    """Multiplications with A[g,n2,k1,r,n1,d] and then B[g,k1,n2,r,k2,c] for a column of data and one g."""
    return int(first.shape[2] * prod(second.shape[2:4]) * (prod(first.shape[4:]) + prod(second.shape[4:])))


def _thin(factor: np.ndarray) -> np.ndarray:
    """The factor without dimensions (the first two) along which it does not vary."""
    for axis in (0, 1):
        if factor.shape[axis] > 1 and (np.take(factor, [0], axis) == factor).all():
            factor = np.take(factor, [0], axis)
    return factor
