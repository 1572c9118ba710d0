"""Tables that are products of smaller ones once their rows and columns are counted by two digits, found by their values alone.

W[k,n] = Σ[r<R] A[k1,n1,n2,r]*B[k1,k2,n2,r], where (k1,k2) and (n1,n2) are digits of k and n: for every k1 and n2 the rest is a matrix of small
rank R. A product with W then takes two sums, over n1 and over (n2,r), in place of one over n. Where A and B are such tables again, so do they.
The transforms of Fourier, cosine transforms, and products of Kronecker are tables of this kind; nothing here knows of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from einnet.expr.values.blas import on_one_thread

MOST_RANK = 4
"""Terms of a factored table."""

ROUNDING = 4e-7
"""How far an element may be from the sum of products, relative to the largest: that of a few numbers rounded to float32."""

LEAST_GAIN = 1.25
"""How many times fewer multiplications a factored table has to take. Its factors may be such tables again, so that little is a beginning."""

LEAST_SIZE = 256
"""Elements of the smallest table, of one g, that is looked at."""

SAMPLE = 10
"""Rows and columns of a matrix by which its rank is judged first."""

GROWTH = 4.0
"""By how much the products of a factored table may exceed its largest element."""

AT_ONCE = 1 << 16
"""Elements of the matrices that are looked at together: they stay in a cache."""

TRIES = 4
"""Ways that are tried in full, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Way:
    """Digits of rows and columns: k by k % rows and k // rows, n likewise; by `low_row` k1 is k % rows, by `low_column` n1 is n % columns."""

    rows: int
    low_row: bool
    columns: int
    low_column: bool


@dataclass(frozen=True, slots=True)
class Factored:
    """W[g,k,c,n,d] = Σ[r] A[g,n2,k1,r,n1,d] * B[g,k1,n2,r,k2,c]; an extent is 1 where a factor does not depend on a digit or on g."""

    way: Way
    first: np.ndarray
    second: np.ndarray
    products: int
    """Multiplications that both sums take for a column of data."""
    error: float
    """The greatest distance of an element from the product, relative to the largest element."""


@on_one_thread
def factored(table: np.ndarray) -> Factored | None:
    """The table W[g,k,c,n,d] as a sum of products of two smaller ones; None where its values are no such sum, or nothing is gained."""
    if table[0].size < LEAST_SIZE or not np.isfinite(table).all() or not table.any():
        return None
    exact = table.astype(np.float64)
    found = sorted(promising(exact), key=lambda pair: pair[1])
    for way, _ in found[:TRIES]:
        pair = split(arranged(exact, way), ROUNDING * float(np.abs(exact).max()))
        if pair is not None:
            return _rounded(exact, way, *pair)
    return None


def gains(found: Factored, table: np.ndarray) -> bool:
    """The factors take fewer products than the table, as they are or in factors again: samples may show a smaller rank than the whole has."""
    whole = int(table[0].size)
    return found.products < whole or _nested_products(found, table.shape) < whole


def factors(found: Factored) -> tuple[np.ndarray, np.ndarray]:
    """A and B as tables: A[g n2,k1,r,n1,d], and B[g k1,k2,c,n2,r] with what it is summed over last."""
    a, b = found.first, found.second
    second = b.transpose(0, 1, 4, 5, 2, 3)
    return a.reshape(-1, *a.shape[2:]), second.reshape(-1, *second.shape[2:])


def _nested_products(found: Factored, shape: tuple[int, ...]) -> int:
    """Multiplications for a column of data and one g, where the factors of factors count."""
    _, k, _, n, _ = shape
    (k1, _), (_, n2) = _digits(k, found.way.rows, found.way.low_row), _digits(n, found.way.columns, found.way.low_column)
    return sum(times * _least_products(table) for times, table in zip((n2, k1), factors(found), strict=True))


def _least_products(table: np.ndarray) -> int:
    """The same of a table, whole or as products."""
    found = factored(table)
    return int(table[0].size) if found is None else min(int(table[0].size), _nested_products(found, table.shape))


def fewest_products(table: np.ndarray) -> float:
    """Multiplications that the table takes in factors, as far as samples tell; infinite where it has none."""
    return min((products for _, (products, _) in promising(table.astype(np.float64))), default=inf)


def promising(table: np.ndarray) -> Iterator[tuple[Way, tuple[int, int]]]:
    """The ways by which samples of a table have a small rank; the multiplications that both sums then take, and the elements of both."""
    _, k, c, n, d = table.shape
    limit = 1e-6 * float(np.abs(table).max())
    each = {way: _digits(k, way.rows, way.low_row) + _digits(n, way.columns, way.low_column) for way in ways(k, n)}
    cost = {way: left * first * (summed * d + rest * c) for way, (first, rest, summed, left) in each.items()}
    most = {way: min(MOST_RANK, int(k * c * n * d / (LEAST_GAIN * cost[way]))) for way in each}
    paying = [way for way in each if most[way]]
    usual = table[min(1, len(table) - 1)]  # waves of the first g are often only signs
    for way in small(usual, paying, [most[way] for way in paying], limit):
        rank = sampled_rank(usual, way, most[way], limit)
        if rank is not None:
            first, rest, summed, left = each[way]
            yield way, (cost[way] * rank, first * rank * (summed * d + left * rest * c))


def small(table: np.ndarray, found: list[Way], most: list[int], limit: float) -> list[Way]:
    """Those ways by which a few elements, at k1 = 0 and one n2, have a small rank: nearly none for a table that is no product."""
    if not found:
        return []
    k, c, n, d = table.shape
    rows, columns = [], []
    for way in found:
        (_, rest), (summed, _) = _digits(k, way.rows, way.low_row), _digits(n, way.columns, way.low_column)
        (k2, part), (n1, other), n2 = _few(rest, c), _few(summed, d), _whole(n, way) // 2
        row = way.rows * k2 if way.low_row else k2
        column = n1 + way.columns * n2 if way.low_column else n2 + way.columns * n1
        rows.append((np.where(row < k, row, 0), part))
        columns.append((np.where(column < n, column, column[0]), other))
    at, along = np.array(rows), np.array(columns)
    blocks = table[at[:, 0, :, None], at[:, 1, :, None], along[:, 0, None, :], along[:, 1, None, :]]
    ranks = (np.linalg.svd(blocks, compute_uv=False) > limit * SAMPLE).sum(axis=1)
    return [way for way, rank, allowed in zip(found, ranks, most) if rank <= allowed]


def _few(extent: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Places among a digit's values and their parts, the same number for every digit."""
    flat = np.arange(SAMPLE) * max(1, extent * parts // SAMPLE) % (extent * parts)
    return flat // parts, flat % parts


def ways(k: int, n: int) -> Iterator[Way]:
    """Digits for rows and columns, of each by what divides it, the other or twice the other: a table may have half of its rows or columns."""
    rows = [m for m in range(2, k) if k % m == 0 or 2 * n % m == 0]
    columns = [m for m in range(2, n) if n % m == 0 or 2 * k % m == 0]
    for r in rows:
        for m in columns:
            for low_row in (True, False):
                for low_column in (False, True):
                    yield Way(r, low_row, m, low_column)


def _digits(extent: int, size: int, low: bool) -> tuple[int, int]:
    """How many values the chosen digit has, and the other."""
    blocks = -(-extent // size)
    return (size, blocks) if low else (blocks, size)


def _whole(extent: int, way: Way) -> int:
    """Values of n2 that have all values of n1 beside them, at least the first: where one is missing, any table has a smaller rank."""
    return max(1, extent // way.columns) if way.low_column else extent - (-(-extent // way.columns) - 1) * way.columns


def _filled(extent: int, way: Way) -> int:
    """Values of n2 that have all values of n1 beside them, or all but one: where few are, a rank is small for want of columns."""
    return max(1, extent // way.columns) if way.low_column else way.columns


def sampled_rank(table: np.ndarray, way: Way, most: int, limit: float) -> int | None:
    """The rank of a few rows and columns at four places (k1,n2); None where it is greater than `most`."""
    k, c, n, d = table.shape
    first, rest = _digits(k, way.rows, way.low_row)
    summed, _ = _digits(n, way.columns, way.low_column)
    rank, filled, whole = 0, _filled(n, way), _whole(n, way)
    for k1, n2 in ((0, whole // 2), (0, filled // 2), (first // 2, filled // 2), (min(1, first - 1), filled - 1)):
        k2, n1 = _spread(rest), _spread(summed)
        rows = k1 + way.rows * k2 if way.low_row else k2 + way.rows * k1
        columns = n1 + way.columns * n2 if way.low_column else n2 + way.columns * n1
        block = table[np.ix_(rows[rows < k], range(c), columns[columns < n], range(d))]
        values = np.linalg.svd(block.reshape(-1, block.shape[2] * d), compute_uv=False)
        rank = max(rank, int((values > limit * max(block.shape)).sum()))
        if rank > most:
            return None
    return max(rank, 1)


def _spread(extent: int) -> np.ndarray:
    """At most ten places: the first ones, and some further on."""
    return np.unique(np.concatenate([np.arange(min(extent, SAMPLE // 2)), np.linspace(0, extent - 1, SAMPLE // 2).astype(int)]))


def arranged(table: np.ndarray, way: Way) -> np.ndarray:
    """The table by digits, [g, k1, n2, k2, c, n1, d]; rows and columns that are missing are 0."""
    g, k, c, n, d = table.shape
    blocks, more = -(-k // way.rows), -(-n // way.columns)
    padded = np.pad(table, ((0, 0), (0, blocks * way.rows - k), (0, 0), (0, more * way.columns - n), (0, 0)))
    parts = padded.reshape(g, blocks, way.rows, c, more, way.columns, d)
    rows = (2, 1) if way.low_row else (1, 2)
    columns = (5, 4) if way.low_column else (4, 5)
    return parts.transpose(0, rows[0], columns[1], rows[1], 3, columns[0], 6)


def split(parts: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray] | None:
    """A[g,n2,k1,r,n1,d] and B[g,k1,n2,r,k2,c] with the fewest terms: A without n2 where there is one, else B without k1, else both; or None."""
    g, k1, n2, k2, c, n1, d = parts.shape
    each = skeleton(parts.reshape(g * k1 * n2, k2 * c, n1 * d), limit)
    if each is None:
        return None
    first = skeleton(parts.reshape(g * k1, n2 * k2 * c, n1 * d), limit)
    if first is not None and first[0].shape[-1] == each[0].shape[-1]:
        left, right = first
        return right.reshape(g, 1, k1, -1, n1, d), left.reshape(g, k1, n2, k2, c, -1).transpose(0, 1, 2, 5, 3, 4)
    turned = skeleton(parts.transpose(0, 2, 3, 4, 1, 5, 6).reshape(g * n2, k2 * c, k1 * n1 * d), limit)
    if turned is not None and turned[0].shape[-1] == each[0].shape[-1]:
        left, right = turned
        across = right.reshape(g, n2, -1, k1, n1, d).transpose(0, 1, 3, 2, 4, 5)
        return across, left.reshape(g, 1, n2, k2, c, -1).transpose(0, 1, 2, 5, 3, 4)
    left, right = each
    return right.reshape(g, k1, n2, -1, n1, d).transpose(0, 2, 1, 3, 4, 5), left.reshape(g, k1, n2, k2, c, -1).transpose(0, 1, 2, 5, 3, 4)


def skeleton(matrices: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Every matrix as a product of a few of its own columns with what they take: [b,rows,r] and [b,r,columns]; None where four are too few."""
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
    """Columns are taken greedily, the one that is furthest from those before it, so that what they take stays small."""
    rest = matrices.copy()
    every = np.arange(len(matrices))
    chosen: list[np.ndarray] = []
    for _ in range(MOST_RANK):
        norms = (rest * rest).sum(axis=1)
        best = norms.argmax(axis=1)
        length = np.sqrt(norms[every, best])
        small = length <= limit * np.sqrt(matrices.shape[1])
        column = np.where(small[:, None], 0.0, rest[every, :, best] / np.where(small, 1.0, length)[:, None])
        chosen.append(np.where(small[:, None], 0.0, matrices[every, :, best]))
        rest -= column[:, :, None] * (column[:, :, None] * rest).sum(axis=1)[:, None, :]
        if np.abs(rest).max() <= limit:
            left = np.stack(chosen, axis=-1)
            return left, solved(left, matrices)
    return None


def solved(left: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """The least squares solution of left @ x = matrices; 0 for columns that are 0."""
    gram = (left[:, :, :, None] * left[:, :, None, :]).sum(axis=1)
    given = np.stack([(left[:, :, r, None] * matrices).sum(axis=1) for r in range(left.shape[-1])], axis=1)
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    return np.asarray((inverse[:, :, :, None] * given[:, None, :, :]).sum(axis=2))


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


def _rounded(table: np.ndarray, way: Way, first: np.ndarray, second: np.ndarray) -> Factored | None:
    """Both factors in float32, without what they do not depend on; None where they are too far from the table, or grow."""
    a, b = (_thin(f.astype(np.float32)) for f in (first, second))
    x, y = a.astype(np.float64), b.astype(np.float64)
    top = float(np.abs(table).max())
    error = float(np.abs(product(way, x, y, table.shape) - table).max()) / top
    growth = float(product(way, np.abs(x), np.abs(y), table.shape).max()) / top
    return Factored(way, a, b, products(first, second), error) if error <= ROUNDING and growth <= GROWTH else None


def products(first: np.ndarray, second: np.ndarray) -> int:
    """Multiplications with A[g,n2,k1,r,n1,d] and then B[g,k1,n2,r,k2,c] for a column of data and one g."""
    return int(first.shape[2] * prod(second.shape[2:4]) * (prod(first.shape[4:]) + prod(second.shape[4:])))


def _thin(factor: np.ndarray) -> np.ndarray:
    """The factor without dimensions (the first two) along which it does not vary."""
    for axis in (0, 1):
        if factor.shape[axis] > 1 and (np.take(factor, [0], axis) == factor).all():
            factor = np.take(factor, [0], axis)
    return factor
