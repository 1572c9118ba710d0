"""How large arguments of functions are, where they count: a step may move what nobody asks for, and may not enlarge what is asked for."""

from __future__ import annotations

import pytest

from einnet.derivation.checker.arguments import asked
from einnet.derivation.checker.check import check_bound, check_equal
from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.rules.chunk import chunk
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse

NAMES = "q : f32[64,8]\nk : f32[64,8]\nv : f32[64,8]\n"


def retention(power: str = "(-0.03)*val(t-s)", factor: str = "") -> Scope:
    return parse(f"{NAMES}L[t<64,n<8] Σ[s<64,d<8] select(t-s>=0, {factor}exp({power})*q[t,d]*k[s,d]*v[s,n], 0)")


def bounded(before: Scope, after: Scope) -> str:
    return check_bound(before, after, 1.0, check_equal(before, after)).kind


def test_chunks_of_a_decay_by_time_are_a_reassociation() -> None:
    """The state that enters the first chunk comes from none: its exponent there would be the greatest of all, and is asked for by nobody."""
    before = retention()
    steps = [r for r in chunk(before) if isinstance(r, Rewrite)]
    assert steps
    assert {bounded(before, r.scope) for r in steps} == {"reassociation"}


def test_a_power_that_is_taken_apart_into_larger_ones_is_refused() -> None:
    with pytest.raises(CertificateError, match="the argument of exp grows"):
        bounded(retention(), retention("(-0.03)*val(t-s+40)", "exp(0.03*val(40))*"))
    with pytest.raises(CertificateError, match="the argument of exp grows"):
        bounded(retention("(-0.03)*val(t-s)"), retention("(-0.03)*val(2*t)", "exp(0.03*val(t+s))*"))


def test_arguments_under_conditions_are_0_where_these_do_not_hold() -> None:
    e = parse("A : f32[8]\nL[i<8] select(i-3>=0, exp(A[i])/A[i], exp(A[i]))")
    assert asked(e) == parse("A : f32[8]\nL[i<8] select(i-3>=0, exp(select(i-3>=0, A[i], 0))/select(i-3>=0, A[i], 0), exp(A[i]))")
    inner = parse("A : f32[8]\nL[i<8] {L[j<8] select(j-1>=0, exp(A[j]), 0)}[i]")
    assert asked(inner) == parse("A : f32[8]\nL[i<8] {L[j<8] select(j-1>=0, exp(select(j-1>=0, A[j], 0)), 0)}[i]")
    plain = parse("A : f32[8]\nL[i<8] Σ[j<8] A[i]*exp(A[j])")
    assert asked(plain) == plain
