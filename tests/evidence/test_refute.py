"""What differs at a few points is told before proofs are tried; what is equal never is."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.derivation.checker.draws import Draw
from einnet.evidence.comparison.refute import MOST_EFFORT, MOST_POINTS, few_points, refuted
from einnet.evidence.prove import compared
from einnet.expr.nodes import Scope, Tensor
from einnet.expr.notation.text import parse
from einnet.expr.values.points import effort
from tests.derivation.pairs import Pair, false_pairs, proven_pairs, true_pairs

HEAD = "A : f32[40,50]\nB : f32[50,60]\nC : f32[40,60]\n"
PRODUCT = "L[i<40,j<60] Σ[k<50] A[i,k]*B[k,j]"
FUNCTION = f"L[i<40,j<60] exp({{{PRODUCT}}}[i,j] - C[i,j])"
RIGHT = {**dict(true_pairs()), **dict(proven_pairs())}


def sides(pair: Pair) -> tuple[Scope, Scope]:
    declared, one, other = pair
    return parse(declared + one), parse(declared + other)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_equal_is_not_refuted(name: str) -> None:
    assert refuted(*sides(RIGHT[name])) is None


def test_most_of_what_is_false_is_refuted() -> None:
    """Not all: ties, zeros and single points are the checker's."""
    pairs = list(false_pairs())
    assert sum(refuted(*sides(pair)) is not None for _, pair in pairs) > len(pairs) // 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PRODUCT, PRODUCT.replace("A[i,k]*", "1001/1000*A[i,k]*")), (PRODUCT, PRODUCT.replace("k<50", "k<49")),
        (PRODUCT, PRODUCT.replace("B[k,j]", "B[k,j-1]")), (FUNCTION, FUNCTION.replace("exp", "tanh")),
        (FUNCTION, FUNCTION.replace("C[i,j]", "1001/1000*C[i,j]")), (PRODUCT, f"L[i<40,j<60] select(i<39, {{{PRODUCT}}}[i,j], 0)"),
    ],
)  # fmt: skip
def test_a_change_is_seen_with_its_values(one: str, other: str) -> None:
    told = refuted(parse(HEAD + one), parse(HEAD + other))
    assert told is not None and told.startswith("the two sides differ at [i=")
    assert " before, " in told and " after" in told
    method, _, problem = compared(parse(HEAD + one), parse(HEAD + one), parse(HEAD + other), True)
    assert method == "" and problem == f"is not what the model has: {told}"


def test_what_is_not_comparable_is_left_to_the_checker() -> None:
    whole = parse(HEAD + PRODUCT)
    for other in (PRODUCT.replace("i<40", "i<39"), "L[i<40,j<60] 0*A[i,0]*B[0,j]*val(999999999999999999*i)"):
        assert refuted(whole, parse(HEAD + other)) is None
    assert refuted(whole, parse(HEAD.replace("50,60", "51,60") + PRODUCT)) is None


def test_no_more_is_evaluated_than_is_allowed() -> None:
    for extent, points in ((1, MOST_POINTS), (10_000, 16), (100_000, 2), (1_000_000, 0)):
        scope = parse(f"A : f32[2000,{extent}]\nL[i<2000] Σ[k<{extent}] A[i,k]")
        assert len(few_points(scope, scope)) == points
        assert effort(scope, points) <= MOST_EFFORT


def test_of_a_table_the_rows_that_are_read_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over all rows, of which an integer takes one: 50,000 rows were drawn for each point."""
    drawn, floats = [0], Draw.floats

    def counted(self: Draw, t: Tensor, address: np.ndarray) -> np.ndarray:
        drawn[0] += np.size(address)
        return floats(self, t, address)

    monkeypatch.setattr(Draw, "floats", counted)
    given = "t : i64[17]\nw : f32[50000,384]\n"
    taken = "{L[m<17,n<384] Σ[v<50000] choose(equal(t[m], val(v)), w[v,n], 0)}[m,n]"
    one = parse(f"{given}L[m<17,n<384] 2*{taken}")
    assert refuted(one, parse(f"{given}L[m<17,n<384] {taken}+{taken}")) is None
    assert drawn[0] < 1000
    other = "{L[m<17,n<384] Σ[v<50000] choose(equal(t[m], val(v)), w[v,383-n], 0)}[m,n]"
    assert "differ" in str(refuted(one, parse(f"{given}L[m<17,n<384] 2*{other}")))
