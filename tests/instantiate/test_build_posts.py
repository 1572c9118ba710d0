"""Which pointwise tails go into the vendor kernel before them, and that results are right whether they do or not."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.matching.tables import MATMUL
from einnet.instantiate.matching.types import Match
from tests.instantiate.numpy_kernels import integers, run

DECLARED = (
    "A : f32[4,3]\nB : weight f32[3,6]\nR : f32[4,6]\nT : f32[6,4]\nb : f32[6]\nc : f32[4]\nz : f32[24]\n"
    "w : weight f32[3]\nV : weight f32[2,6]\n"
)
PRODUCT = "{L[m<4,n<6] Σ[k<3] A[m,k]*B[k,n]}"
SEPARATE = None

TAILS: dict[str, tuple[str, ...] | None] = {
    "L[m<4,n<6] @[m,n] + b[n]": ("add",),
    "L[m<4,n<6] @[m,n] + c[m]": ("add",),
    "L[m<4,n<6] relu(@[m,n] + R[m,n])": ("add", "relu"),
    "L[m<4,n<6] @[m,n] + T[n,m]": ("add",),
    "L[m<4,n<6] @[m,n]*b[n] + c[m]": ("mul", "add"),
    "L[m<4,n<6] relu(@[m,n] + b[n])*2 - 1": ("add", "relu", "linear", "linear"),
    "L[m<4,n<6] min(max(@[m,n], 0), 6)": ("clip",),
    "L[m<4,n<6] tanh(@[m,n])": ("tanh",),
    "L[m<4,n<6] sigmoid(@[m,n])": ("sigmoid",),
    "L[m<4,n<6] -@[m,n]": ("linear",),
    "L[a<24] @[a//6,a%6] + z[a]": ("add",),
    "L[a<2,c'<2,n<6] @[2*a+c',n] + R[2*a+c',n]": ("add",),
    "L[2<=m<6,n<6] @[m-2,n] + R[m-2,n]": ("add",),
    "L[m<4,n<6] @[m,n] + {L[m<4] Σ[k<3] A[m,k]}[m]": ("add",),
    "L[m<4,n<6] @[m,n] + {L[n<6] Σ[k<3] B[k,n]}[n]": ("add",),
    "L[a<6,e<4] relu(@[0,4*a+e])": SEPARATE,
    "L[a<6,e<4] relu(@[a//2,e+4*(a%2)])": SEPARATE,
    "L[m<3,n<6] relu(@[m,n])": SEPARATE,
    "L[m<4,n<6] relu(@[m-1,n])": SEPARATE,
    "L[m<4,n<6] @[3-m,n]": SEPARATE,
    "L[m<4,n<6] @[m,n] + R[3-m,n]": SEPARATE,
    "L[m<4,n<6] @[m,n] + R[m-1,n]": SEPARATE,
    "L[m<4,n<6] @[m,n] + R[m,n]|1": SEPARATE,
    "L[m<4,n<6] (@[m,n] + R[m,n])*(R[m,n] + 1)": SEPARATE,
    "L[m<4,n<6] @[m,n] + @[m,n]": SEPARATE,
    "L[m<4,n<6] @[m,n] + @[m,5-n]": SEPARATE,
    "L[m<4,n<6] max(min(@[m,n], 2), -1)": ("clip",),
    "L[m<4,n<6] exp(@[m,n])": SEPARATE,
    "L[n<6,m<4] relu(@[m,n])": SEPARATE,
    "L[m<4,f<3,h<2] relu(@[m,2*f+h] + w[f])": ("add", "relu"),
    "L[m<4,n<6] @[m,n]*w[n//2]": ("mul",),
    "L[m<4,n<6] @[m,n] + w[n-2]": ("add",),
    "L[m<4,n<6] @[m,n] + w[n//2]|1": SEPARATE,
    "L[m<4,n<6] @[m,n] + b[n//2]": SEPARATE,
    "L[m<4,n<6] @[m,n] + V[m//2,n]": SEPARATE,
}


@pytest.mark.parametrize("tail", TAILS)
def test_tail(tail: str) -> None:
    product = parse(DECLARED + PRODUCT[1:-1])
    vendor = MATMUL.match(product)
    assert isinstance(vendor, Match)
    tree = parse(DECLARED + tail.replace("@", PRODUCT))
    kernels = build(tree, {product: vendor}, "out").kernels
    posts = [tuple(p.kind for p in k.post) for k in kernels if not isinstance(k, EOperator)]
    assert posts == [TAILS[tail] or ()]
    assert isinstance(kernels[-1], EOperator) == (TAILS[tail] is SEPARATE)
    values = integers(tree)
    np.testing.assert_allclose(run(tree, {product: vendor}, values), evaluate(tree, values), rtol=1e-12)


def test_an_epilogue_that_cannot_be_absorbed_leaves_no_kernel_behind() -> None:
    """The first operand could be computed into a buffer, the second has no window: neither is."""
    product = parse(DECLARED + PRODUCT[1:-1])
    vendor = MATMUL.match(product)
    assert isinstance(vendor, Match)
    tree = parse(DECLARED + f"L[m<4,n<6] {PRODUCT}[m,n] + {{L[m<4] Σ[k<3] relu(A[m,k])}}[m] + R[3-m,n]")
    made = build(tree, {product: vendor}, "out")
    assert [type(k).__name__ for k in made.kernels] == ["Matmul", "EOperator"]
    read = {v.buffer for k in made.kernels if isinstance(k, EOperator) for _, v in k.operands}
    assert set(made.temporaries) <= read
