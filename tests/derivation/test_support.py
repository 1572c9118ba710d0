"""Where a product can be nonzero, one of whose factors need not be a number; and what a band of a softmax times values gains by it."""

from __future__ import annotations

import pytest

from einnet.derivation.checker.check import check_equal
from einnet.derivation.facts import EVERYWHERE, support
from einnet.derivation.rules.band import band
from einnet.expr.nodes import Scope, Select, Tensor, Val, reads, walk
from einnet.expr.notation.text import parse

NUMBER, LOOSE = "S[k]", "{L[k<9] P[k]/Q[k]}[k%s]"
TENSORS = "P : f32[9]\nQ : f32[9]\nS : f32[9]\nV : f32[20]\n"


@pytest.mark.parametrize(("product", "found"), [
    (f"{NUMBER}*V[k-4]", (4, 9)), (f"{LOOSE % ''}*V[k]", (0, 9)), (f"{LOOSE % ''}*V[k-4]", (0, 9)), (f"{LOOSE % '-3'}*V[k]", (3, 12)),
    (f"{LOOSE % ''}*{LOOSE % '-3'}", (0, 12)), ("P[k]/Q[k]*V[k]", EVERYWHERE), (f"(S[k]/Q[k])*{LOOSE % ''}", EVERYWHERE),
])  # fmt: skip
def test_a_factor_that_is_no_number_counts_wherever_it_is_read_within_its_box(product: str, found: tuple[int, int]) -> None:
    """0 times infinity is no zero: only a factor that is itself 0 beyond its box is one there."""
    scope = parse(f"{TENSORS}L[m<2] Σ[k<20] {product}")
    assert support(scope.body, "k", {**scope.ranges, "k": (-50, 50)}) == found


def softmax(mask: str, values: str = "V[n,c]") -> str:
    masked = f"{{L[m<9,n<9] S[m,n] + {mask}}}"
    above = f"{{L[m<9,u<1] max[n<9] {masked}[m,n]}}"
    exponential = f"{{L[m<9,n<9] exp({masked}[m,n] - {above}[m,0])}}"
    return (
        "S : f32[9,9]\nV : f32[9,3]\n"
        f"L[m<9,c<3] Σ[n<9] {{L[m<9,n<9] {exponential}[m,n] / {{L[m<9,u<1] Σ[n<9] {exponential}[m,n]}}[m,0]}}[m,n]*{values}"
    )


@pytest.mark.parametrize("mask", ["select(n-m+2>=0 & m-n+2>=0, 0, -inf)", "select(n-m+4>=0 & m-n+4>=0 & (n-m)%2==0, 0, -inf)"])
def test_a_band_of_a_softmax_times_values_is_a_product_that_is_proven(mask: str) -> None:
    """What the weights and the values are beyond the range is 0 on both sides, so that no condition stands between the sum and its product."""
    scope = parse(softmax(mask))
    (found,) = band.rewrites(scope)
    assert not isinstance(found.scope.body, (Select, Val)) and len(reads(found.scope.body)) == 2
    assert found.scope.sums[0].extent == 5 and len(walk(found.scope)) > 3
    assert check_equal(scope, found.scope).method == "inline"


PROJECTED = {
    "bias": "{L[n<9,k<3] {L[n<9,k<3] Σ[x<2] X[n,x]*W[x,k]}[n,k] + b[k]}",
    "function of a bias": "{L[n<9,k<3] exp({L[n<9,k<3] X[n,k] + b[k]}[n,k])}",
    "moved": "{L[n<9,k<3] {L[n<9,k<3] X[n,k] + b[k]}[n-1,k] + b[k]}",
    "no bias": "{L[n<9,k<3] 2*X[n,k]}",
}
WIDE = {"bias": (-2, 11), "function of a bias": (-2, 11), "moved": (-2, 11), "no bias": (0, 9)}


@pytest.mark.parametrize("name", PROJECTED)
def test_keys_beyond_the_range_may_be_what_they_are_where_nobody_asks(name: str) -> None:
    """A key's bias makes it other than 0 there: each score would have a condition that what reads it has already."""
    scores = f"{{L[m<9,n<9] Σ[k<3] Q[m,k]*{PROJECTED[name]}[n,k]}}"
    masked = f"{{L[m<9,n<9] {scores}[m,n] + select(n-m+2>=0 & m-n+2>=0, 0, -inf)}}"
    text = f"Q : f32[9,3]\nX : f32[9,3]\nW : f32[3,3]\nb : f32[3]\nV : f32[9,4]\nL[m<9,c<4] Σ[n<9] {{L[m<9,n<9] exp({masked}[m,n])}}[m,n]*V[n,c]"
    scope = parse(text)
    (found,) = band.rewrites(scope)
    assert check_equal(scope, found.scope).method == "inline"
    products = [reads(s.body) for s in walk(found.scope) if s.sums]
    keys = [key.base for query, key in products if query.base == Tensor("Q", (9, 3))]
    assert keys and all(isinstance(k, Scope) and k.loops[0].range == WIDE[name] for k in keys)
    assert sum(isinstance(s.body, Select) for s in walk(found.scope)) == 1, found.scope.text()


def test_what_is_asked_for_beyond_the_range_stays_0_there() -> None:
    """The values of a padded neighbour are read where the sum of the weights is not guarded."""
    padded = "{L[n<9,k<3] {L[n<9,k<3] X[n,k] + b[k]}[n+1,k]}"
    scores = f"{{L[m<9,n<9] Σ[k<3] Q[m,k]*{padded}[n,k]}}"
    text = f"Q : f32[9,3]\nX : f32[9,3]\nb : f32[3]\nL[m<9] Σ[n<9] {{L[m<9,n<9] select(n-m+2>=0 & m-n+2>=0, {scores}[m,n], 0)}}[m,n]"
    scope = parse(text)
    (found,) = band.rewrites(scope)
    assert check_equal(scope, found.scope).method == "inline"
    assert all(s.loops[0].range == (0, 9) for s in walk(found.scope) if not s.sums and len(s.loops) == 2 and s.loops[1].name == "k")


@pytest.mark.parametrize("masked", ["choose(K[i,j],S[i,j],-inf)", "S[i,j]/8 + choose(K[i,j],0,-inf)"])
def test_a_mask_that_is_data_keeps_no_projection_from_a_softmax(masked: str) -> None:
    """The exponentials are nowhere infinite, even where all of a row is masked, so that they times a sum are sums of products."""
    scores = f"{{L[i<6,j<7] {masked}}}[i,j]"
    exponential = f"{{L[i<6,j<7] exp({scores} - {{L[i<6] max[j<7] {scores}}}[i])}}[i,j]"
    weight = f"{{L[i<6,j<7] {exponential}/{{L[i<6] Σ[j<7] {exponential}}}[i]}}[i,j]"
    declared = "S : f32[6,7]\nX : f32[7,5]\nW : f32[5,3]\nK : bool[6,7]\n"
    before = f"L[i<6,c<3] Σ[j<7] {weight}*{{L[j<7,c<3] Σ[k<5] X[j,k]*W[k,c]}}[j,c]"
    after = f"L[i<6,c<3] Σ[k<5] {{L[i<6,k<5] Σ[j<7] {weight}*X[j,k]}}[i,k]*W[k,c]"
    assert check_equal(parse(declared + before), parse(declared + after)).method == "inline"
