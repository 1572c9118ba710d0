"""Sums of one function over the same places are proven equal however the places are walked, and no others are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.derivation.checker import point_sets
from einnet.derivation.checker.check import check, check_bound, check_equal
from einnet.derivation.checker.point_sets import equal_as_sets, gathered
from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.rules.chunk import chunk
from einnet.derivation.rules.triangle import triangle
from einnet.derivation.steps import Derivation, Step
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope, tensors
from einnet.expr.normal.inline import terms_of
from einnet.expr.normal.limits import OutOfReach
from einnet.expr.normal.terms import Term
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.search.work import flops

HEAD = "X : f32[16]\nP : f32[16]\nA : f32[16]\nB : f32[16]\n"
WHOLE = "L[t<16] Σ[s<16] select(t-s>=0, X[s], 0)"
CHUNKS = (
    "L[t<16] {L[i<4,a<4] Σ[b<4] select(a-b>=0, X[4*i+b], 0)}[t//4,t%4]"
    " + {L[i<4] Σ[j<4] select(i-j-1>=0, {L[j<4] Σ[b<4] X[4*j+b]}[j], 0)}[t//4]"
)
DECAY = "L[t<16] Σ[s<16] select(t-s>=0, exp(P[t]-P[s])*X[s], 0)"
CHUNKED_DECAY = (
    "L[t<16] {L[i<4,a<4] Σ[b<4] select(a-b>=0, exp(P[4*i+a]-P[4*i+b])*X[4*i+b], 0)}[t//4,t%4]"
    " + {L[t<16] exp(P[t]-P[4*(t//4)-1])}[t]*{L[i<4] Σ[j<4] select(i-j-1>=0, exp(P[4*i-1]-P[4*j+3])"
    "*{L[j<4] Σ[b<4] exp(P[4*j+3]-P[4*j+b])*X[4*j+b]}[j], 0)}[t//4]"
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (WHOLE, CHUNKS),
        (DECAY, CHUNKED_DECAY),
        ("L[t<13] Σ[w<4] X[t+w]",
         "L[t<13] {L[i<4,a<4] Σ[b<4] select(b-a>=0, X[4*i+b], 0)}[t//4,t%4] + {L[i<4,a<4] Σ[b<4] select(a-b-1>=0, X[4*i+4+b], 0)}[t//4,t%4]"),
        ("L[t<8] Σ[s<16] X[s]*P[t+s]",
         "L[t<8] {L[t<8] Σ[s<8] X[s]*P[t+s]}[t] + {L[t<8] Σ[s<8] X[s+8]*P[t+s+8]}[t]"),
        ("L[t<4] Σ[s<16] (X[s]+A[t]*B[s])", "L[t<4] {L[t<4] Σ[s<7] (X[s]+A[t]*B[s])}[t] + {L[t<4] Σ[7<=s<16] (X[s]+A[t]*B[s])}[t]"),
    ],
)  # fmt: skip
def test_places_walked_otherwise_are_proven(one: str, other: str) -> None:
    for before, after in ((one, other), (other, one)):
        assert equal_as_sets(parse(HEAD + before), parse(HEAD + after))
        assert check_equal(parse(HEAD + before), parse(HEAD + after)).method == "inline"


@pytest.mark.parametrize(("text", "found"), [
    ("2*val(h) + 3*val(k)", "val(2*h+3*k)"), ("A[h]*val(h)*2 + A[h]*val(k)", "val(2*h+k)*A[h]"), ("val(h)/2 + A[h]", "val(h) / 2 + A[h]"),
    ("relu(2*val(h) + val(k))", "relu(val(2*h+k))"), ("A[h] + 3", "A[h] + 3"), ("A[h]", "A[h]"), ("val(h)*val(k)", "val(h)*val(k)"),
    ("5*A[h] + A[h]*2", "7*A[h]"), ("5*A[h] + (-4)*A[h]", "A[h]"), ("3 + (-2) + A[h]", "1 + A[h]"), ("1/2*val(h)*val(k)*3", "val((3*h)/2)*val(k)"),
    ("A[h]*B[k]*2 + 1/2*A[h]*B[k]*val(h)", "val((h+4)/2)*A[h]*B[k]"), ("(2/3)*A[h]*val(h)", "val((2*h)/3)*A[h]"),
    ("2*select(h-2>=0, A[h], -inf) + 3*select(h-2>=0, A[h], -inf) + val(k)", "2*select(h-2>=0, A[h], -inf) + 3*select(h-2>=0, A[h], -inf) + val(k)"),
])  # fmt: skip
def test_multiples_of_one_are_gathered(text: str, found: str) -> None:
    scope = parse(f"{HEAD}L[h<4,k<4] {text}")
    assert replace(scope, body=gathered(scope.body)).text() == f"L[h<4,k<4] {found}"


def test_a_place_that_is_reached_twice_is_no_place_of_a_union() -> None:
    once = parse(HEAD + "L[t<4] Σ[s<16] X[s]*A[t]")
    twice = parse(HEAD + "L[t<4] {L[t<4] Σ[s<8] X[s]*A[t]}[t] + {L[t<4] Σ[s<8,r<2] X[8+s]*A[t]}[t]")
    again = parse(HEAD + "L[t<4] {L[t<4] Σ[s<12] X[s]*A[t]}[t] + {L[t<4] Σ[s<8] X[8+s]*A[t]}[t]")
    along = parse(HEAD + "L[t<4] {L[t<4] Σ[s<8] X[s]*A[t]}[t] + {L[t<4] Σ[s<7,r<2] X[8+s+r]*A[t]}[t]")
    for wrong in (twice, again, along):
        assert equal_as_sets(once, wrong) is equal_as_sets(wrong, once) is False


def test_what_has_no_terms_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def beyond(scope: Scope) -> list[Term]:
        raise OutOfReach("too large")

    monkeypatch.setattr(point_sets, "terms_of", beyond)
    assert equal_as_sets(parse(HEAD + WHOLE), parse(HEAD + CHUNKS)) is False


def test_so_many_terms_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """On either side."""
    whole, chunks = parse(HEAD + WHOLE), parse(HEAD + CHUNKS)
    most = len(terms_of(chunks))
    assert most > len(terms_of(whole))
    for limit, proven in ((most, True), (most - 1, False)):
        monkeypatch.setattr(point_sets, "MOST_TERMS", limit)
        assert equal_as_sets(whole, chunks) is equal_as_sets(chunks, whole) is proven


def test_what_both_sides_read_unchanged_is_a_factor_like_a_tensor() -> None:
    """A sum within a function has places of its own, unless both sides have it as it is."""
    shared = r"relu({L[k<16] Σ[j<16] A[j]*B[k+j]}[\1])"
    before, after = (parse(HEAD + re.sub(r"X\[([^\]]*)\]", shared, text)) for text in (WHOLE, CHUNKS))
    more = (parse(f"{HEAD}L[t<16] {scope.text().partition(' ')[2]} + {{L[t<16] Σ[s<3] P[s+t]}}[t]") for scope in (before, after))
    assert not equal_as_sets(before, after) and not equal_as_sets(*more)
    assert check_equal(before, after).method == "inline"


def test_all_products_have_their_places() -> None:
    """One of two is not enough."""
    both = parse(HEAD + "L[t<4] Σ[s<12] (X[s]*A[t] + P[s]*B[t])")
    for x, p, equal in ((5, 5, True), (5, 6, False), (6, 5, False)):
        parts = [f"{{L[t<4] Σ[s<5] {f}}}[t] + {{L[t<4] Σ[{n}<=s<12] {f}}}[t]" for f, n in (("X[s]*A[t]", x), ("P[s]*B[t]", p))]
        cut = parse(f"{HEAD}L[t<4] {' + '.join(parts)}")
        assert equal_as_sets(both, cut) is equal_as_sets(cut, both) is equal


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a-b>=0", "a-b-1>=0"), ("a-b>=0", "a-b+1>=0"), ("i-j-1>=0", "i-j>=0"), ("i-j-1>=0", "i-j-2>=0"), ("Σ[b<4] X", "Σ[b<3] X"),
        ("X[4*j+b]", "X[4*j+b+1]"), ("[t//4,t%4]", "[t//4,(t+1)%4]"),
        ("+ {", "- {"), ("+ {", "+ 2*{"), ("Σ[j<4]", "Σ[1<=j<4]"), ("X[4*i+b]", "P[4*i+b]"),
    ],
)  # fmt: skip
def test_a_change_anywhere_is_no_proof(old: str, new: str) -> None:
    assert CHUNKS.count(old) >= 1
    changed = parse(HEAD + CHUNKS.replace(old, new, 1))
    assert not equal_as_sets(parse(HEAD + WHOLE), changed)
    with pytest.raises(CertificateError):
        check_equal(parse(HEAD + WHOLE), changed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("L[t<4] Σ[s<4] exp(A[t]+B[s])", "L[t<4] Σ[s<4] exp(B[t]+A[s])"),
        ("L[t<4] Σ[s<20] exp(X[s+t])", "L[t<4] Σ[s<20] exp(X[s+t]|1)"),
        ("L[t<4] Σ[s<4] X[t]", "L[t<4] Σ[s<4] X[s]"),
        ("L[t<4] Σ[s<8] X[s//2]", "L[t<4] Σ[s<4] X[s]"),
        ("L[t<4] Σ[s<8] exp(select(s-4>=0, X[s], -inf))", "L[t<4] Σ[s<8] exp(select(s-4==0, X[s], -inf))"),
        ("L[t<4] Σ[s<8] exp(val(s)/2)*X[s]", "L[t<4] Σ[s<8] exp(val(s)/3)*X[s]"),
        ("L[t<4] Σ[s<8] exp({L[t<4] Σ[u<8] X[u]}[t])*X[s]", "L[t<4] Σ[s<8] exp({L[t<4] Σ[u<7] X[u]}[t])*X[s]"),
    ],
)  # fmt: skip
def test_what_is_not_said_by_places_is_compared(one: str, other: str) -> None:
    assert not equal_as_sets(parse(HEAD + one), parse(HEAD + other))


def test_a_place_that_is_reached_twice_is_no_proof() -> None:
    """Both unions are the same; the sums are not."""
    twice = "L[t<4] {L[t<4] Σ[s<5] X[s]}[t] + {L[t<4] Σ[4<=s<8] X[s]}[t]"
    assert not equal_as_sets(parse(HEAD + "L[t<4] Σ[s<8] X[s]"), parse(HEAD + twice))
    assert not equal_as_sets(parse(HEAD + twice), parse(HEAD + twice.replace("s<5", "s<6")))


def test_loops_may_have_other_names() -> None:
    renamed = "L[s<16] Σ[t<16] select(s-t>=0, X[t], 0)"
    assert equal_as_sets(parse(HEAD + renamed), parse(HEAD + CHUNKS))
    assert equal_as_sets(parse(HEAD + CHUNKS), parse(HEAD + renamed))


@given(st.integers(2, 17), st.integers(2, 6), st.integers(-2, 2), st.integers(-1, 1))
def test_chunks_of_any_length_with_any_offset(length: int, chunk: int, offset: int, wrong: int) -> None:
    """Σ over s <= t + offset, cut at multiples of a chunk: right exactly where nothing is left out or counted twice."""
    count = -(-length // chunk)
    head = f"X : f32[{length}]\n"
    whole = parse(head + f"L[t<{length}] Σ[s<{length}] select(t-s+{offset}>=0, X[s], 0)")
    within = f"{{L[t<{length}] Σ[s<{length}] select(t-s+{offset}>=0 & s-{chunk}*(t//{chunk})+{wrong}>=0, X[s], 0)}}[t]"
    before = f"{{L[i<{count}] Σ[s<{length}] select({chunk}*i-1-s>=0 & {chunk}*i+{chunk - 1}+{offset}-s>=0, X[s], 0)}}[t//{chunk}]"
    cut = parse(head + f"L[t<{length}] {within} + {before}")
    table = [sum(1 for s in range(length) if s <= t + offset) for t in range(length)]
    inside = [sum(1 for s in range(length) if s <= t + offset and s >= chunk * (t // chunk) - wrong) for t in range(length)]
    ahead = [sum(1 for s in range(length) if s < chunk * (t // chunk) and s <= chunk * (t // chunk) + chunk - 1 + offset) for t in range(length)]
    right = all(a + b == c for a, b, c in zip(inside, ahead, table))
    if not right:
        assert not equal_as_sets(whole, cut)
    elif offset >= 0 and wrong == 0:
        assert equal_as_sets(whole, cut)


SUMS = "{L[h<2,t<24] Σ[u<24] select(t-u>=0, a[h,u], 0)}"
SQUARE = f"""a : f32[2,24]
c : f32[2,24,5]
b : f32[2,5,24]
x : f32[2,24,3]
L[h<2,t<24,d<3] Σ[s<24] {{L[h<2,t<24,s<24] {{L[h<2,t<24,s<24] Σ[n<5] c[h,t,n]*b[h,n,s]}}[h,t,s]
    *exp({{L[h<2,t<24,s<24] select(t-s>=0, {SUMS}[h,t] - {SUMS}[h,s], -inf)}}[h,t,s])}}[h,t,s]*x[h,s,d]"""


def test_a_square_with_decays_that_are_running_sums_is_cut_in_chunks() -> None:
    """Mamba-2's: the exponents read a scope, which both sides read unchanged."""
    square = parse(SQUARE)
    found = [r for r in chunk(square) if isinstance(r, Rewrite)]
    assert found and all(check_equal(square, r.scope).method == "inline" for r in found)
    rng = np.random.default_rng(0)
    held = {t.name: rng.uniform(-1, 0, t.shape) for t in tensors(square).values()}
    assert all(np.allclose(evaluate(square, held), evaluate(r.scope, held), rtol=1e-12, atol=1e-12) for r in found)


def test_what_is_read_within_an_exponent_is_merged_before_it_is_cut() -> None:
    """A difference of running sums that is a scope of its own, over both times, would be read in parts by one side and whole by the other."""
    total = "{L[t<32] Σ[s<32] select(t-s>=0, A[s], 0)}"
    apart = f"{{L[t<32,s<32] {{L[t<32,u<1] {total}[t]}}[t,0] + (-1)*{{L[u<1,s<32] {total}[s]}}[0,s]}}"
    masked = f"{{L[t<32,s<32] select(t-s>=0, {apart}[t,s], -inf)}}"
    before = parse(f"A : f32[32]\nX : f32[32,4]\nQ : f32[32]\nL[t<32,n<4] Σ[s<32] Q[t]*exp({masked}[t,s])*X[s,n]")
    made = [r.scope for r in chunk(before) if isinstance(r, Rewrite)]
    assert made
    for after in made:
        proof = check_equal(before, after)
        assert proof.method == "inline"
        assert check_bound(before, after, 1.0, proof).kind == "reassociation"


def test_what_one_side_reads_in_part_does_not_grow() -> None:
    """The parts of a triangle read a running sum over fewer places than the whole: its exponents are the same numbers all the same."""
    square = parse(SQUARE)
    steps = [Step("triangle", r.parameters, square, r.scope, (), "reassociation", None) for r in triangle(square) if isinstance(r, Rewrite)]
    assert steps
    for step in steps:
        (proof,) = check(Derivation(square, (step,)))
        assert proof.method == "inline"


def test_what_comes_in_as_a_product_is_two_factors_of_a_chunk() -> None:
    """A fold's step writes what comes in as a scope over the whole state; chunks of it are products all the same."""
    came = "{L[s<64,m<8,n<8] B[s,n]*X[s,m]}[s,m,n]"
    state = f"{{L[t<64,m<8,n<8] Σ[s<64] select(t-s>=0, exp(P[t] + (-1)*P[s])*{came}, 0)}}"
    before = parse(f"B : f32[64,8]\nX : f32[64,8]\nC : f32[64,8]\nP : f32[64]\nL[t<64,m<8] Σ[n<8] {state}[t,m,n]*C[t,n]")
    plain = parse("B : f32[64,8]\nX : f32[64,8]\nC : f32[64,8]\nP : f32[64]\n"
                  "L[t<64,m<8] Σ[s<64,n<8] select(t-s>=0, exp(P[t] + (-1)*P[s])*B[s,n]*X[s,m]*C[t,n], 0)")  # fmt: skip
    made = [{flops(r.scope) for r in chunk(e) if isinstance(r, Rewrite)} for e in (before, plain)]
    assert made[0] == made[1] != set()


INFINITE = "select(i-2>=0, A[i], -inf)"


@pytest.mark.parametrize(("one", "other"), [
    (f"sin(2*{INFINITE} - {INFINITE} + val(k))", f"sin({INFINITE} + val(k))"),
    (f"sin(val(i)*{INFINITE} - val(k)*{INFINITE})", f"sin(val(i-3+k)*{INFINITE})"), ("sin(val(k) + 0/A[i])", "sin(val(k))"),
])  # fmt: skip
def test_multiples_of_what_may_be_infinite_are_not_gathered(one: str, other: str) -> None:
    """inf - inf is no multiple of inf, nor is 0 times what may not exist 0."""
    left, right = (parse(f"A : f32[4]\nL[i<4] Σ[k<4] {text}") for text in (one, other))
    assert not equal_as_sets(left, right)
