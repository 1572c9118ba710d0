"""Nearly equal elements and large ones: a step of class reassociation loses no more of them than its left side does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from einnet.derivation.checker.check import Difference, Proof, check, check_cancellation
from einnet.derivation.rules import RULES
from einnet.derivation.rules.distribute import distribute
from einnet.derivation.steps import Derivation, Step, replace_at, subscope
from einnet.evidence.error_limits import bounded_at
from einnet.expr.functions.rounding import UNIT
from einnet.expr.nodes import Scope, nested, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.arithmetic import uncontracted
from einnet.expr.values.cancellation import APART, FACTOR, LARGEST, LEVELS, Conditioned, adds_up, errors_at, lost, size, subtracts, survives
from einnet.expr.values.evaluate import evaluate
from einnet.expr.values.points import work
from einnet.expr.values.running_errors import pair, parts

DECLARED = (
    "x : f32[6,8]\ny : f32[6,8]\nm : f32[6]\nn : f32[6]\nw : f32[8]\nlong : f32[4096]\nother : f32[4096]\n"
    "Z : weight f32[6] = [1, 0, 1, 0, 1, 1]\nS : weight f32[2,2] = [1, 1, 1, -1]\nP : weight f32[2,2] = [1, 1, 1, 2]\n"
)
MEAN = "{L[h<6] {L[h<6] Σ[k<8] x[h,k]}[h] / 8}[h]"
VARIANCE = f"{{L[h<6] Σ[k<8] (x[h,k] - {MEAN})*(x[h,k] - {MEAN})}}[h]"
OPENED = f"{{L[h<6] Σ[k<8] x[h,k]*(x[h,k] - {MEAN}) - {MEAN}*(x[h,k] - {MEAN})}}[h]"

KEPT = {
    "a weighted difference": ("Σ[k<8] w[k]*(x[h,k] - m[h])", "{L[h<6] Σ[k<8] w[k]*x[h,k]}[h] - m[h]*{L[h<6] Σ[k<8] w[k]}[h]"),
    "a difference from the mean": (f"Σ[k<8] w[k]*(x[h,k] - {MEAN})", f"{{L[h<6] Σ[k<8] w[k]*x[h,k]}}[h] - {MEAN}*{{L[h<6] Σ[k<8] w[k]}}[h]"),
    "a sum of 4096 differences": ("Σ[k<4096] m[h]*(long[k] - other[k])", "m[h]*({L[h<6] Σ[k<4096] long[k]}[h] - {L[h<6] Σ[k<4096] other[k]}[h])"),
    "a square of a sum": ("Σ[k<8] (x[h,k] + m[h])*(x[h,k] + m[h])", "Σ[k<8] x[h,k]*x[h,k] + 2*x[h,k]*m[h] + m[h]*m[h]"),
    "a difference turned round": ("Σ[k<8] (x[h,k] - m[h])*(x[h,k] - m[h])", "Σ[k<8] (m[h] - x[h,k])*(m[h] - x[h,k])"),
    "a product of differences put together": ("Σ[k<8] x[h,k]*(x[h,k] - m[h]) - m[h]*(x[h,k] - m[h])", "Σ[k<8] (x[h,k] - m[h])*(x[h,k] - m[h])"),
}
LOST = {
    "a square": ("Σ[k<8] (x[h,k] - m[h])*(x[h,k] - m[h])", "Σ[k<8] x[h,k]*x[h,k] - 2*x[h,k]*m[h] + m[h]*m[h]"),
    "half of a square": ("Σ[k<8] (x[h,k] - m[h])*(x[h,k] - m[h])", "Σ[k<8] x[h,k]*(x[h,k] - m[h]) - m[h]*(x[h,k] - m[h])"),
    "a variance": (f"1/8*{VARIANCE}", f"1/8*{OPENED}"),
    "a covariance": ("Σ[k<8] (x[h,k] - m[h])*(y[h,k] - n[h])", "Σ[k<8] x[h,k]*(y[h,k] - n[h]) - m[h]*(y[h,k] - n[h])"),
    "a difference in a scope": ("{L[h<6] x[h,0] - m[h]}[h]*(y[h,0] - n[h])", "{L[h<6] x[h,0] - m[h]}[h]*y[h,0] - {L[h<6] x[h,0] - m[h]}[h]*n[h]"),
    "differences by a table": ("{L[h<6] Σ[k<2] S[1,k]*x[h,k]}[h]*{L[h<6] Σ[k<2] S[1,k]*x[h,k]}[h]", "Σ[k<2,j<2] S[1,k]*S[1,j]*x[h,k]*x[h,j]"),
    "an exponential": ("Σ[k<8] exp(x[h,k] - m[h])", "Σ[k<8] exp(x[h,k])*exp(-m[h])"),
}
SHIFTS = {
    "a softmax": (
        "exp(x[h,0] - m[h]) / {L[h<6] Σ[k<8] exp(x[h,k] - m[h])}[h]", "exp(x[h,0]) / {L[h<6] Σ[k<8] exp(x[h,k])}[h]",
    ),
    "the logarithm of a sum of exponentials": ("m[h] + log({L[h<6] Σ[k<8] exp(x[h,k] - m[h])}[h])", "log({L[h<6] Σ[k<8] exp(x[h,k])}[h])"),
    "a deviation": (f"sqrt({VARIANCE})", f"sqrt({OPENED})"),
    "what is divided by a variance": (f"x[h,0] / {VARIANCE}", f"x[h,0] / {OPENED}"),
}  # fmt: skip
POINTS = np.arange(6)[:, None]


@pytest.mark.parametrize("refuse", [True, False])
def test_what_is_lost_is_allowed_up_to_a_factor(refuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a step is of class precision, or refused; one that changes nothing is not asked."""
    before, after = sides(KEPT["a difference turned round"])
    proof = Proof("inline", "by forms", kind="reassociation")
    for grown in (0.0, FACTOR, 1.001 * FACTOR):
        monkeypatch.setattr("einnet.derivation.checker.check.lost", lambda *_, grown=grown: grown)
        assert check_cancellation(before, before, proof, refuse=refuse) is proof
        if grown <= FACTOR:
            assert check_cancellation(before, after, proof, refuse=refuse) is proof
        elif refuse:
            with pytest.raises(Difference, match="no reassociation"):
                check_cancellation(before, after, proof, refuse=refuse)
        else:
            found = check_cancellation(before, after, proof, refuse=refuse)
            assert found.kind == "precision" and found.details.startswith("by forms; where elements are nearly equal")


LONG = "x : f32[4096,512]\nW : f32[512,64]\nc : f32[64]\nq : f32[64]\nL[h<4] "
ROWS = "{L[k<4096,m<64] Σ[j<512] 1/512*x[k,j]*W[j,m]}[k,m]"
NEGATIVE = "{L[k<4096,m<64] Σ[j<512] (-1)/512*x[k,j]*W[j,m]}[k,m]"
AVERAGE = "{L[] Σ[k<4096,j<512,m<64] 1/134217728*x[k,j]}[]"
SUMS = {
    "what both read is cut away": (f"Σ[k<4096,m<64] q[h]*({ROWS} - c[m])", f"q[h]*({{L[] Σ[k<4096,m<64] {ROWS} - c[m]}}[])", "reassociation"),
    "a square of what both read": (
        f"Σ[k<4096,m<64] ({ROWS} - c[m])*({ROWS} - c[m])", f"Σ[k<4096,m<64] {ROWS}*{ROWS} - 2*c[m]*{ROWS} + c[m]*c[m]", "precision",
    ),
    "what both read is negative": (
        f"Σ[k<4096,m<64] ({NEGATIVE} + c[m])*({NEGATIVE} + c[m])",
        f"Σ[k<4096,m<64] {NEGATIVE}*{NEGATIVE} + 2*c[m]*{NEGATIVE} + c[m]*c[m]", "precision",
    ),
    "a difference from a mean": (f"Σ[k<512] c[h]*(x[h,k] - {AVERAGE})", f"c[h]*({{L[h<4] Σ[k<512] x[h,k]}}[h] - 512*{AVERAGE})", "reassociation"),
    "a variance": (
        f"Σ[k<512] (x[h,k] - {AVERAGE})*(x[h,k] - {AVERAGE})", f"Σ[k<512] x[h,k]*x[h,k] - 2*x[h,k]*{AVERAGE} + {AVERAGE}*{AVERAGE}", "precision",
    ),
    "one side is short": ("x[h,0] - c[h]", "Σ[k<4096,m<64,j<512] exp(x[k,j]) - c[m]", "precision"),
    "the other side is short": ("Σ[k<4096,m<64,j<512] exp(x[k,j]) - c[m]", "x[h,0] - c[h]", "precision"),
    "nothing is subtracted": (f"Σ[k<4096,m<64] ({ROWS} + c[m])*q[m]", f"Σ[k<4096,m<64] {ROWS}*q[m] + c[m]*q[m]", "reassociation"),
}  # fmt: skip


DIFFERENCE = "{L[k<4096,m<64,j<512] x[k,j] - c[m]}"
SAME = {
    "one sum as two": (f"Σ[k<4096,m<64,j<512] {DIFFERENCE}[k,m,j]", f"Σ[j<512] {{L[j<512] Σ[k<4096,m<64] {DIFFERENCE}[k,m,j]}}[j]", True),
    "with a product": (
        f"Σ[k<4096,m<64,j<512] {DIFFERENCE}[k,m,j] + q[m]",
        f"{{L[] Σ[k<4096,m<64,j<512] {DIFFERENCE}[k,m,j]}}[] + 2097152*{{L[] Σ[m<64] q[m]}}[]", False,
    ),
    "negatives are read": (
        "Σ[k<4096,m<64,j<512] (x[k,j] + {L[m<64] -1*c[m]}[m])*(x[k,j] + {L[m<64] -1*c[m]}[m])",
        "Σ[k<4096,m<64,j<512] x[k,j]*x[k,j] + 2*x[k,j]*{L[m<64] -1*c[m]}[m] + {L[m<64] -1*c[m]}[m]*{L[m<64] -1*c[m]}[m]", False,
    ),
    "the greatest of them": (
        f"max[k<4096,m<64,j<512] {DIFFERENCE}[k,m,j]", f"max[j<512] {{L[j<512] max[k<4096,m<64] {DIFFERENCE}[k,m,j]}}[j]", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_differences_in_another_order_lose_nothing(name: str) -> None:
    """Whatever they are; what multiplies them, or is told of nothing but its negative, is not told in time."""
    one, other, same = SAME[name]
    before, after = (parse(f"{LONG}{text}") for text in (one, other))
    found = check_cancellation(before, after, Proof("inline", "by forms", kind="reassociation"), refuse=True)
    assert found.kind == ("reassociation" if same else "precision")


@pytest.mark.parametrize("name", SUMS)
def test_long_sums_are_told_of_what_is_left_of_them_or_not_at_all(name: str) -> None:
    """An element takes a hundred million products: what both sides read is an element, where none of it is negative; else it is not told in time."""
    one, other, kind = SUMS[name]
    before, after = parse(LONG + one), parse(LONG + other)
    assert max(work(before, 1), work(after, 1)) > 1 << 26
    proof = Proof("inline", "by forms", kind="reassociation")
    begin = process_time()
    found = check_cancellation(before, after, proof, refuse=True)
    assert process_time() - begin < 30
    assert found.kind == kind and ("not told: too many" in found.details) == (kind == "precision")


@pytest.mark.parametrize(
    ("text", "positive"),
    [
        ("Σ[k<8] x[h,k]*w[k] + 2*m[h]", True), ("{L[h<6] Σ[k<8] x[h,k]*w[k]}[h] + m[h]", True), ("Σ[k<8] x[h,k] - m[h]", False),
        ("{L[h<6] Σ[k<8] x[h,k] - m[h]}[h] + m[h]", False), ("Σ[k<8] exp(x[h,k])", False), ("max[k<8] x[h,k]", False), ("Z[h]*m[h]", False),
        ("Σ[k<8] x[h,k+1]|2", False), ("m[h] / 2", False), ("{L[h<6] max[k<8] x[h,k]}[h]*m[h]", False), ("Σ[k<8] 0*x[h,k]", False),
    ],
)  # fmt: skip
def test_what_stands_for_itself_as_an_element(text: str, positive: bool) -> None:
    assert adds_up(parse(f"{DECLARED}L[h<6] {text}")) == positive


@pytest.mark.parametrize(
    ("text", "level", "large"),
    [
        ("Σ[k<8] x[h,k]*w[k]", 2.0, 32.0), ("{L[h<6] Σ[k<8] x[h,k]*w[k]}[h] + 3*m[h]", 2.0, 38.0),
        ("1/4*{L[h<6] Σ[k<8] x[h,k]}[h]*m[h]", 128.0, 32768.0),
    ],
)  # fmt: skip
def test_how_large_sums_are(text: str, level: float, large: float) -> None:
    scope = parse(f"{DECLARED}L[h<6] {text}")
    ones = {name: np.full(t.shape, level) for name, t in tensors(scope).items()}
    assert size(scope, level) == large and (evaluate(scope, ones) == large).all()


def sides(pair: tuple[str, str]) -> tuple[Scope, Scope]:
    before, after = (parse(f"{DECLARED}L[h<6] {text}") for text in pair)
    return before, after


def claimed(pair: tuple[str, str], kind: str) -> Derivation:
    before, after = sides(pair)
    return Derivation(before, (Step("claimed", "", before, after, kind=kind, bound=2.0 if kind == "precision" else None),))


@pytest.mark.parametrize("name", KEPT)
def test_what_nearly_equal_elements_survive(name: str) -> None:
    (proof,) = check(claimed(KEPT[name], "reassociation"))
    assert proof.kind == "reassociation" and "nearly equal" not in proof.details
    before, after = sides(KEPT[name])
    assert lost(before, after, POINTS) < 8 and survives(before, after)


@pytest.mark.parametrize("name", LOST)
def test_what_nearly_equal_elements_do_not_survive(name: str) -> None:
    """Of no class but precision, though magnitudes do not grow; one that claims precision without growth is found to be that."""
    for kind in ("reassociation", "exact"):
        with pytest.raises(Difference, match=r"it is no reassociation: where elements are nearly equal|of class exact, but"):
            check(claimed(LOST[name], kind))
    honest = claimed(LOST[name], "precision")
    for bound in (1.0, 2.0):
        (proof,) = check(Derivation(honest.start, (replace(honest.steps[0], bound=bound),)))
        assert proof.kind == "precision"
        assert ("nearly equal, or large, errors grow" in proof.details) == (bound == 1.0)
    before, after = sides(LOST[name])
    assert lost(before, after, POINTS) > 10 * FACTOR and not survives(before, after)


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_of_exponentials_and_deviations_count(name: str) -> None:
    before, after = sides(SHIFTS[name])
    assert lost(before, after, POINTS) > 10 * FACTOR and not survives(before, after)
    assert lost(before, before, POINTS) == 1 and survives(before, before)


def test_errors_are_those_of_elements_that_have_been_computed() -> None:
    """By hand: an element errs by one rounding, a difference by two and that of its sign, its square by twice its size times that."""
    for level in LEVELS:
        for text, least, most in (
            ("m[h]", 1, 1 + APART), ("m[h] - n[h]", 3, 3 + 4 * APART), ("(m[h] - n[h])*(m[h] - n[h])", 0, 8 * APART * level),
            ("Σ[k<4096] long[k]", 2 * 4096, 2 * 4096 * (1 + 2 * APART)),
        ):  # fmt: skip
            found = errors_at(parse(f"{DECLARED}L[h<6] {text}"), POINTS, level) / UNIT / level
            assert (found >= least * (1 - 1e-12)).all() and (found <= most * (1 + 1e-6)).all(), (text, found)
    assert np.isinf(errors_at(parse(f"{DECLARED}L[h<6] 1 / exp(m[h])"), POINTS, 128.0)).all(), "no number of single precision"
    assert np.isfinite(errors_at(parse(f"{DECLARED}L[h<6] 1 / exp(m[h])"), POINTS, 1.0)).all()


def test_elements_differ_by_up_to_the_share_that_is_told() -> None:
    """Two of them cancel all but that share of their size: less would be lost of what is nearer, more of what is farther."""
    found = errors_at(parse("long : f32[4096]\nL[k<4096] long[k]"), np.arange(4096)[:, None], 1.0) / UNIT - 1
    assert 0 <= found.min() < 0.01 * APART and 0.99 * APART < found.max() <= APART


def test_what_is_exact_may_not_become_what_is_rounded() -> None:
    """Whole numbers have no error: any other way to them that has one loses beyond all bounds."""
    before, after = sides(("val(h) - 1", "3*(1/3*val(h) - 1/3)"))
    assert (errors_at(before, POINTS, 1.0) == 0).all() and errors_at(after, POINTS, 1.0).max() > 0
    assert lost(before, after, POINTS) > FACTOR and lost(after, before, POINTS) == lost(before, before, POINTS) == 1


def test_the_largest_number_of_single_precision_is_one() -> None:
    kept = Conditioned().reduce("max", pair(np.array([LARGEST, 1.0]), np.zeros(2)), (0,))
    beyond = Conditioned().reduce("max", pair(np.array([LARGEST * 1.0001, 1.0]), np.zeros(2)), (0,))
    assert parts(kept) == (LARGEST, 0) and parts(beyond)[1] == np.inf


@pytest.mark.parametrize(("text", "found"), [
    ("m[h] + n[h]", False), ("m[h] - n[h]", True), ("{L[h<6] m[h] - n[h]}[h]", True), ("exp(m[h]*(n[h] - 1))", True), ("S[0,0]*m[h]", True),
    ("P[0,0]*m[h]", False), ("select(h>=3, m[h], 0)", False), ("1/2*m[h]", False), ("Z[h]*m[h]", False), ("m[h+1]", False), ("val(h-3)*m[h]", False),
])  # fmt: skip
def test_what_subtracts(text: str, found: bool) -> None:
    assert subtracts(parse(f"{DECLARED}L[h<6] {text}")) == found


def test_what_is_too_large_to_be_looked_at_does_not_survive() -> None:
    square = "(x[h,k] - m[h])*(x[h,k] - m[h])"
    for extent, kept in ((1 << 10, True), (1 << 20, False)):
        declared = f"x : f32[6,{extent}]\nm : f32[6]\n"
        scope = parse(f"{declared}L[h<6] Σ[k<{extent}] {square}")
        assert survives(scope, scope) == kept


@pytest.mark.parametrize(("low", "high", "place"), [(0, 6, 0), (0, 6, 3), (0, 6, 5), (2, 9, 2), (2, 9, 5), (2, 9, 8)])
def test_where_it_is_looked(low: int, high: int, place: int) -> None:
    """At both ends of the box and in its middle: what cancels at one of these places alone is seen."""
    head = f"x : f32[9,8]\nm : f32[9]\nL[{low}<=h<{high}]"
    square, opened = "(x[h,0] - m[h])*(x[h,0] - m[h])", "x[h,0]*x[h,0] - 2*x[h,0]*m[h] + m[h]*m[h]"
    before, after = parse(f"{head} {square}"), parse(f"{head} select(h-{place}>=0 & {place}-h>=0, {opened}, {square})")
    assert not survives(before, after) and survives(before, before)


@pytest.mark.parametrize("loops", ["", "h<6", "h<6,k<8"])
def test_boxes_of_any_rank(loops: str) -> None:
    place = {"": "0,0", "h<6": "h,0", "h<6,k<8": "h,k"}[loops]
    before, after = (parse(f"x : f32[6,8]\nw : f32[6,8]\nL[{loops}] {text}") for text in (
        f"(x[{place}] - w[0,0])*(x[{place}] - w[0,0])", f"x[{place}]*(x[{place}] - w[0,0]) - w[0,0]*(x[{place}] - w[0,0])",
    ))  # fmt: skip
    assert not survives(before, after) and survives(before, before)


def test_either_side_may_be_too_large() -> None:
    small, large = (parse(f"x : f32[6,8]\nL[h<6] Σ[k<{size}] x[h,0] - x[h,1]") for size in (8, 1 << 17))
    assert not survives(small, large) and not survives(large, small)


@pytest.mark.parametrize(("text", "kinds"), [
    ("Σ[k<8] (x[h,k] - m[h])*(x[h,k] - m[h])", {"factor=0": "precision", "factor=1": "precision"}),
    ("Σ[k<8] (x[h,k] - m[h])*(x[h,k] + m[h])", {"factor=0": "reassociation", "factor=1": "reassociation"}),
    ("Σ[k<8] x[h,k]*(x[h,k] - m[h])", {"factor=1": "reassociation"}),
    ("Σ[k<8] w[k]*(x[h,k] - m[h])", {"factor=1": "reassociation"}),
    ("Σ[k<8] {L[h<6,k<8] x[h,k] - m[h]}[h,k]*(y[h,k] - n[h])", {"factor=1": "precision"}),
    ("Σ[k<8] exp(x[h,k] - m[h])*(y[h,k] - n[h])", {"factor=1": "precision"}),
    ("Σ[k<8] abs(x[h,k] - m[h])*(y[h,k] - n[h])", {"factor=1": "precision"}),
    ("Σ[k<8] (x[h,k] + m[h])*(x[h,k] + m[h])", {"factor=0": "reassociation", "factor=1": "reassociation"}),
])  # fmt: skip
def test_the_class_of_a_product_that_is_opened(text: str, kinds: dict[str, str]) -> None:
    start = parse(f"{DECLARED}L[h<6] {text}")
    found = list(distribute.rewrites(start))
    assert {r.parameters: r.kind for r in found} == kinds
    for r in found:
        (proof,) = check(Derivation(start, (Step("distribute", r.parameters, start, r.scope, kind=r.kind, bound=r.bound),)))
        assert proof.kind == r.kind


SOURCES = {
    **{name: pair[0] for name, pair in (*KEPT.items(), *LOST.items(), *SHIFTS.items()) if "4096" not in pair[0]},
    "a normalisation": f"w[2]*(x[h,2] - {MEAN}) / sqrt(1/8*{VARIANCE} + 1/100000)",
    "differences of neighbours": "Σ[k<7] w[k]*(x[h,k+1] - x[h,k])",
    "squares of differences of neighbours": "Σ[k<7] (x[h,k+1] - x[h,k])*(x[h,k+1] - x[h,k])",
    "distances": "Σ[k<8] (x[h,k] - y[h,k])*(x[h,k] - y[h,k])*w[k]",
    "a mean of means": f"Σ[k<8] ({MEAN} - x[h,k])*w[k]/m[h]",
}


def paths(scope: Scope, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    yield prefix
    for n, inner in enumerate(nested(scope)):
        yield from paths(inner, (*prefix, n))


@pytest.mark.parametrize("name", SOURCES)
def test_single_precision_of_what_is_no_other_algorithm(name: str) -> None:
    """Large means and small deviations: all that a rule makes, but for what it calls precision, errs in single precision by no more than a few times
    the limit of its left side."""
    start = parse(f"{DECLARED}L[h<6] {SOURCES[name]}")
    random = np.random.default_rng(0)
    for mean, spread in ((1.0, 0.001), (60.0, 0.02)):
        arrays = {t.name: (mean + spread * random.random(t.shape)).astype(np.float32) for t in tensors(start).values() if t.values is None}
        value, limit = bounded_at(start, POINTS, arrays, {n: UNIT * float(np.abs(a).max()) for n, a in arrays.items()})
        assert np.isfinite(limit).all()
        for path in paths(start):
            for rule in RULES:
                for found in rule.rewrites(subscope(start, path)):
                    if found.kind == "precision" or found.scope.box != subscope(start, path).box:
                        continue
                    whole = replace_at(start, path, found.scope)
                    apart = np.abs(evaluate(whole, arrays, "float32").astype(np.float64).reshape(-1) - value)
                    assert (apart <= 4 * limit).all(), (rule.name, found.parameters, found.kind, apart / limit)


@pytest.mark.parametrize("largest", [1.0, 1e18, 3e18, 1e19, 2e19, 1e30, 3e38])
def test_sums_of_products_err_at_once_as_they_do_in_steps(largest: float) -> None:
    """Values and errors are those of product by product; what is beyond the largest number of single precision has no bound either way."""
    generator = np.random.default_rng(int(np.log10(largest)))
    system = Conditioned()
    for shape, left, right in (((3, 5, 7), (3, 1, 7), (1, 5, 7)), ((2, 3, 5, 4), (2, 3, 1, 4), (2, 1, 5, 4)), ((4, 6), (4, 6), (1, 6))):
        factors = [pair(generator.normal(size=n), np.abs(generator.normal(size=n)) * 2.0**-24) for n in (left, right)]
        factors[0] = factors[0] * largest
        factors[1] = factors[1] * min(largest, 3e38 / largest if largest > 2e19 else largest)
        at_once, in_steps = (contract(factors, len(shape) - 1, shape) for contract in (system.contract, lambda *a: uncontracted(system, *a)))
        (value, error), (expected, bound) = parts(at_once), parts(in_steps)
        assert np.array_equal(np.isinf(error), np.isinf(bound))
        assert np.allclose(value, expected, rtol=1e-12) and np.allclose(error, bound, rtol=1e-9)
