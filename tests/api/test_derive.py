"""Derivation trees: every state once, equal to the start, known by a derivation that the checker accepts."""

from __future__ import annotations

import pytest

import einnet
from einnet.derivation.checker.check import check
from einnet.derivation.rules import RULES
from einnet.errors import ParseError, UsageError

CONV = "L[h<6,w<6,f<4] Σ[c<8,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]"


@pytest.fixture(scope="module")
def tree():
    return einnet.derive(CONV, max_depth=2, rules=("sum-split", "substitute"))


def test_states_are_numbered_distinct_and_within_the_depth(tree):
    assert [s.number for s in tree] == list(range(len(tree)))
    assert len({s.expression.key for s in tree}) == len(tree) > 10
    assert {s.depth for s in tree} == {0, 1, 2}
    for s in tree:
        assert s.parent == -1 if s.depth == 0 else tree.states[s.parent].depth == s.depth - 1


def test_every_derivation_leads_to_its_state_and_is_accepted(tree):
    for s in tree.states[::7]:
        derivation = tree.derivation(s.number)
        assert len(derivation.steps) == s.depth
        assert derivation.end.key == s.expression.key
        check(derivation)


def test_a_step_is_of_its_rules_class_at_least(tree):
    kinds = {r.name: r.kind for r in RULES}
    assert {s.step.kind for s in tree if s.step and s.step.rule == "sum-split"} == {"reassociation"}
    assert all(s.step.kind == kinds[s.step.rule] for s in tree if s.step)


def test_more_depth_finds_more(tree):
    less = einnet.derive(CONV, max_depth=1, rules=("sum-split", "substitute"))
    assert {s.expression.key for s in less} < {s.expression.key for s in tree}


def test_text_and_limits(tree, capsys):
    tree.show()
    out = capsys.readouterr().out
    assert out.startswith(f"#0: {einnet.parse(CONV).text()}\n")
    assert f"{len(tree)} states" in out
    assert len(einnet.derive(einnet.parse(CONV), max_depth=3, most=9)) == 9


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"max_depth": -1}, UsageError), ({"rules": ("magic",)}, UsageError), ({"expression": "L[h<"}, ParseError)],
)
def test_wrong_arguments(arguments, error):
    with pytest.raises(error):
        einnet.derive(**{"expression": CONV, **arguments})
