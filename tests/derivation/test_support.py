"""Where a product can be nonzero, one of whose factors need not be a number; and what a band of a softmax times values gains by it."""

from __future__ import annotations

import pytest

from einnet.derivation.checker.check import check_equal
from einnet.derivation.facts import EVERYWHERE, support
from einnet.derivation.rules.band import band
from einnet.expr.nodes import Select, Val, reads, walk
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
