"""Tables of many places that are one small matrix for all of them, beside a factor for each place; found by their values alone.

W[g,k,c,n,d] = Σ[e] B[k,c,n,e]*T[g,n,e,d], or = Σ[e] T[g,k,c,e]*B[k,e,n,d]*s[g,n]. A stage of a transform by W takes a dense product for every g, and
reads all of W. By B, which is the same everywhere and small enough to be written into code, it takes few additions, and T is read once.
The stages of Fourier's transform are such tables, B the transform of a few numbers and T what is called twiddles; nothing here knows of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from einnet.expr.constant_matrices import TABLE_SIZE, factored
from einnet.expr.values.blas import on_one_thread
from einnet.graph.passes.table_digits import without_noise

MOST_PARTS = 2
"""Values of e: numbers as they are, or pairs."""

LONGEST = 8
"""The largest dimension k or n of B: generated code writes out no larger one, as none of more elements than `TABLE_SIZE`."""

NEAREST = 3e-6
"""How far an element of B may be from a number that it is taken for: B is the mean of what many elements, each of them rounded, say of it."""

STEPS = 48
"""An element near a multiple of one part in so many is that: 0, 1/2 and 1 have to be exact, as products with them are cheap."""

LEAST = 1e-6
"""Relative to the largest, singular values below are 0."""

NEARLY_HALF = 0.45
"""Of the longest that is left, what may be taken for it."""

LEAST_GAIN = 1.1
"""How many times fewer steps B and T have to take than W."""


@dataclass(frozen=True, slots=True)
class Apart:
    """W as B[k,c,n,e] and T[g,n,e,d], or if `behind` as T[g,k,c,e], B[k,e,n,d] and s[g,n], None where it is 1."""

    matrix: np.ndarray
    factor: np.ndarray
    behind: bool
    scale: np.ndarray | None = None


@on_one_thread
def matrix_apart(table: np.ndarray, limit: float, rows: np.ndarray | None = None, columns: np.ndarray | None = None) -> Apart | None:
    """The table W[g,k,c,n,d] by one matrix, no element further off than `limit`; None where it is no such table, or nothing is gained.

    `rows` [g,k] and `columns` [g,n] tell which are read at all; what the others are is free.
    """
    places, k, c, n, d = table.shape
    if places < 2 or max(k, n) > LONGEST or k * c * n * d > TABLE_SIZE * MOST_PARTS or not np.isfinite(table).all() or not table.any():
        return None
    exact = table.astype(np.float64)
    rows = np.ones((places, k), bool) if rows is None else rows
    columns = np.ones((places, n), bool) if columns is None else columns
    read = rows[:, :, None, None, None] & columns[:, None, None, :, None]
    best, least = None, k * c * n * d / LEAST_GAIN
    for found in (*before(exact, limit, rows, columns), *behind(exact, limit, rows, columns)):
        matrix, factor, scale = found.matrix, found.factor, found.scale
        near = matrix.size <= TABLE_SIZE and float((np.abs(whole(found) - exact) * read).max()) <= limit
        taken = steps(matrix) + factor[0].size + (0 if scale is None else scale[0].size * d) if near else inf
        if taken < least:
            best, least = found, taken
    return best


def is_short(table: np.ndarray) -> bool:
    """A table W[1,k,c,n,d] that is such a matrix itself, with sums to share."""
    _, k, c, n, d = table.shape
    matrix = rounded(table[0])
    return max(k, n) <= LONGEST and matrix.size <= TABLE_SIZE and LEAST_GAIN * steps(matrix) <= k * c * n * d


def whole(found: Apart) -> np.ndarray:
    """The table W[g,k,c,n,d] as it is computed, with factors in float32."""
    factor = found.factor.astype(np.float32).astype(np.float64)
    matrix = found.matrix.astype(np.float32).astype(np.float64)
    if not found.behind:
        return np.asarray(np.einsum("kcne,gned->gkcnd", matrix, factor))
    made = np.asarray(np.einsum("gkce,kend->gkcnd", factor, matrix))
    return made if found.scale is None else made * found.scale.astype(np.float32).astype(np.float64)[:, None, None, :, None]


def steps(matrix: np.ndarray) -> int:
    """What the matrix takes where sums are shared."""
    rows = matrix.reshape(prod(matrix.shape[:2]), -1)
    return factored(tuple(tuple(map(float, row)) for row in rows)).steps


def before(table: np.ndarray, limit: float, rows: np.ndarray, columns: np.ndarray) -> Iterator[Apart]:
    """B[k,c,n,e]*T[g,n,e,d]: for every n the rows (k,c) of W are combinations of a few."""
    n, d = table.shape[3:]
    if d == 1 or d > MOST_PARTS:
        return
    for turned in (False, True):
        found = [spanned(table[:, :, :, at].transpose(1, 2, 0, 3), (rows & columns[:, at, None]).T, limit, turned) for at in range(n)]
        if all(pair is not None for pair in found):
            matrix, factor = stacked([pair for pair in found if pair is not None])
            yield Apart(rounded(matrix.transpose(1, 2, 0, 3)), without_noise(factor.transpose(1, 0, 2, 3)), behind=False)


def behind(table: np.ndarray, limit: float, rows: np.ndarray, columns: np.ndarray) -> Iterator[Apart]:
    """T[g,k,c,e]*B[k,e,n,d]*s[g,n]: without the lengths of columns, these are combinations of a few for every k."""
    k, c = table.shape[1:3]
    if c > MOST_PARTS:
        return
    length = np.sqrt((table * table).sum(axis=(1, 2, 4)))
    told = columns & (length > limit)
    if not told.any():
        return
    usual = float(np.median(length[told]))
    same = bool((np.abs(length[columns] - usual) <= NEAREST * usual).all())
    scale = np.ones_like(length) if same else np.where(told, length / usual, 0.0)
    level = table / np.where(told, scale, 1.0)[:, None, None, :, None]
    known = columns if same else told
    for turned in (False, True):
        found = [spanned(level[:, at].transpose(2, 3, 0, 1), (known & rows[:, at, None]).T, limit / float(scale.max()), turned) for at in range(k)]
        if all(pair is not None for pair in found):
            matrix, factor = stacked([pair for pair in found if pair is not None])
            turns = without_noise(factor.transpose(1, 0, 3, 2))
            yield Apart(rounded(matrix.transpose(0, 3, 1, 2)), turns, behind=True, scale=None if same else without_noise(scale))


def stacked(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients [i,rows,parts,e] and bases [i,g,e,t], those of fewer e with zeros."""
    most = max(1, *(basis.shape[1] for _, basis in pairs))
    wide = [most - basis.shape[1] for _, basis in pairs]
    coefficients = [np.pad(own, ((0, 0), (0, 0), (0, more))) for (own, _), more in zip(pairs, wide)]
    bases = [np.pad(basis, ((0, 0), (0, more), (0, 0))) for (_, basis), more in zip(pairs, wide)]
    return np.stack(coefficients), np.stack(bases)


def spanned(vectors: np.ndarray, known: np.ndarray, limit: float, turned: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """V[i,s,g,t] as Σ[e] C[i,s,e]*T[g,e,t], of few e, where `known` [i,g] says; None where there are more, or too little is known to tell.

    T is what most i say, at every g that all of them know, as it is or `turned` to right angles; what it is at other g, and what C is of other i,
    follows from that.
    """
    count, parts, places, width = vectors.shape
    usual = known.mean(axis=1) > 0.5 * known.mean(axis=1).max(initial=0.0)
    full = known[usual].all(axis=0)
    if not full.any():
        return None
    found = combined(vectors[usual][:, :, full].reshape(int(usual.sum()) * parts, -1), limit, turned)
    if found is None:
        return None
    basis, given = found
    size = len(basis)
    coefficients, factor = np.zeros((count, parts, size)), np.zeros((places, size, width))
    coefficients[usual] = given.reshape(-1, parts, size)
    factor[full] = basis.reshape(size, -1, width).transpose(1, 0, 2)
    for g in np.flatnonzero(~full):
        own = usual & known[:, g]
        factor[g] = np.linalg.pinv(coefficients[own].reshape(-1, size), rcond=LEAST) @ vectors[own][:, :, g].reshape(-1, width)
    for i in np.flatnonzero(~usual):
        there = factor[known[i]].transpose(1, 0, 2).reshape(size, -1)
        coefficients[i] = vectors[i][:, known[i]].reshape(parts, -1) @ np.linalg.pinv(there, rcond=LEAST)
    return coefficients, factor


def combined(vectors: np.ndarray, limit: float, turned: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """A few of the vectors, and what of them all are; or if `turned` these at right angles, as long as the first. None where they are too many.

    Taken is the first of which nearly half as much is left as of any.
    """
    rest, small = vectors.copy(), limit * np.sqrt(vectors.shape[1])
    basis: list[np.ndarray] = []
    length = 0.0
    while True:
        norms = np.linalg.norm(rest, axis=1)
        if norms.max() <= small:
            break
        if len(basis) == MOST_PARTS:
            return None
        first = int((norms >= NEARLY_HALF * norms.max()).argmax())
        length = length or float(norms[first])
        unit = rest[first] / float(norms[first])
        basis.append(length * unit if turned else vectors[first])
        rest = rest - np.outer(rest @ unit, unit)
    held = np.array(basis).reshape(len(basis), vectors.shape[1])
    return held, vectors @ np.linalg.pinv(held, rcond=LEAST) if len(held) else np.zeros((len(vectors), 0))


def rounded(matrix: np.ndarray) -> np.ndarray:
    """The matrix with elements of one magnitude that differ by rounding alone as one number, a short one where that is as near."""
    made = matrix.copy()
    size = np.abs(matrix).ravel()
    order = np.argsort(size)
    groups = np.split(order, np.flatnonzero(np.diff(size[order]) > NEAREST) + 1)
    for group in groups:
        mean = float(size[group].mean())
        short = round(mean * STEPS) / STEPS
        made.ravel()[group] = np.sign(matrix.ravel()[group]) * (short if abs(short - mean) <= NEAREST else mean)
    return made + 0.0  # no -0
