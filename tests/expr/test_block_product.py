"""Products of blocks: proven by the Brent equations, wrong ones not, and float32 errors within the bound of their matrices' norms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from einnet.expr.algebra import product_growth, prove_product, strassen


def test_seven_products_of_two_by_two_blocks() -> None:
    f = strassen()
    assert (f.blocks, f.products) == (2, 7) and product_growth(f) == 12.0
    prove_product(f)


@pytest.mark.parametrize("which", ["U", "V", "W"])
def test_every_wrong_coefficient_is_noticed(which: str) -> None:
    f = strassen()
    rows = getattr(f, which)
    for n, row in enumerate(rows):
        for k in range(len(row)):
            changed = (*rows[:n], (*row[:k], row[k] + 1, *row[k + 1 :]), *rows[n + 1 :])
            with pytest.raises(ArithmeticError, match="the product of blocks fails"):
                prove_product(replace(f, **{which: changed}))


def test_the_error_in_float32_is_within_the_bound() -> None:
    """|error| <= growth · (size of a sum) · unit roundoff · max|x| · max|y|."""
    f, random, size = strassen(), np.random.default_rng(0), 64
    u, v, w = (np.array(m, dtype=np.float32) for m in (f.U, f.V, f.W))
    x, y = (random.uniform(-1, 1, (2, size, 2, size)).astype(np.float32) for _ in range(2))
    left = np.einsum("pil,iklm->pkm", u.reshape(7, 2, 2), x.transpose(0, 1, 2, 3))
    right = np.einsum("plj,lkjm->pkm", v.reshape(7, 2, 2), y)
    got = np.einsum("ijp,pkm->ikjm", w.reshape(2, 2, 7), left @ right).reshape(2 * size, 2 * size)
    wanted = x.astype(np.float64).reshape(2 * size, 2 * size) @ y.astype(np.float64).reshape(2 * size, 2 * size)
    error = np.abs(got - wanted).max()
    assert 0 < error <= product_growth(f) * 2 * size * np.finfo(np.float32).eps * np.abs(x).max() * np.abs(y).max()
