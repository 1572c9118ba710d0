"""Costly functions that several scopes compute at the same numbers: which they are, that the meaning stays, and what the code keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from einnet.derivation.normalise import normalise
from einnet.expr.nodes import Read, Scope, indices, make_div
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.repeats import costly, factored
from tests.derivation.generators import raised
from tests.instantiate.compiled import check, dense, random_values, scattered

MAXIMUM = "{L[a<7] max[c<33] X[a,c]}"
SOFTMAX = f"X : f32[7,33]\nL[a<7,b<33] exp(X[a,b] + (-1)*{MAXIMUM}[a]) / {{L[a<7] Σ[d<33] exp(X[a,d] + (-1)*{MAXIMUM}[a])}}[a]"
SHARED = {
    "a softmax": SOFTMAX,
    "along columns": "X : f32[33,7]\nL[b<33,a<7] exp(X[b,a]) / {L[a<7] Σ[d<33] exp(X[d,a])}[a]",
    "of a sum": "X : f32[7,9]\nY : f32[9]\nL[a<7,b<9] exp(X[a,b] + Y[b])*{L[a<7] max[d<9] exp(X[a,d] + Y[d])}[a]",
    "read three times": "X : f32[20]\nL[a<20] erf(X[a]) + {L[z<1] Σ[d<20] erf(X[d])}[0] + {L[z<1] max[e<20] erf(X[e])}[0]",
    "within another": "X : f32[6,9]\nL[a<6,b<9] tanh(exp(X[a,b])) + {L[a<6] Σ[d<9] tanh(exp(X[a,d]))}[a]",
}
OTHERS = {
    "other places": "X : f32[9,9]\nL[a<9,b<9] exp(X[a,b]) / {L[a<9] Σ[d<9] exp(X[d,a])*X[a,d]}[a]",
    "other ranges": "X : f32[7,33]\nL[a<7,b<33] exp(X[a,b]) / {L[a<7] Σ[2<=d<33] exp(X[a,d])}[a]",
    "other functions": "X : f32[7,33]\nL[a<7,b<33] exp(X[a,b]) / {L[a<7] Σ[d<33] tanh(X[a,d])}[a]",
    "what is no costly function": "X : f32[7,33]\nL[a<7,b<33] relu(X[a,b]) / {L[a<7] Σ[d<33] relu(X[a,d])}[a]",
    "once": "X : f32[7,33]\nL[a<7,b<33] exp(X[a,b])",
}


def computed(scope: Scope) -> int:
    """Costly functions that stand in the scopes."""
    return sum(1 for s in scope.parts for _ in costly(s.body))


@pytest.mark.parametrize("name", SHARED)
def test_what_is_computed_twice_is_one_scope(name: str) -> None:
    scope = normalise(parse(SHARED[name]))[0]
    found = factored(scope)
    assert computed(scope) > computed(found) == 1
    values = random_values(dense(scope))
    assert (evaluate(found, values) == evaluate(scope, values)).all()


def test_the_code_computes_the_same() -> None:
    scopes = [normalise(parse(text))[0] for text in SHARED.values()]
    check([*map(dense, scopes), *(scattered(s, n) for n, s in enumerate(scopes))])


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(raised())
def test_random_scopes_keep_their_meaning(total: Scope) -> None:
    """What a sum of exponentials adds up, divided by it: over other ranges, behind masks, with maxima of other rows."""
    (power,) = costly(total.body)
    scope = Scope((*total.loops, *total.sums), (), make_div(power, Read(total, indices(total.loops))))
    found = factored(scope)
    assert computed(found) == 1 < computed(scope)
    with np.errstate(all="ignore"):
        values = random_values(dense(scope))
        np.testing.assert_array_equal(evaluate(found, values), evaluate(scope, values))
