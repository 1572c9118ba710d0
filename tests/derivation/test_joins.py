"""Which scopes the rule join puts together."""

from __future__ import annotations

from einnet.derivation.rules.join import joins
from einnet.expr.notation.text import parse


def test_scopes_that_are_not_in_an_expression_are_not_joined() -> None:
    text = "x : f32[4,5]\nv : weight f32[5,3]\nw : weight f32[5,3]\nL[m<4,n<3] {{L[m<4,n<3] Σ[k<5] x[m,k]*v[k,n]}}[m,n] + {}[m,n]"
    whole = parse(text.format("{L[m<4,n<3] Σ[k<5] x[m,k]*w[k,n]}"))
    first, second = whole.nested
    assert list(joins(whole, first, second))
    other = parse("x : f32[4,5]\nw : weight f32[5,3]\nL[m<4,n<3] Σ[k<5] x[m,k]*w[k,n]*2")
    assert not list(joins(whole, first, other))
