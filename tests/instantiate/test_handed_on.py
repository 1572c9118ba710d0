"""A product, a softmax of it and a product with that as one kernel, beside products of libraries: what is taken for it, and what it computes."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.nodes import Scope, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import Build, builds
from einnet.instantiate.kernels import EOperator, Matmul
from einnet.instantiate.row_fusion import handed_on, is_product
from einnet.search.forms import Form
from einnet.search.space import Options, Space
from tests.instantiate.test_joint import computed

DECLARED = """X : f32[6,8]
Q : weight f32[8,12]
K : weight f32[8,12]
V : weight f32[8,12]
O : weight f32[12,8]
"""
PROJECTED = "{{L[m<6,n<12] Σ[k<8] X[m,k]*{0}[k,n]}}"
SCORES = f"{{L[c<3,h<6,v<6] Σ[k<4] {PROJECTED.format('Q')}[h,4*c+k]*{PROJECTED.format('K')}[v,4*c+k]}}"
TOP = "{L[c<3,h<6] max[v<6] SCORES[c,h,v]}"
RAISED = "{L[c<3,h<6,v<6] exp(SCORES[c,h,v] - TOP[c,h])}"
SOFTMAX = "{L[c<3,h<6,v<6] RAISED[c,h,v]/{L[c<3,h<6] Σ[v<6] RAISED[c,h,v]}[c,h]}"
VALUES = f"{{L[c<3,h<6,w<4] Σ[v<6] WEIGHTS[c,h,v]*{PROJECTED.format('V')}[v,4*c+w]}}"
LAYER = "L[h<6,n<8] Σ[k<12] {L[h<6,k<12] VALUES[k//4,h,k%4]}[h,k]*O[k,n]"


def layer(weights: str = SOFTMAX) -> Scope:
    """Heads that are projected, weighted and projected once more."""
    text = LAYER.replace("VALUES", VALUES)
    for name, meaning in (("WEIGHTS", weights), ("RAISED", RAISED), ("TOP", TOP), ("SCORES", SCORES)):
        text = text.replace(name, meaning)
    return parse(DECLARED + text)


def matched(source: Scope) -> list[Form]:
    """The forms in which libraries compute all products, and nothing else."""
    forms = [f for f in Space(Options(max_depth=0)).forms(source) if all(is_product(s) for s, _ in f.matches)]
    most = max(len(f.matches) for f in forms)
    return [f for f in forms if len(f.matches) == most]


def ways(form: Form) -> list[Build]:
    return [made for epilogues in (True, False) for made in builds(form.tree, dict(form.matches), "out", epilogues)]


def fused(build: Build) -> list[EOperator]:
    """The kernels that compute several products."""
    return [k for k in build.kernels if isinstance(k, EOperator) and sum(map(is_product, k.scope.parts)) > 1]


def values_of(source: Scope) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {n: rng.standard_normal(t.shape) for n, t in tensors(source).items()}


def test_what_stands_between_two_products_under_a_maximum_is_one_kernel() -> None:
    forms = matched(layer())
    assert forms
    for form in forms:
        inside = handed_on(dict(form.matches))
        (outer, inner) = sorted((s for s, _ in form.matches if s in inside), key=lambda s: len(s.parts), reverse=True)
        assert inner in outer.inside and len(form.matches) == 6, "all products are matched"
        (found, joint) = (w for w in ways(form)[: len(ways(form)) // 2] if fused(w))
        assert [sum(isinstance(k, Matmul) for k in w.kernels) for w in (found, joint)] == [4, 2], "projections are the libraries'"
        assert [len(w.kernels) for w in (found, joint)] == [5, 3], "nothing is computed twice"
        assert set().union(*(tensors(k.scope) for w in (found, joint) for k in fused(w))).isdisjoint("XQKVO")


def test_a_product_that_reads_another_is_the_one_that_is_taken() -> None:
    """Where no library computes the scores, what they are made of is not computed again for each of them."""
    forms = [f for f in Space(Options(max_depth=0)).forms(layer()) if all(is_product(s) for s, _ in f.matches)]
    for form in forms:
        inside = handed_on(dict(form.matches))
        assert len([s for s in inside if is_product(s)]) in (0, 2)


@pytest.mark.parametrize("weights", [SOFTMAX, RAISED], ids=["softmax", "without its division"])
def test_all_ways_compute_the_layer(weights: str) -> None:
    source = layer(weights)
    values = values_of(source)
    wanted = evaluate(source, values)
    for form in matched(source):
        for build in ways(form):
            np.testing.assert_allclose(computed(build, values, wanted.size).reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weights", [
    "SCORES",
    "{L[c<3,h<6,v<6] exp(SCORES[c,h,v])}",
    "{L[c<3,h<6,v<6] max[u<2] SCORES[c,h,(v+u)%6]}",
    "{L[c<3,h<6,v<6] TOP[c,h]*X[h,v]}",
], ids=["nothing", "no maximum", "pooled", "the maximum alone"])  # fmt: skip
def test_other_products_stay_apart(weights: str) -> None:
    forms = matched(layer(weights))
    assert forms
    assert not any(handed_on(dict(form.matches)) for form in forms)
