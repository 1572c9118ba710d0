"""Exact matrices of bilinear algorithms (Toom-Cook), with their proof and their error bounds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

Matrix = tuple[tuple[Fraction, ...], ...]

POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "4", "-4", "1/4", "-1/4")))
"""Evaluation points in the order in which they are taken: small numerators and denominators keep rounding errors small. The last point is ∞."""


@dataclass(frozen=True, slots=True)
class Bilinear:
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

    Raises ValueError where the points do not suffice.
    """
    n = m + taps - 1
    if m < 1 or taps < 1 or n - 1 > len(POINTS):
        raise ValueError(f"no evaluation points for F({m},{taps})")
    points = POINTS[: n - 1]
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
    result = Bilinear(m, taps, tuple(tuple(row[i] for row in a) for i in range(m)), tuple(g), tuple(b))
    prove(result)
    return result


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


def growth(f: Bilinear) -> float:
    """What is added up for one output where no operand exceeds 1: max over i of Σ[p] |A[i,p]|·‖G[p]‖₁·‖B[p]‖₁; `taps` in the direct sum."""
    norms = [sum(map(abs, g)) * sum(map(abs, b)) for g, b in zip(f.G, f.B)]
    return float(max(sum(abs(v) * n for v, n in zip(row, norms)) for row in f.A))


@dataclass(frozen=True, slots=True)
class BlockProduct:
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


def product_growth(f: BlockProduct) -> float:
    """What is added up for one block where no operand exceeds 1: max over ij of Σ[p] |W[ij,p]|·‖U[p]‖₁·‖V[p]‖₁; `blocks` in the direct sum."""
    norms = [sum(map(abs, u)) * sum(map(abs, v)) for u, v in zip(f.U, f.V)]
    return float(max(sum(abs(w) * n for w, n in zip(row, norms)) for row in f.W))
