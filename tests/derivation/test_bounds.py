"""A-priori error bounds: single precision stays within them, and algorithms with greater matrices have greater ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from einnet.derivation.checker.arguments import asked
from einnet.derivation.checker.bounds import UNIT, error_bound, growth, program_bound, roundings
from einnet.derivation.checker.check import check
from einnet.derivation.rules.bilinear import bilinear
from einnet.derivation.steps import Derivation, Step
from einnet.errors import CertificateError
from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.points import magnitudes_at

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


@pytest.mark.parametrize("name", SOURCES)
def test_checker_finds_bounds_that_are_too_small(name: str) -> None:
    """The checker adds up absolute values by itself: what the rule claims holds, and a claim of less than half of it is refuted."""
    for d in derivations(SOURCES[name][0]):
        (step,) = d.steps
        assert step.bound is not None
        (proof,) = check(d)
        assert "errors grow" in proof.details
        for factor in (0.45, 0.1):
            with pytest.raises(CertificateError, match="errors are said to grow"):
                check(Derivation(d.start, (replace(step, bound=factor * step.bound),)))


def test_whole_numbers_are_not_rounded() -> None:
    """A product rounds once; a constant that is no whole number did before."""
    for text, count in (("2*A[h]", 1), ("3*A[h]", 1), ("1/3*A[h]", 2), ("5/2*A[h]", 2), ("A[h] + 3", 1), ("A[h] + 1/3", 2), ("A[h]", 0),
                        ("val(h)", 0), ("select(h>=3, A[h], 0)", 0), ("select(h>=3, A[h], A[h] + 3)", 1), ("relu(A[h])", 1)):  # fmt: skip
        assert roundings(parse(f"A : f32[4]\nL[h<4] {text}")) == count, text


def test_magnitudes() -> None:
    scope = parse("C : weight f32[3] = [1, -2, 1/2]\nL[h<4] Σ[r<3] C[r]*A[h+r-1]*B[h] - 2*B[h]")
    points = np.arange(4)[:, None]
    assert magnitudes_at(scope, points)[0].tolist() == [8.5, 9.5, 9.5, 9.0]
    assert magnitudes_at(scope, points, whole=True)[0].tolist() == [9.5] * 4
    sizes, arguments = magnitudes_at(parse("L[h<4] 3*exp(-5*A[h])/(A[h]+B[h]) + relu(-2*A[h])"), points)
    assert sizes.tolist() == [5.0] * 4 and arguments == {"exp": 5.0, "/": 2.0}
    assert magnitudes_at(parse("L[h<4] max[r<3] -2*A[h+r-1]|-inf"), points)[0].tolist() == [2.0] * 4


@pytest.mark.parametrize("name", SOURCES)
def test_reassociation_is_no_name_for_what_makes_magnitudes_grow(name: str) -> None:
    for d in derivations(SOURCES[name][0]):
        for kind in ("reassociation", "exact"):
            with pytest.raises(CertificateError, match=r"errors are said to grow 1 times at most|of class exact, but"):
                check(Derivation(d.start, (replace(d.steps[0], kind=kind, bound=None),)))


@pytest.mark.parametrize(("before", "after", "grows"), [
    ("(u[h] + v[h])*w[h]", "u[h]*w[h] + v[h]*w[h]", False), ("u[h]", "(u[h] + v[h]) - v[h]", True),
    ("exp(u[h] + v[h])", "exp(v[h] + u[h])", False), ("exp(u[h])", "exp((u[h] + 9*v[h]) - 9*v[h])", True),
    ("u[h]/(1 + v[h]*v[h])", "u[h]/((1 + v[h]*v[h] - 4*u[h]) + 4*u[h])", True), ("relu(u[h] + v[h])", "relu((u[h] + v[h] + w[h]) - w[h])", True),
])  # fmt: skip
def test_magnitudes_within_functions_count(before: str, after: str, grows: bool) -> None:
    start, end = (parse(f"u : f32[8]\nv : f32[8]\nw : f32[8]\nL[h<8] {text}") for text in (before, after))
    claimed = Derivation(start, (Step("claimed", "", start, end, kind="reassociation"),))
    if grows:
        with pytest.raises(CertificateError, match="errors are said to grow 1 times"):
            check(claimed)
    else:
        (proof,) = check(claimed)
        assert proof.kind == "reassociation"


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


@pytest.mark.parametrize(("text", "found"), [
    ("select(h>=3, exp(A[h])/B[h], relu(A[h]))", "select(h>=3, exp(select(h>=3, A[h], 0)) / select(h>=3, B[h], 0), relu(A[h]))"),
    ("select(h>=3, select(h>=5, exp(A[h]), 1), 0)", "select(h>=3, select(h>=5, exp(select(h>=3 & h>=5, A[h], 0)), 1), 0)"),
    ("select(h>=3, 0, exp(A[h]))", "select(h>=3, 0, exp(A[h]))"), ("A[h]*B[h] + 2*A[h]/B[h]", "A[h]*B[h] + 2*A[h] / B[h]"),
    ("2*{L[h<9] select(h>=3, exp(A[h]) + 1, 0)}[h]", "2*{L[h<9] select(h>=3, exp(select(h>=3, A[h], 0)) + 1, 0)}[h]"),
])  # fmt: skip
def test_arguments_count_where_they_are_asked_for(text: str, found: str) -> None:
    declared = "A : f32[9]\nB : f32[9]\n"
    assert asked(parse(f"{declared}L[h<9] {text}")).text() == parse(f"{declared}L[h<9] {found}").text()
