"""Exact matrices of bilinear algorithms (Toom-Cook), with their proof and their error bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from einnet.expr.remember import Hashed, hashed_once

Matrix = tuple[tuple[Fraction, ...], ...]

MAGNITUDES = tuple(map(Fraction, ("1", "1/2", "2", "3/2", "3/4", "1/4", "4", "3", "5/4", "5/8", "3/8", "5/2", "7/4", "7/8")))
"""What evaluation points may be, with either sign: numbers of few binary digits, so that transforms of data have constants that float32 has."""

MOST_PAIRS = 4
"""Pairs of points of which all combinations are looked at; of more the first are taken."""


@hashed_once
@dataclass(frozen=True, slots=True)
class Bilinear(Hashed):
    """y[i] = Σ[p] A[i,p] · (Σ[r] G[p,r] g[r]) · (Σ[a] B[p,a] d[a]), the correlation Σ[r] d[i+r] g[r] for i < m, r < taps."""

    m: int
    taps: int
    A: Matrix
    G: Matrix
    B: Matrix

    @property
    def products(self) -> int:
        """Multiplications of transformed elements: m + taps - 1."""
        return len(self.B)


@lru_cache(maxsize=64)
def toom_cook(m: int, taps: int) -> Bilinear:
    """F(m, taps): the Toom-Cook correlation with m + taps - 1 products, exact and proven.

    Of the sets of evaluation points that hold 0 and ∞, and else a number and its negative, that is taken whose products err least (`spread`) where
    their factors are rounded: of F(4,3), 0, 5/8, -5/8, 3/2, -3/2 and ∞, by half as much as 0, 1, -1, 2, -2 and ∞.

    Raises ValueError where there are too few points.
    """
    n = m + taps - 1
    if m < 1 or taps < 1 or n - 2 > 2 * len(MAGNITUDES):
        raise ValueError(f"no evaluation points for F({m},{taps})")
    sets = list(choices(n - 2))
    spreads = [round(s, 6) for s in spreads_of(m, taps, sets)]
    result = evaluated(m, taps, sets[spreads.index(min(spreads))])
    prove(result)
    return result


def choices(count: int) -> Iterator[tuple[Fraction, ...]]:
    """The sets of so many points, and 0 before them, that are looked at: pairs of a number and its negative, and one more number if need be.

    With -1 there is no point but ∞.
    """
    if count < 0:
        yield ()
        return
    pairs, odd = divmod(count, 2)
    some = combinations(MAGNITUDES, pairs) if pairs <= MOST_PAIRS else [MAGNITUDES[:pairs]]
    for chosen in some:
        symmetric = (Fraction(0), *(sign * p for p in chosen for sign in (1, -1)))
        yield from ((*symmetric, p) for p in MAGNITUDES if p not in chosen) if odd else (symmetric,)


def evaluated(m: int, taps: int, points: tuple[Fraction, ...]) -> Bilinear:
    """F(m, taps) by values of polynomials at m + taps - 2 points, and at ∞."""
    n = m + taps - 1
    b = [_vanishing(points[:k] + points[k + 1 :], n) for k in range(n - 1)] + [_vanishing(points, n)]
    g, a = [], []
    for k, point in enumerate(points):
        scale = Fraction(1)
        for other in points[:k] + points[k + 1 :]:
            scale *= point - other
        g.append(tuple(point**r / scale for r in range(taps)))
        a.append(tuple(point**i for i in range(m)))
    g.append((*(Fraction(0),) * (taps - 1), Fraction(1)))
    a.append((*(Fraction(0),) * (m - 1), Fraction(1)))
    for k in range(n):
        lead = next(v for v in b[k] if v)
        if lead < 0:
            b[k], g[k] = tuple(-v for v in b[k]), tuple(-v for v in g[k])
    return Bilinear(m, taps, tuple(tuple(row[i] for row in a) for i in range(m)), tuple(g), tuple(b))


def _vanishing(roots: tuple[Fraction, ...], length: int) -> tuple[Fraction, ...]:
    """Coefficients of Π (x - root), that of 1 first, with zeros up to a length."""
    found = [Fraction(1)]
    for root in roots:
        found = [high - root * low for high, low in zip((Fraction(0), *found), (*found, Fraction(0)))]
    return (*found, *(Fraction(0),) * (length - len(found)))


def prove(f: Bilinear) -> None:
    """Check the Brent equations Σ[p] A[i,p]·G[p,r]·B[p,a] = [a = i + r] exactly. Raises ArithmeticError where one fails."""
    for i, r, a in product(range(f.m), range(f.taps), range(f.products)):
        total = sum((f.A[i][p] * f.G[p][r] * f.B[p][a] for p in range(f.products)), Fraction(0))
        if total != (a == i + r):
            raise ArithmeticError(f"F({f.m},{f.taps}) fails at i={i}, r={r}, a={a}: {total}")


@lru_cache(maxsize=64)
def growth(f: Bilinear) -> float:
    """What is added up for one output where no operand exceeds 1: max over i of Σ[p] |A[i,p]|·‖G[p]‖₁·‖B[p]‖₁; `taps` in the direct sum."""
    norms = [sum(map(abs, g)) * sum(map(abs, b)) for g, b in zip(f.G, f.B)]
    return float(max(sum(abs(v) * n for v, n in zip(row, norms)) for row in f.A))


def spread(m: int, taps: int, points: Sequence[Fraction]) -> float:
    """The mean square of the error of an output of F(m, taps) by values at these points and ∞, where the factors of the products are rounded by
    chance: max over i of Σ[p] A[i,p]²·‖G[p]‖₂²·‖B[p]‖₂², over that of the direct sum, which is `taps`."""
    return spreads_of(m, taps, [points])[0]


def spreads_of(m: int, taps: int, sets: Sequence[Sequence[Fraction]]) -> list[float]:
    """`spread` by each of some sets of points, all of one size: of a thousand of them numpy computes together what takes it seconds one by one."""
    x = np.array([list(map(float, points)) for points in sets])
    others = [np.delete(x, k, axis=1) for k in range(x.shape[1])]
    scales = [np.prod(x[:, [k]] - rest, axis=1) for k, rest in enumerate(others)]
    data = [np.square(_vanishing_at(roots)).sum(1) for roots in (*others, x)]
    kernel = [*(np.square(x[:, [k]] ** range(taps)).sum(1) / np.square(scale) for k, scale in enumerate(scales)), np.ones(len(x))]
    products = np.array(kernel) * np.array(data)
    out = np.square(x.T[:, :, None] ** range(m)) * products[:-1, :, None]
    total = out.sum(0)
    total[:, -1] += products[-1]
    return [float(s) for s in total.max(1) / taps]


def _vanishing_at(roots: np.ndarray) -> np.ndarray:
    """Coefficients of Π (x - root), that of the highest power first, for each row of roots."""
    found = np.ones((len(roots), 1))
    for root in roots.T:
        found = np.pad(found, ((0, 0), (0, 1))) - root[:, None] * np.pad(found, ((0, 0), (1, 0)))
    return found


@hashed_once
@dataclass(frozen=True, slots=True)
class BlockProduct(Hashed):
    """The product of matrices of blocks: C[i,j] = Σ[p] W[i·b+j, p] · (Σ U[p, i·b+l] X[i,l]) · (Σ V[p, l·b+j] Y[l,j]), all indices below b."""

    blocks: int
    W: Matrix
    U: Matrix
    V: Matrix

    @property
    def products(self) -> int:
        """Products of transformed blocks."""
        return len(self.U)


@lru_cache(maxsize=1)
def strassen() -> BlockProduct:
    """Two by two blocks with seven products instead of eight (Strassen 1969), exact and proven."""
    left = ((1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1))
    right = ((1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1))
    back = ((1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0))
    w, u, v = (tuple(tuple(map(Fraction, row)) for row in rows) for rows in (back, left, right))
    result = BlockProduct(2, w, u, v)
    prove_product(result)
    return result


def prove_product(f: BlockProduct) -> None:
    """Check the Brent equations Σ[p] W[ij,p]·U[p,i'l]·V[p,l'j'] = [i=i'][l=l'][j=j'] exactly. Raises ArithmeticError where one fails."""
    b = range(f.blocks)
    for i, j, row, l, depth, column in product(b, repeat=6):  # noqa: E741
        terms = (f.W[i * f.blocks + j][p] * f.U[p][row * f.blocks + l] * f.V[p][depth * f.blocks + column] for p in range(f.products))
        if sum(terms, Fraction(0)) != (i == row and l == depth and j == column):
            raise ArithmeticError(f"the product of blocks fails at i={i}, j={j}, {row},{l} and {depth},{column}")


@lru_cache(maxsize=8)
def product_growth(f: BlockProduct) -> float:
    """What is added up for one block where no operand exceeds 1: max over ij of Σ[p] |W[ij,p]|·‖U[p]‖₁·‖V[p]‖₁; `blocks` in the direct sum."""
    norms = [sum(map(abs, u)) * sum(map(abs, v)) for u, v in zip(f.U, f.V)]
    return float(max(sum(abs(w) * n for w, n in zip(row, norms)) for row in f.W))
