"""What holds within a block when a normal form is made, and no longer behind it."""

from __future__ import annotations

import time

import pytest

from einnet.expr.normal.inline import inline, terms_of
from einnet.expr.normal.limits import MOST_TERMS, OutOfReach, OutOfTime, at_most, bending, by_bends, limited, one_less, until
from einnet.expr.normal.terms import Term
from einnet.expr.notation.text import parse


def test_forms_are_made_by_bends_within_and_not_behind() -> None:
    assert not bending()
    with by_bends():
        assert bending()
        with by_bends():
            assert bending()
        assert bending()
    assert not bending()
    with pytest.raises(ZeroDivisionError), by_bends():
        raise ZeroDivisionError
    assert not bending()


@pytest.mark.parametrize("terms", [0, 1, 3])
def test_as_many_terms_are_made_as_are_allowed(terms: int) -> None:
    with at_most(terms):
        for _ in range(terms):
            one_less()
        with pytest.raises(OutOfReach):
            one_less()
    for _ in range(terms + 2):
        one_less()


def test_each_term_of_a_form_is_one_of_those_allowed() -> None:
    """Of expressions that no other test has, since what is known already takes none."""
    text = "\n".join(f"Limited{n} : f32[8]" for n in range(3)) + "\nL[h<8] Limited0[h] + Limited1[h] + Limited2[h]"
    with at_most(2), pytest.raises(OutOfReach):
        inline(parse(text))
    with at_most(3):
        assert len(terms_of(parse(text.replace("Limited", "Few")))) == 3


def test_what_an_inner_block_takes_is_not_taken_from_the_outer() -> None:
    with at_most(1):
        with at_most(2):
            one_less()
            one_less()
        one_less()
        with pytest.raises(OutOfReach):
            one_less()


def test_no_form_is_made_behind_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    scope = parse("A : f32[8]\nL[i<8] 2*A[i]")
    with until(1.0), until(5.0):
        one_less()
        now[0] = 1.0
        with pytest.raises(OutOfTime):
            inline(scope)
    assert inline(scope).key == scope.key, "what was not made is not remembered as such"
    now[0] = 9.0
    with pytest.raises(ZeroDivisionError), until(10.0):
        raise ZeroDivisionError
    now[0] = 11.0
    one_less()


def test_as_many_terms_are_kept_as_a_form_may_have() -> None:
    assert limited([Term()] * MOST_TERMS) == [Term()] * MOST_TERMS
    with pytest.raises(OutOfReach, match="512"):
        limited([Term()] * (MOST_TERMS + 1))
