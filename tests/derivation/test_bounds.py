"""A-priori error bounds: single precision stays within them, and algorithms with greater matrices have greater ones."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.derivation.bounds import UNIT, error_bound, growth, program_bound, roundings
from einnet.derivation.rules.bilinear import bilinear
from einnet.derivation.steps import Derivation, Step
from einnet.expr.evaluate import evaluate
from einnet.expr.nodes import tensors
from einnet.expr.text import parse

SOURCES = {
    "one dimension": ("D : f32[57,7]\nG : weight f32[3,7,5]\nL[h<55,f<5] Σ[c<7,r<3] D[h+r,c]*G[r,c,f]", 21),
    "two dimensions": ("D : f32[13,17,6]\nG : weight f32[3,3,6,4]\nL[h<11,w<15,f<4] Σ[c<6,r<3,s<3] D[h+r,w+s,c]*G[r,s,c,f]", 54),
    "blocks": ("A : f32[34,36]\nB : f32[36,41]\nL[m<34,n<41] Σ[k<36] A[m,k]*B[k,n]", 36),
}


def derivations(text: str) -> list[Derivation]:
    start = parse(text)
    steps = (Step("bilinear", r.parameters, start, r.scope, kind=r.kind, bound=r.bound) for r in bilinear.rewrites(start))
    return [Derivation(start, (step,)) for step in steps]


@pytest.mark.parametrize("name", SOURCES)
def test_single_precision_stays_within(name: str) -> None:
    text, terms = SOURCES[name]
    found = derivations(text)
    assert found
    random = np.random.default_rng(0)
    values = {t.name: random.uniform(-1, 1, t.shape).astype(np.float32) for t in tensors(found[0].start).values()}
    exact = evaluate(found[0].start, values)
    for d in found:
        apart = np.abs(evaluate(d.end, values, "float32").astype(np.float64) - exact).max()
        assert 0 < apart <= error_bound(d) * terms
        assert error_bound(d) > error_bound(Derivation(d.start)) == 2 * roundings(d.start) * UNIT


def test_growth_is_that_of_the_steps() -> None:
    small, large = (d for d in derivations(SOURCES["one dimension"][0]) if d.steps[0].parameters[:6] in ("F(2,3)", "F(6,3)"))
    assert 1 < growth(small) < growth(large) and error_bound(small) < error_bound(large)
    assert growth(Derivation(small.start)) == 1
    assert program_bound([small, small, large]) == pytest.approx(2 * error_bound(small) + error_bound(large))


@pytest.mark.parametrize(("text", "count"), [
    ("L[h<5] A[h]", 0), ("L[h<5] A[h]*B[h] + C[h]", 2), ("L[h<5] Σ[k<7] A[h,k]*B[k]", 8), ("L[h<5] max[k<7] A[h,k]", 0),
    ("L[h<5] relu({L[h<5] Σ[k<7] A[h,k]}[h] + b[h])", 9), ("L[h<5] {L[h<5] Σ[k<7] A[h,k]}[h]/{L[h<5] Σ[k<3] A[h,k]}[h]", 11),
])  # fmt: skip
def test_roundings(text: str, count: int) -> None:
    assert roundings(parse(text)) == count
