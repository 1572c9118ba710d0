"""Weights of generated sums lie in the order in which they are read, whatever order a model has them in; what they compute is the same."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.nodes import Read, Tensor, reads, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator
from einnet.instantiate.weight_order import in_order

X = "X : f32[9,9,48]\n"
GROUPED = X + "W : weight f32[48,8,3,3]\nL[h<9,w<9,f<48] Σ[c<8,r<3,s<3] X[h+r-1,w+s-1,8*(f//8)+c]*W[f,c,r,s]"
CASES = {
    "groups": (GROUPED, "L[block<6,i1<8,i2<3,i3<3,lane<8] W[8*block+lane,i1,i2,i3]"),
    "each channel": (X + "W : weight f32[48,3,3]\nL[h<9,w<9,c<48] Σ[r<3,s<3] X[h+r-1,w+s-1,c]*W[c,r,s]",
                     "L[block<3,i1<3,i2<3,lane<16] W[16*block+lane,i1,i2]"),
    "no whole block": (
        "X : f32[9,9,36]\nW : weight f32[36,3,3]\nL[h<9,w<9,c<36] Σ[r<3,s<3] X[h+r-1,w+s-1,c]*W[c,r,s]", "L[i1<3,i2<3,i0<36] W[i0,i1,i2]"),
    "another order of the sum": (X + "W : weight f32[48,3,3]\nL[h<9,w<9,c<48] Σ[s<3,r<3] X[h+r-1,w+s-1,c]*W[c,r,s]",
                                 "L[block<3,i2<3,i1<3,lane<16] W[16*block+lane,i1,i2]"),
    "with another loop": (X + "W : weight f32[48,3,9]\nL[h<9,w<9,c<48] Σ[r<3] X[h+r-1,w,c]*W[c,r,h]",
                          "L[block<3,i2<9,i1<3,lane<16] W[16*block+lane,i1,i2]"),
    "of an extent of 1": (X + "W : weight f32[1,48,3]\nL[h<9,w<9,c<48] Σ[r<3] X[h+r-1,w,c]*W[0,c,r]",
                          "L[block<3,i0<1,i2<3,lane<16] W[i0,16*block+lane,i2]"),
    "computed of weights": (X + "V : weight f32[48,3]\nL[h<9,w<9,c<48] Σ[r<3] X[h+r-1,w,c]*{L[c<48,r<3] V[c,r] + 1}[c,r]",
                            "L[block<3,i1<3,lane<16] {L[c<48,r<3] V[c,r] + 1}[16*block+lane,i1]"),
}  # fmt: skip
KEPT = {
    "in order": X + "W : weight f32[3,3,48]\nL[h<9,w<9,c<48] Σ[r<3,s<3] X[h+r-1,w+s-1,c]*W[r,s,c]",
    "no sum": X + "W : weight f32[48,9]\nL[h<9,w<9,c<48] X[h,w,c]*W[c,h]",
    "no weights": X + "W : f32[48,3,3]\nL[h<9,w<9,c<48] Σ[r<3,s<3] X[h+r-1,w+s-1,c]*W[c,r,s]",
    "a long sum along them": X + "W : weight f32[16,48]\nL[h<9,w<9,f<16] Σ[c<48] X[h,w,c]*W[f,c]",
    "not read along the lanes": X + "W : weight f32[9,3]\nL[h<9,w<9,c<48] Σ[r<3] X[h+r-1,w,c]*W[w,r]",
    "a sum of two iterators": X + "W : weight f32[50,3]\nL[h<9,w<9,c<48] Σ[r<3] X[h,w,c]*W[c+r,r]",
    "few lanes": "X : f32[9,9,3]\nW : weight f32[3,3]\nL[h<9,w<9,c<3] Σ[r<3] X[h+r-1,w,c]*W[c,r]",
}


@pytest.mark.parametrize("name", CASES)
def test_weights_are_laid_in_the_order_of_the_sum(name: str) -> None:
    text, wanted = CASES[name]
    scope = parse(text)
    found = build(scope, {}, "out")
    (laid,) = found.weights.values()
    assert laid.text().splitlines()[-1] == wanted
    (kernel,) = found.kernels
    assert isinstance(kernel, EOperator)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(t.shape) for n, t in tensors(scope).items()}
    held = {n: evaluate(s, given) for n, s in found.weights.items()}
    assert np.array_equal(evaluate(kernel.scope, {**given, **held}), evaluate(scope, given))


@pytest.mark.parametrize("name", KEPT)
def test_weights_that_gain_nothing_stay(name: str) -> None:
    scope = parse(KEPT[name])
    assert all(in_order(r, scope) is None for r in reads(scope.body))


def test_a_table_whose_numbers_are_in_the_code_stays() -> None:
    scope = parse(CASES["each channel"][0])
    (r,) = [r for r in reads(scope.body) if isinstance(r.base, Tensor) and r.base.weight]
    assert isinstance(r.base, Tensor)
    table = Tensor(r.base.name, r.base.shape, "f32", True, (1,) * 432)
    assert in_order(Read(table, r.index, r.fill), scope) is None
    assert in_order(r, scope) is not None
