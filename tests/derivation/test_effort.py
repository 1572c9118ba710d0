"""How much the checker evaluates, and what it says of where sides differ."""

from __future__ import annotations

import pytest

from einnet.derivation.checker import check
from einnet.derivation.checker.check import (
    BOUND_POINTS,
    LEAST_SEEDS,
    SHOWN,
    Difference,
    _affordable,
    _box,
    _compared,
    _place,
    _ratio,
    _seeds,
    check_bound,
    check_equal,
    check_exact,
)  # fmt: skip
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.expr.values.points import work

DECLARED = "A : f32[8,9]\nB : f32[9,5]\nu : f32[8]\nv : f32[8]\n"


def scope(text: str) -> Scope:
    return parse(DECLARED + text)


@pytest.mark.parametrize(("text", "count"), [
    ("L[h<8] u[h]", 0), ("L[h<8] Σ[k<9] A[h,k]", 0), ("L[h<8] max[k<9] A[h,k]", 9), ("L[h<8] min[k<9,n<5] A[h,k]*B[k,n]", 45),
    ("L[h<8] max[k<9] {L[h<8,k<9] min[n<5] A[h,k]*B[k,n]}[h,k]", 45), ("L[h<8] Σ[k<9] {L[h<8,k<9] min[n<5] A[h,k]*B[k,n]}[h,k]", 5),
    ("L[h<8] {L[h<8] max[k<9] A[h,k]}[h] + {L[h<8] max[k<3] A[h,k]}[h]", 9),
])  # fmt: skip
def test_elements_that_maxima_are_taken_of(text: str, count: int) -> None:
    assert _compared(scope(text)) == count


def test_maxima_are_tried_so_often_that_each_element_shows() -> None:
    """An element of 45 is the greatest in one of 45 values: they are tried sixteen times so often, shared by the points."""
    plain, hiding = scope("L[h<8] u[h]"), scope("L[h<8] min[k<9,n<5] A[h,k]*B[k,n]")
    for sides in ((plain, hiding), (hiding, plain), (hiding, hiding)):
        assert _seeds(*sides, 8) == SHOWN * 45 // 8 == 90
        assert _seeds(*sides, 7) == 103, "one more where it does not come out even"
    assert _seeds(plain, plain, 8) == _seeds(hiding, plain, 10**4) == LEAST_SEEDS == 2


def test_a_budget_bounds_seeds_and_points(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, hiding = scope("L[h<8] u[h]"), scope("L[h<8] min[k<9,n<5] A[h,k]*B[k,n]")
    for sides in ((plain, hiding), (hiding, plain)):
        most = max(work(s, 8) for s in sides)
        for times in (1, 2, 5):
            monkeypatch.setattr(check, "_BUDGET", times * most)
            assert _seeds(*sides, 8) == max(times, LEAST_SEEDS)
        one = max(work(s, 16) for s in sides)
        assert _affordable(*sides, 64, 4, one) == 16 and _affordable(*sides, 64, 4, one - 1) == 8
        assert _affordable(*sides, 64, 4, 10**9) == 64 and _affordable(*sides, 64, 4, 0) == 4 and _affordable(*sides, 64, 48, 0) == 32


def test_the_point_and_the_boxes_are_told() -> None:
    before, after = parse("A : f32[9,9]\nL[-1<=h<3,w<2] A[h+1,w]"), parse("A : f32[9,9]\nL[-1<=h<3,w<2] A[h+1,w]*(1 + select(h==2 & w==1, 1, 0))")
    assert _place(before, (2, 1)) == "[h=2, w=1]" and _box(before) == "-1..2×0..1"
    with pytest.raises(Difference, match=r"^the two sides differ at \[h=2, w=1\]: ") as caught:
        check_equal(before, after)
    assert caught.value.point == (2, 1) and before.text() in str(caught.value) and after.text() in str(caught.value)
    with pytest.raises(CertificateError, match=r"^the boxes differ: -1\.\.2×0\.\.1 before, 0\.\.1×-1\.\.2 after$"):
        check_equal(before, parse("A : f32[9,9]\nL[w<2,-1<=h<3] A[h+1,w]"))


def test_nothing_is_one_tensor() -> None:
    """Without elements there is nothing to differ in, however different the bodies are."""
    before, after = (parse(f"A : f32[9]\nL[h<0] {body}") for body in ("sin(A[h])", "cos(A[h]) + 1"))
    proof = check_equal(before, after)
    assert proof.method == "inline" and proof.details in ("no elements", "equal normal forms", "equal but for names and order")


@pytest.mark.parametrize(("after", "before", "ratio"), [(6.0, 3.0, 2.0), (1.0, 4.0, 0.25), (0.0, 0.0, 0.0), (3.0, 0.0, float("inf")), (0.0, 3.0, 0)])
def test_growth_from_nothing_has_no_bound(after: float, before: float, ratio: float) -> None:
    assert _ratio(after, before) == ratio


def test_a_bound_is_what_it_says() -> None:
    """Three times as much is added up: a bound of three holds and is told, one of a little less does not; the class follows from the bound."""
    before, after = scope("L[h<8] u[h]"), scope("L[h<8] 2*u[h] - u[h]")
    proof = check_equal(before, after)
    found = check_bound(before, after, 3.0, proof)
    assert found.kind == "precision" and f"errors grow 3 times at {min(8, BOUND_POINTS)} points, 3 are allowed for" in found.details
    with pytest.raises(Difference, match=r"errors are said to grow 2\.999 times at most, but at \[h=\d\] what is added up grows 3 times"):
        check_bound(before, after, 2.999, proof)
    alike = check_bound(after, before, 1.0, proof)
    assert alike.kind == "reassociation" and alike.details == proof.details
    assert check_bound(before, before, 1.0, proof).kind == "reassociation" and check_bound(before, before, 2.0, proof).kind == "precision"


def test_what_grows_is_named() -> None:
    before, after = scope("L[h<8] exp(u[h])/(2 + v[h]*v[h])"), scope("L[h<8] exp(3*u[h] - 2*u[h])/(2 + v[h]*v[h])")
    proof = check_equal(before, after)
    with pytest.raises(Difference, match="the argument of exp grows 5 times"):
        check_bound(before, after, 1.0, proof)
    divided = scope("L[h<8] exp(u[h])/(2 + 4*v[h]*v[h] - 3*v[h]*v[h])")
    with pytest.raises(Difference, match="what is divided by grows"):
        check_bound(before, divided, 1.0, check_equal(before, divided))


def test_one_key_is_one_program() -> None:
    """But for names and order the two are one: of class exact, and nothing is evaluated."""
    before, after = scope("L[h<8] u[h]*v[h]"), scope("L[x<8] v[x]*u[x]")
    proof = check_equal(before, after)
    assert check_exact(before, after, proof).kind == "exact" and check_exact(before, after, proof).details == proof.details


def test_forms_by_bends_of_too_many_terms_prove_nothing() -> None:
    """144 terms, each with two maxima: both sides have a normal form, none by where they bend."""
    whole, wrong = ("(" + " + ".join(f"abs(A[h+{k}]+B[h])" for k in places) + ")" for places in (range(12), (*range(11), 12)))
    before, after = (parse(f"A : f32[64]\nB : f32[64]\nL[h<30] {whole}*{other}") for other in (whole, wrong))
    assert not check.bend_alike(before, after) and not check.bend_alike(before, before)
    with pytest.raises(Difference):
        check_equal(before, after)


@pytest.mark.parametrize(("bound", "most", "share"), [(3.0, 64, 1), (1.0, 8, 4)])
def test_growth_is_seen_at_more_points_where_a_bound_is_claimed(monkeypatch: pytest.MonkeyPatch, bound: float, most: int, share: int) -> None:
    asked: list[tuple[int, ...]] = []
    affordable = check._affordable
    monkeypatch.setattr(check, "_affordable", lambda one, other, *limits: asked.append(limits) or affordable(one, other, *limits))
    before, after = scope("L[h<8] u[h] + v[h]"), scope("L[h<8] v[h] + 1*u[h]*1 + 0*u[h]")
    check_bound(before, after, bound, check_equal(before, after))
    assert asked == [(most, 1, check._BOUND_BUDGET // share)]


def test_borders_make_no_growth() -> None:
    """Three elements are added up, of which two lie outside: in the inner part of a larger tensor all three would count."""
    before, after = (parse(f"e : f32[1]\nL[h<1] {text}") for text in ("Σ[r<3] e[h+r-1]", "e[h] + e[h] - e[h]"))
    assert check_bound(before, after, 1.0, check_equal(before, after)).kind == "reassociation"
    more = parse("e : f32[1]\nL[h<1] 2*e[h] + e[h] - 2*e[h]")
    proof = check_equal(before, more)
    with pytest.raises(Difference, match=r"grows 1\.667 times"):
        check_bound(before, more, 1.0, proof)


def test_one_element_is_evaluated_and_none_is_not() -> None:
    one, other = (parse(f"u : f32[8]\nL[] Σ[h<8] {text}") for text in ("sin(u[h])", "sin(u[7-h])*1 + 0.5*u[h]"))
    with pytest.raises(Difference):
        check_equal(one, other)
    none, neither = (parse(f"u : f32[8]\nL[h<0] {text}") for text in ("sin(u[h])", "u[h]"))
    proof = check._test(none, neither, (), "normal forms differ")
    assert (proof.method, proof.details) == ("inline", "no elements")
