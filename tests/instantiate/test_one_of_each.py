"""What is read at several places, with and without loops over one place, is computed once, by the operator that is matched in one of these ways."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import EOperator, Matmul
from einnet.instantiate.matching.tables import MATMUL
from einnet.instantiate.matching.types import Match
from einnet.instantiate.one_of_each import one_of_each, without_units
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import integers, run

DECLARED = "A : f32[4,3]\nB : weight f32[3,6]\nt : f32[1,4,6]\n"
PLAIN, WITH = "{L[m<4,n<6] Σ[k<3] A[m,k]*B[k,n]}", "{L[b<1,m<4,n<6] Σ[k<3] A[m,k]*B[k,n]}"
SHIFTED, MIDDLE = "{L[5<=b<6,m<4,n<6] Σ[k<3] A[m,k]*B[k,n]}", "{L[m<4,b<1,n<6] Σ[k<3] A[m,k]*B[k,n]}"
MOST, MOST_PLAIN = "{L[b<1,m<4,k<3] max[n<6] t[0,m,n]*A[m,k]}", "{L[m<4,k<3] max[n<6] t[0,m,n]*A[m,k]}"
DEEP = f"{{L[b<1,m<4,n<6] {{L[b<1,m<4,n<6] Σ[k<3] {MOST}[b,m,k]*B[k,n]}}[b,m,n] + 1}}"
DEEP_PLAIN = f"{{L[m<4,n<6] {{L[m<4,n<6] Σ[k<3] {MOST_PLAIN}[m,k]*B[k,n]}}[m,n] + 1}}"


def matched(source: Scope) -> dict[Scope, Match]:
    """The matches of the first product of a tree only, as a form has them."""
    for s in source.parts:
        match = MATMUL.match(s)
        if isinstance(match, Match):
            return {s: match}
    return {}


@pytest.mark.parametrize(
    "body",
    [
        f"{PLAIN}[m,n] + {{L[m<4] Σ[n<6] {WITH}[0,m,n]}}[m]",
        f"{WITH}[0,m,n] + {{L[m<4] Σ[n<6] {PLAIN}[m,n]}}[m]",
        f"{SHIFTED}[5,m,n]*{{L[m<4] Σ[n<6] {MIDDLE}[m,0,n]}}[m]*{{L[m<4] max[n<6] {WITH}[0,m,n]}}[m]",
        f"{DEEP}[0,m,n]*{{L[m<4] Σ[n<6] {DEEP_PLAIN}[m,n]}}[m]*{MOST}[0,3-m,0]",
        f"{MOST_PLAIN}[3-m,0]*{DEEP}[0,m,n]*{{L[m<4] Σ[n<6] {DEEP_PLAIN}[m,n]}}[m]",
    ],
)
def test_one_stands_for_all(body: str) -> None:
    source = parse(f"{DECLARED}L[m<4,n<6] {body}")
    matches = matched(source)
    kernels = build(source, matches, "out", epilogues=False).kernels
    assert sum(isinstance(k, Matmul) for k in kernels) == len(matches) == 1
    assert not any(t.name == "B" for k in kernels if isinstance(k, EOperator) for t in k.scope.read), "the product is computed a second time"
    stored = [k for k in kernels if isinstance(k, EOperator) and k.scope.reduce == "max" and k.scope.sums]
    assert len(stored) == ("max[n<6] t" in body)
    values = integers(source)
    np.testing.assert_array_equal(run(source, matches, values), evaluate(source, values))


@pytest.mark.parametrize(
    "expression",
    [
        f"L[m<4,n<6,r<3] {WITH}[r-1,m,n] + {PLAIN}[m,n]",
        f"L[m<4,n<6,r<3] {PLAIN}[m,n] + {WITH}[r-1,m,n]",
        f"L[m<4,n<6] {PLAIN}[m,n] + {SHIFTED}[0,m,n]",
        f"L[m<4] {{L[m<4] Σ[n<6] {PLAIN}[m,n] + 1}}[m]*{{L[m<4] Σ[n<6] {WITH}[1,m,n] + 1}}[m]",
        "L[m<4,n<6,r<3] {L[b<1,m<4,n<6] t[b,m,n]*t[b,m,n]}[r-1,m,n] + {L[m<4,n<6] t[0,m,n]*t[0,m,n]}[m,n]",
        "L[m<4] {L[m<4] max[n<6] {L[b<1,m<4,n<6] t[b,m,n] - 9}[0,m,n]}[m] + {L[m<4] Σ[n<6] {L[m<4,n<6] t[0,m,n] - 9}[m,n+1]}[m]",
    ],
)
def test_what_is_read_beside_its_place_stays(expression: str) -> None:
    """Beyond a loop over one place stands a 0, which is not what stands there."""
    source = parse(f"{DECLARED}{expression}")
    values = integers(source)
    np.testing.assert_array_equal(run(source, matched(source), values), evaluate(source, values))
    np.testing.assert_array_equal(evaluate(one_of_each(source, {})[0], values), evaluate(source, values))


NARROW, WIDE = "{L[m<4,n<3] Σ[k<3] A[m,k]*B[k,n]}", PLAIN
BESIDE = "{L[m<4,2<=n<6] Σ[k<3] A[m,k]*B[k,n]}"
READ_BY_A_PRODUCT = "{{L[m<4,p<5] Σ[n<3] {0}[m,n]*C[n,p]}}"


def every_match(source: Scope) -> dict[Scope, Match]:
    return {s: m for s in source.parts if isinstance(m := MATMUL.match(s), Match)}


@pytest.mark.parametrize(
    ("expression", "products"),
    [
        (f"L[m<4,p<5] {{L[m<4] max[n<6] {WIDE}[m,n]}}[m] + {{L[m<4] max[n<3] {NARROW}[m,n]}}[m]*V[p]", 1),
        (f"L[m<4,p<5] {{L[m<4] max[n<3] {NARROW}[m,n]}}[m]*V[p] + {{L[m<4] max[n<6] {WIDE}[m,n]}}[m]", 1),
        (f"L[m<4,p<5] {{L[m<4] max[n<3] {BESIDE}[m,n+2]}}[m]*V[p] + {{L[m<4] max[n<6] {WIDE}[m,n]}}[m]", 1),
        (f"L[m<4,p<5] {{L[m<4] max[n<3] {NARROW}[m,n+1]}}[m]*V[p] + {{L[m<4] max[n<6] {WIDE}[m,n]}}[m]", 2),  # 0 beyond
        (f"L[m<4,p<5] {{L[m<4] max[n<3] {NARROW}[m,n]}}[m]*V[p] + {{L[m<4] max[2<=n<6] {BESIDE}[m,n]}}[m]", 2),  # neither has the other's
        (f"L[m<4,p<5] {READ_BY_A_PRODUCT.format(NARROW)}[m,p]*{{L[m<4] max[n<6] {WIDE}[m,n]}}[m]", 2),  # an operator reads a part
        (f"L[m<4,p<5] {READ_BY_A_PRODUCT.format(BESIDE).replace('}[m,n]*', '}[m,n+2]*')}[m,p]*{{L[m<4] max[n<6] {WIDE}[m,n]}}[m]", 2),
    ],
)
def test_what_has_all_that_another_has_stands_for_it(expression: str, products: int) -> None:
    source = parse(f"{DECLARED}C : weight f32[3,5]\nV : f32[5]\n{expression}")
    matches = every_match(source)
    kernels = build(source, matches, "out", epilogues=False).kernels
    assert sum(isinstance(k, Matmul) for k in kernels) == products
    values = integers(source)
    np.testing.assert_array_equal(run(source, matches, values), evaluate(source, values))
    np.testing.assert_array_equal(evaluate(one_of_each(source, matches)[0], values), evaluate(source, values))


def test_an_operator_that_cannot_read_a_part_reads_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einnet.instantiate.one_of_each.matched_again", lambda match, scope: None)
    source = parse(
        f"{DECLARED}C : weight f32[3,5]\nL[m<4,p<5] {READ_BY_A_PRODUCT.format(NARROW)}[m,p]*{{L[m<4] max[n<6] {WIDE}[m,n]}}[m]"
        f"*{{L[m<4] max[n<3] {NARROW}[m,n]}}[m]"
    )
    kernels = build(source, every_match(source), "out", epilogues=False).kernels
    assert sum(isinstance(k, Matmul) for k in kernels) == 3
    values = integers(source)
    np.testing.assert_array_equal(run(source, every_match(source), values), evaluate(source, values))


def test_values_that_scores_are_computed_beside_are_products_of_a_library() -> None:
    """One product of which queries, keys and values are parts: it stands inside the scores, and is read beside them."""
    made = "{L[m<5,n<18] Σ[k<4] x[m,k]*w[k,n]}"
    scores = f"{{L[b<3,m<5,n<5] Σ[k<2] {made}[m,2*b+k]*{made}[n,2*b+k+6]}}"
    source = parse(
        f"x : f32[5,4]\nw : weight f32[4,18]\nL[b<3,m<5,n<2] Σ[k<5] {{L[b<3,m<5,n<5] exp({scores}[b,m,n])}}[b,m,k]*{made}[k,2*b+n+12]"
    )
    forms = [f for f in Space(Options(max_depth=0)).forms(source) if f.unchanged]
    builds = [build(f.tree, dict(f.matches), "out") for f in forms]
    products = [[k.describe() for k in b.kernels if isinstance(k, Matmul)] for b in builds]
    assert ["Matmul 5x4x18", "Matmul 3 x 5x2x5", "Matmul 3 x 5x5x2"] in products
    values = integers(source)
    for form in forms:
        np.testing.assert_allclose(run(form.tree, dict(form.matches), values), evaluate(source, values))


def test_different_scopes_stay_apart() -> None:
    source = parse(f"{DECLARED}L[m<4,n<6] {PLAIN}[m,n] + {{L[b<1,m<4,n<6] max[k<3] A[m,k]*B[k,n]}}[0,m,n]")
    assert one_of_each(source, {})[0] is source
    assert len({without_units(s).key for s in source.parts}) == len(source.parts)
