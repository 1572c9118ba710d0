"""Parts of a sum are added by the sum that reads them, in one kernel; what is added otherwise is stored as before."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.matching.tables import BATCHED_MATMUL
from einnet.instantiate.matching.types import Match
from tests.instantiate.numpy_kernels import integers, run

DECLARED = "A : f32[4,5,6]\nB : weight f32[4,6,3,7]\nC : f32[9]\n"
PRODUCT = "{L[p<4,m<5,r<3,n<7] Σ[k<6] A[p,m,k]*B[p,k,r,n]}"
ADDED = f"{{L[r<3,m<5,n<7] Σ[p<4] {PRODUCT}[p,m,r,n]}}"

READERS = {
    f"L[h<7,n<7] Σ[r<3] {ADDED}[r,h-r,n]": 1,
    f"L[h<7,n<7] relu({{L[h<7,n<7] Σ[r<3] {ADDED}[r,h-r,n]}}[h,n] + C[h])": 1,
    f"L[h<5,n<7] Σ[r<3] {ADDED}[r,h,n]*C[h+r]": 1,
    f"L[h<5,n<7] relu({ADDED}[1,h,n])": 1,
    f"L[h<7,n<7] max[r<3] {ADDED}[r,h-r,n]": 2,
    f"L[h<7,n<7] Σ[r<3] {{L[r<3,m<5,n<7] Σ[p<3] {PRODUCT}[p+1,m,r,n]}}[r,h-r,n]": 2,
    f"L[h<7,n<7] Σ[r<3] {{L[r<3,m<5,n<7] Σ[p<3] {PRODUCT}[p,m+p-1,r,n]}}[r,h-r,n]": 2,
}


@pytest.mark.parametrize("text", READERS)
def test_parts_are_added_where_they_are_read(text: str) -> None:
    product = parse(DECLARED + PRODUCT[1:-1])
    vendor = BATCHED_MATMUL.match(product)
    assert isinstance(vendor, Match)
    tree = parse(DECLARED + text)
    made = build(tree, {product: vendor}, "out")
    assert sum(isinstance(k, EOperator) for k in made.kernels) == READERS[text]
    values = integers(tree)
    np.testing.assert_array_equal(run(tree, {product: vendor}, values), evaluate(tree, values))
