"""What a rule gives depends on what an expression says, never on which of its equal parts happen to be one object."""

from __future__ import annotations

from dataclasses import replace

import pytest

from einnet.derivation.moves.rule import Refused, Rewrite, Rule
from einnet.derivation.rules import RULES
from einnet.expr.nodes import Body, Read, Scope, Tensor, children, rebuild
from einnet.expr.notation.text import parse
from tests.derivation.rule_cases import CASES, DECLARED
from tests.derivation.test_rules import sources

TWICE = (
    "A : f32[8]\nG : f32[3]\nL[h<6] Σ[r<3] A[h+r]*A[h+r]*G[r]", "A : f32[8]\nG : f32[3]\nL[h<6] Σ[r<3] A[h+r]*G[r]*G[r]",
    "A : f32[8,9]\nB : f32[9]\nL[h<8] {L[h<8] Σ[k<9] A[h,k]*B[k]}[h] + {L[h<8] Σ[k<9] A[h,k]*B[k]}[h] + B[h]",
    "A : f32[8,9]\nB : f32[9]\nL[h<8] {L[h<8] Σ[k<9] A[h,k]*A[h,k]}[h] + {L[h<8] Σ[k<9] A[h,k]*B[k]}[h]",
    "A : f32[9]\nB : f32[8,4]\nL[i<3] Σ[r<3,s<4] A[i+r+s]*B[r,s]*B[r,s]", "A : f32[9]\nB : f32[4]\nL[i<3] Σ[r<3,s<4] A[i+r+s]*A[i+r+s]*B[s]",
    "A : f32[8]\nL[i<8] {L[n<4] A[n]}[i] + {L[n<4] A[n+4]}[i-4] + {L[n<4] A[n]}[i]",
    "A : f32[6,5]\nL[i<6,j<6] Σ[k<5] A[i,k]*A[j,k]", "A : f32[6,5]\nL[i<6] Σ[k<5] A[i,k]*A[i,k]",
)  # fmt: skip
"""Expressions with factors or terms that occur twice."""


class Shared:
    """Makes equal parts one object."""

    def __init__(self) -> None:
        self.known: dict[Body | Scope | Tensor, Body | Scope | Tensor] = {}

    def scope(self, e: Scope) -> Scope:
        found = self.known.setdefault(e, replace(e, body=self.body(e.body)))
        assert isinstance(found, Scope)
        return found

    def body(self, b: Body) -> Body:
        if isinstance(b, Read):
            made: Body = Read(self.scope(b.base) if isinstance(b.base, Scope) else b.base, b.index, b.fill)
        else:
            made = rebuild(b, tuple(self.body(a) for a in children(b))) if children(b) else b
        return self.known.setdefault(made, made)  # type: ignore[return-value]


def copied(e: Scope) -> Scope:
    """The same scope of which no two parts are one object."""

    def copy(b: Body) -> Body:
        if isinstance(b, Read):
            return Read(copied(b.base) if isinstance(b.base, Scope) else b.base, b.index, b.fill)
        return rebuild(b, tuple(copy(a) for a in children(b))) if children(b) else replace(b)

    return Scope(e.loops, e.sums, copy(e.body), e.reduce)


def told(rule: Rule, e: Scope) -> list[tuple[str, str]]:
    """What the rule gives, in text: results with their parameters, or reasons."""
    return [(o.parameters, o.scope.text()) if isinstance(o, Rewrite) else ("", o.why) for o in rule(e) if isinstance(o, (Rewrite, Refused))]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_equal_parts_may_be_one_object(rule: Rule) -> None:
    cases = [parse(text) for text in TWICE] + [parse(DECLARED + before) for before, _, _ in CASES[rule.name].goldens]
    for source in (*cases, *sources(400)):
        assert told(rule, Shared().scope(source)) == told(rule, copied(source)), source
