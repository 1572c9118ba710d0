"""A step of class exact may move numbers, not add or multiply them in other groups: the checker finds out."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest import mock

import pytest

from einnet.derivation.checker.cases import Part, restricted
from einnet.derivation.checker.check import FEWEST_POINTS, Difference, Proof, _grouped_alike_by_cases, check, check_equal, check_exact
from einnet.derivation.checker.exact import marked
from einnet.derivation.rules.forced.fold import fold
from einnet.derivation.rules.forced.merge import merge
from einnet.derivation.steps import Derivation, Step
from einnet.errors import CertificateError
from einnet.expr.index import bounds, var
from einnet.expr.nodes import Add, Call, Tensor, reads, walk
from einnet.expr.normal.limits import OutOfReach
from einnet.expr.notation.text import parse
from einnet.expr.partings import apart, partings
from einnet.expr.values.points import work

DECLARED = "A : f32[8,9]\nB : f32[9,5]\nu : f32[8]\nv : f32[8]\nw : f32[8]\n"

REGROUPED = {
    "a sum cut in two": ("L[h<8] Σ[k<9,n<5] A[h,k]*B[k,n]", "L[h<8] Σ[k<9] {L[h<8,k<9] Σ[n<5] A[h,k]*B[k,n]}[h,k]"),
    "a factor taken out of a sum": ("L[h<8] Σ[k<9] u[h]*A[h,k]", "L[h<8] u[h]*{L[h<8] Σ[k<9] A[h,k]}[h]"),
    "a product distributed": ("L[h<8] (u[h] + v[h])*w[h]", "L[h<8] u[h]*w[h] + v[h]*w[h]"),
    "terms regrouped": ("L[h<8] {L[h<8] u[h] + v[h]}[h] + w[h]", "L[h<8] u[h] + {L[h<8] v[h] + w[h]}[h]"),
    "factors regrouped": ("L[h<8] {L[h<8] u[h]*v[h]}[h]*w[h]", "L[h<8] u[h]*{L[h<8] v[h]*w[h]}[h]"),
    "equal terms counted": ("L[h<8] Σ[k<5] u[h]", "L[h<8] 5*u[h]"),
    "factors regrouped under a function": ("L[h<8] relu({L[h<8] u[h]*v[h]}[h]*w[h])", "L[h<8] relu(u[h]*{L[h<8] v[h]*w[h]}[h])"),
    "constants combined": ("L[h<8] 3*{L[h<8] 5*u[h]}[h]", "L[h<8] 15*u[h]"),
}
ALIKE = {
    "loops exchanged": ("L[h<8,n<5] Σ[k<9] A[h,k]*B[k,n]", "L[h<8,n<5] {L[n<5,h<8] Σ[k<9] A[h,k]*B[k,n]}[n,h]"),
    "an operand copied": ("L[h<8,n<5] Σ[k<9] A[h,k]*B[k,n]", "L[h<8,n<5] Σ[k<9] {L[k<9,h<8] A[h,k]}[k,h]*B[k,n]"),
    "zeros added": ("L[h<8,n<5] Σ[k<9] A[h,k]*B[k,n]", "L[h<8,n<5] Σ[-2<=k<12] A[h,k]*B[k,n]"),
    "disjoint pieces": ("L[h<8] Σ[k<9] A[h,k]", "L[h<8] {L[h<3] Σ[k<9] A[h,k]}[h] + {L[h<5] Σ[k<9] A[h+3,k]}[h-3]"),
    "operands exchanged": ("L[h<8] u[h]*v[h] + w[h]", "L[h<8] w[h] + v[h]*u[h]"),
    "a sum over one more iterator, of one value": ("L[h<8] Σ[k<9,l<1] A[h,k]", "L[h<8] Σ[k<9] A[h,k]"),
    "one times": ("L[h<8] 1*u[h]", "L[h<8] u[h]"),
    "zeros read elsewhere beside pieces": (
        "L[h<8] Σ[k<9] A[h,k] + {L[x<8] select(x>=8, u[x], 0)}[h]",
        "L[h<8] {L[h<3] Σ[k<9] A[h,k]}[h] + {L[h<5] Σ[k<9] A[h+3,k]}[h-3] + {L[x<8] select(x>=8, u[x], 0)}[7-h]",
    ),
    "zero and": ("L[h<8] u[h] + 0", "L[h<8] u[h]"),
    "one times a product": ("L[h<8] 1*u[h]*v[h] + 0", "L[h<8] v[h]*u[h]"),
    "nothing times what exists as its denominator adds up numbers above 0": (
        "L[h<8] Σ[k<9] 0*{L[h<8] u[h] / {L[h<8] Σ[k<9] exp(A[h,k])}[h]}[h]*A[h,k]", "L[h<8] 0"
    ),
    "a sum of one term": ("L[h<8] Σ[k<9] u[h-8*k]", "L[h<8] u[h]"),
}

EVALUATED = {"a sum of one term"}
"""Those whose marked forms are not one, nor case by case."""


def derivation(before: str, after: str, kind: str) -> Derivation:
    start = parse(DECLARED + before)
    return Derivation(start, (Step("claimed", "", start, parse(DECLARED + after), kind=kind),))


@pytest.mark.parametrize("name", REGROUPED)
def test_other_groups_are_no_exact_step(name: str) -> None:
    check(derivation(*REGROUPED[name], "reassociation"))
    with pytest.raises(CertificateError, match=r"step 1 \(claimed\): it is of class exact, but adds or multiplies in other groups") as caught:
        check(derivation(*REGROUPED[name], "exact"))
    assert re.search(r"differ at \[[^]]*\]: \d+ before, \d+ after \(modulo 2\^61-1", str(caught.value)), "values of marks mean nothing over the reals"


def test_groups_are_told_apart_where_residues_have_few_values() -> None:
    """Of residues a sign is one of two values: one evaluation, or a few, agree by chance."""
    for n in range(40):
        before, after = (parse(f"a{n} : f32[1]\nL[i<1] {text}") for text in (f"sign(a{n}[i])", f"less(0, a{n}[i]) + (-1)*less(a{n}[i], 0)"))
        with pytest.raises(CertificateError, match="adds or multiplies in other groups"):
            check_exact(before, after, check_equal(before, after))


@pytest.mark.parametrize("name", ALIKE)
def test_moves_are_exact_steps(name: str) -> None:
    (proof,) = check(derivation(*ALIKE[name], "exact"))
    if name == "operands exchanged":
        assert "equal but for names and order" in proof.details
    else:
        said = proof.details.split("; ")[1]
        assert said.startswith("operations grouped alike at ") if name in EVALUATED else said == "operations grouped alike"
    assert proof.kind == "exact"


def test_nothing_times_what_need_not_exist_is_not_left_out() -> None:
    """Not where a whole is told, nor where it is marked."""
    one, other = (parse(f"{DECLARED}L[h<8] {text}") for text in ("0*{L[h<8] u[h] / v[h]}[h]", "0"))
    for sides in ((one, other), (marked(one), marked(other))):
        with pytest.raises(Difference):
            check_equal(*sides)


def test_what_is_not_told_is_of_the_worst_class() -> None:
    """A function that only one side has: how its argument grows is compared with nothing."""
    (proof,) = check(derivation("L[h<8] u[h]", "L[h<8] u[h]*exp(0*v[h])", "reassociation"))
    assert proof.kind == "precision" and "is not told: exp is new" in proof.details


@pytest.mark.parametrize(("rule", "text", "kind"), [
    (fold, "L[h<8] 1*u[h] + 0", "exact"), (fold, "L[h<8] 3*5*u[h]", "reassociation"), (fold, "L[h<8] Σ[k<5] u[h]", "reassociation"),
    (fold, "L[h<8] u[h]*v[h+8]|1", "reassociation"), (fold, "L[h<8] u[h]*(v[h+8]|1 + w[h+8]|1)", "reassociation"),
    (fold, "L[h<8] u[h] + v[h+8]", "exact"),
    (fold, "L[h<1] Σ[2<=k<4] u[h+k//2]", "reassociation"),
    (merge, "L[h<8] relu({L[h<8] u[h] + v[h]}[h])", "exact"), (merge, "L[h<8] {L[h<8] u[h] + v[h]}[h] + w[h]", "reassociation"),
    (merge, "L[h<8] {L[h<8] Σ[k<9] A[h,k]}[h]", "exact"), (merge, "L[h<8] u[h]*{L[h<8] Σ[k<9] A[h,k]}[h]", "reassociation"),
])  # fmt: skip
def test_rules_say_the_class_of_what_they_did(rule, text: str, kind: str) -> None:  # type: ignore[no-untyped-def]
    (found,) = rule.rewrites(parse(DECLARED + text))
    assert found.kind == kind


@pytest.mark.parametrize("told", [True, False])
def test_what_both_sides_read_is_cut_away_where_the_whole_is_too_much(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    """A sum of one term that is a sum itself: without that, few enough evaluations to tell."""
    inner = "{L[h<8,k<9] Σ[n<5] A[h,n]*B[k,n]}"
    claimed = derivation(f"L[h<8] Σ[k<9] {inner}[h-8*k,3]", f"L[h<8] {inner}[h,3]", "exact")
    (step,) = claimed.steps
    cut, whole = (
        max(work(marked(s, True), FEWEST_POINTS) for s in sides) for sides in (apart(step.before, step.after), (step.before, step.after))
    )  # fmt: skip
    assert cut < whole
    monkeypatch.setattr("einnet.derivation.checker.check._BUDGET", cut if told else cut - 1)
    (proof,) = check(claimed)
    assert ("operations grouped alike at" in proof.details) == told and ("is not told" in proof.details) != told
    assert proof.kind == ("exact" if told else "reassociation")


SCORES = "Q : f32[8,3]\nK : f32[8,3]\nV : f32[8,5]\n"


def masked(rows: str, keys: str) -> str:
    """Rows of a causal softmax times values, over some keys."""
    score = f"{{L[{rows},n<{keys}] {{L[{rows},n<{keys}] Σ[k<3] Q[h,k]*K[n,k]}}[h,n] + select(h-n>=0, 0, -inf)}}"
    raised = f"{{L[{rows},n<{keys}] exp({score}[h,n] + -1*{{L[{rows}] max[n<{keys}] {score}[h,n]}}[h])}}"
    return f"L[{rows},d<5] Σ[n<{keys}] {{L[{rows},n<{keys}] {raised}[h,n] / {{L[{rows}] Σ[n<{keys}] {raised}[h,n]}}[h]}}[h,n]*V[n,d]"


@pytest.mark.parametrize(("keys", "last", "refusal"), [
    ("4", "V[n,d]", None), ("4", "{L[n<8,d<5] 1*V[n,d] + 0}[n,d]", None), ("3", "V[n,d]", "differ"),
    ("4", "({L[n<8,d<5] 2*V[n,d]}[n,d]/2)", "in other groups"),
])  # fmt: skip
def test_blocks_of_a_masked_softmax_are_exact_case_by_case(keys: str, last: str, refusal: str | None) -> None:
    """What is masked for all rows of a block is added to nothing, whatever it stands beside; whole and blocks have no normal form in common."""
    blocks = [masked("h<4", keys), masked("4<=h<8", "8").replace("V[n,d]", last)]
    before, after = parse(SCORES + masked("h<8", "8")), parse(SCORES + "L[h<8,d<5] " + " + ".join(f"{{{b}}}[h,d]" for b in blocks))
    claimed = Derivation(before, (Step("claimed", "", before, after, kind="exact"),))
    if refusal is not None:
        with pytest.raises(CertificateError, match=refusal):
            check(claimed)
        return
    (proof,) = check(claimed)
    assert _grouped_alike_by_cases(before, after), "also without what both read"
    assert (proof.kind, proof.cases) == ("exact", 2)
    assert proof.details == "equal normal forms in each of 2 cases; operations grouped alike"


@pytest.mark.parametrize("cases", [1, 2])
@pytest.mark.parametrize("name", REGROUPED)
def test_what_has_no_normal_form_is_not_grouped_alike(name: str, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that is out of reach shows nothing, neither of the whole nor of its cases: what is grouped otherwise stays refused."""
    before, after = (parse(DECLARED + text) for text in REGROUPED[name])
    proof = replace(check_equal(before, after), cases=cases)
    monkeypatch.setattr("einnet.derivation.checker.check.inline", mock.Mock(side_effect=OutOfReach))
    with pytest.raises(Difference, match="in other groups"):
        check_exact(before, after, proof)


@pytest.mark.parametrize(("first", "count", "read"), [(0, 3, 1), (0, 4, 3), (3, 2, 2), (3, 3, 2), (5, 1, 1), (6, 2, 0)])
def test_a_case_reads_no_block_that_has_nothing_of_it(first: int, count: int, read: int) -> None:
    """What is read beyond its box everywhere is the number that stands there, and is marked as that."""
    blocks = "L[h<8] {L[h<3] u[h]}[h] + {L[3<=h<5] v[h]}[h] + {L[h<3] w[h]}[h-3]|7"
    chosen = "L[h<8] select(2-h>=0, u[h], 0) + select(h-3>=0 & 4-h>=0, v[h], 0) + select(h-3>=0 & 5-h>=0, w[h-3], 7)"
    found, told = (restricted(parse(DECLARED + text), (Part(first, count, 1),)) for text in (blocks, chosen))
    assert len(list(reads(found.body))) == read
    assert check_equal(found, told)


def test_common_scopes_are_read_where_they_were() -> None:
    """A scope whose box begins below 0 becomes a tensor, whose box begins at 0."""
    inner = "{L[-2<=x<5] A[x+2,x+3]}"
    one, other = apart(parse(f"{DECLARED}L[h<8] {inner}[h-2]"), parse(f"{DECLARED}L[h<8] 2*{inner}[h-1]"))
    assert [(r.index, r.base.shape) for s in (one, other) for r in reads(s.body)] == [((var("h"),), (7,)), ((var("h") + 1,), (7,))]


def test_marks_are_fine_or_coarse() -> None:
    """Coarse ones hide a whole sum in a function; fine ones keep it and add one of its squares."""
    sums = parse(f"{DECLARED}L[h<8] Σ[k<9] A[h,k]")
    coarse, fine = marked(sums), marked(sums, True)
    assert isinstance(coarse.body, Call) and len(list(reads(coarse.body))) == 1
    assert isinstance(fine.body, Add) and len(list(reads(fine.body))) == 4


def test_one_side_with_an_order_is_enough_for_many_evaluations() -> None:
    """A copy adds nothing; by four evaluations a fifth of these would pass."""
    for k in range(1, 41):
        sides = [parse(f"A : f32[4]\nL[h<1] {text}") for text in ("A[h]", f"max(A[h], A[h]-{k})")]
        for before, after in (sides, sides[::-1]):
            with pytest.raises(Difference, match="in other groups"):
                check_exact(before, after, Proof("inline", ""))


@pytest.mark.parametrize("value", ["1/u[h]", "log(u[h])", "1/(v[h] + u[h])"])
def test_zero_times_what_both_sides_read_is_zero_only_where_that_is_a_number(value: str) -> None:
    """What both read unchanged is cut away as a tensor, which is a number everywhere: 0/0 beyond the box of w is none."""
    part = f"{{L[h<8] {value}}}[h]"
    one, other = (parse(f"{DECLARED}L[h<8] {body}") for body in (f"{part}*w[h-1]", f"select(h-1>=0, {part}*w[h-1], 0)"))
    with pytest.raises(Difference, match=r"differ at \[h=0\]: undefined before, 0 after"):
        check_equal(one, other)


@pytest.mark.parametrize("value", ["exp(u[h])", "1/(1 + exp(u[h]))", "u[h]*v[h]"])
def test_zero_times_a_number_is_zero(value: str) -> None:
    part = f"{{L[h<8] {value}}}[h]"
    one, other = (parse(f"{DECLARED}L[h<8] {body}") for body in (f"{part}*w[h-1]", f"select(h-1>=0, {part}*w[h-1], 0)"))
    assert check_equal(one, other).method == "inline"
    assert [type(r.base).__name__ for r in reads(apart(one, other, numbers=True)[0].body)] == ["Tensor", "Tensor"]


def test_what_one_side_reads_once_more_is_what_the_other_reads_in_another_way() -> None:
    """Without the scope that both read, what is left would differ: once as a tensor, once as it stands."""
    inner = "{L[h<8] exp(u[h])}"
    one, other = (parse(f"{DECLARED}L[h<8] {{L[h<8] {inner}[h]*v[h]}}[h]*{again}") for again in (
        f"erf({{L[h<8,n<1] {inner}[h]*v[h]}}[h,0])", f"erf({{L[h<8] {inner}[h]*v[h]}}[h])"))
    all_cut, evenly, whole = partings(one, other, numbers=True)
    assert whole == (one, other)
    assert all_cut[0].key != all_cut[1].key
    assert [[r.base.name for r in reads(s.body) if isinstance(r.base, Tensor)] for s in all_cut] == [[mock.ANY], [mock.ANY, mock.ANY]]
    assert not any("exp" in s.text() for s in evenly) and all("*v[h]" in s.text() for s in evenly)
    assert check_equal(one, other).method == "inline"
    assert partings(one, one) == (apart(one, one), (one, one))


@pytest.mark.parametrize("value", ["u[h+1]/v[h+1]", "log(u[h+1])", "relu(u[h+1]) / {L[h<8] Σ[k<9] A[h,k]}[h+1]"])
def test_what_may_not_exist_is_cut_away_as_what_may_not_exist(value: str) -> None:
    """A step beside a quotient is proven without it, and one that needs a number there is not."""
    part = f"{{L[-1<=h<7] {value}}}"
    one, other, wrong = (parse(f"{DECLARED}L[h<7] {part}[h]*{body}") for body in ("w[h] + v[h]", "w[h] + 1*v[h]", "w[h]"))
    cut = apart(one, other, numbers=True)
    assert all("log(scope_" in s.text() and "/" not in s.text() and "A[" not in s.text() for s in cut)
    assert check_equal(*cut).method == check_equal(one, other).method == "inline"
    filled, empty = (parse(f"{DECLARED}L[h<7] {part}[h-2]{fill}*w[h]") for fill in ("|2", ""))
    for sides in ((one, wrong), apart(one, wrong, numbers=True), (filled, empty), apart(filled, empty, numbers=True)):
        with pytest.raises(Difference):
            check_equal(*sides)
    (stand_in,) = [s for s in walk(cut[0]) if s.box == ((-1, 7),)]
    assert {bounds(ix, stand_in.ranges) for r in reads(stand_in.body) for ix in r.index} == {(0, 7)}


@pytest.mark.parametrize(("body", "rest"), [
    ("{0} - {0} + v[h]*{0}", "v[h]*{0}"), ("0*{0} + {0}*v[h]", "{0}*v[h]"), ("w[h]*(0*{0} + {0})", "w[h]*{0}"),
])  # fmt: skip
def test_what_is_cut_away_cancels_where_the_rest_is_none_without_it(body: str, rest: str) -> None:
    """0 times what may not exist is left out where something else on that side is none with it, and not where nothing is."""
    part = "{L[h<8] u[h]/w[h]}[h]"
    one, other = (parse(f"{DECLARED}L[h<8] {text.format(part)}") for text in (body, rest))
    none = parse(f"{DECLARED}L[h<8] select(h-4>=0, {rest.format(part)}, 0)")
    assert check_equal(*apart(one, other, numbers=True)).method == check_equal(one, other).method == "inline"
    for sides in ((one, none), apart(one, none, numbers=True)):
        with pytest.raises(Difference):
            check_equal(*sides)


def test_what_lies_beyond_a_scope_that_is_not_cut_is_told_apart() -> None:
    """The two read a scope in common inside one that they do not, and that with other fills."""
    common = "{L[h<7] exp(u[h])}[h]"
    one, other = (
        parse(f"{DECLARED}L[h<7] {{L[h<7] {body}}}[h-2]{fill}") for body, fill in ((f"{common}*w[h]", "|2"), (f"1*w[h]*{common}", ""))
    )
    cut = apart(one, other, numbers=True)
    assert all("exp" not in s.text() for s in cut)
    for sides in ((one, other), cut):
        with pytest.raises(Difference):
            check_equal(*sides)


def test_what_is_not_cut_is_what_it_was() -> None:
    """What may be infinite stays: it is no logarithm of a number."""
    one, other = (parse(f"{DECLARED}L[h<8] {{L[h<8] select(h-3>=0, u[h], -inf)}}[h] + {body}") for body in ("v[h]", "w[h]"))
    assert apart(one, other, numbers=True) == (one, other)
    assert [type(r.base).__name__ for r in reads(apart(one, other)[0].body)][:1] == ["Tensor"]


def test_a_maximum_of_windows_that_have_an_element_is_cut_away() -> None:
    """It is a number wherever it is read, though what lies beyond is -inf: a step beside it is proven without it."""
    declared = "X : f32[9,12]\nW : f32[3]\n"
    pooled = "{L[i<9,h<6] max[r<2] {L[i<9,h<12] relu(X[i,h]+1)}[i,2*h+r]|-inf}"
    one, other = (parse(declared + text.format(pooled)) for text in ("L[i<9,h<4] Σ[s<3] {}[i,h+s]*W[s]", "L[i<9,h<4] Σ[s<3] {}[i,h+2-s]*W[2-s]"))
    cut = apart(one, other, numbers=True)
    assert all(not s.nested for s in cut)
    assert check_equal(*cut).method == "inline"
