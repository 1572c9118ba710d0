"""What a rule proposes of scopes beside those that it is known to take or to refuse equals them."""

from __future__ import annotations

from random import Random

import pytest

from einnet.derivation.moves.rule import Rewrite, Rule
from einnet.derivation.rules import RULES
from einnet.expr.nodes import Scope
from tests.derivation.generators import same_tensor
from tests.derivation.perturbed import perturbed, small
from tests.derivation.rule_cases import CASES
from tests.derivation.test_rules import closed, expression

EACH = 60
"""Scopes for each rule."""


def beside(rule: Rule, count: int) -> list[Scope]:
    """So many scopes near the rule's cases, in turn; the same in every run."""
    texts = (*(before for before, _, _ in CASES[rule.name].goldens), *(text for text, _ in CASES[rule.name].refusals))
    known = [s for s in map(expression, texts) if small(s)]
    return [perturbed(Random(f"{rule.name} {n}"), known[n % len(known)]) for n in range(count)]


def proposed_rightly(rule: Rule, count: int) -> int:
    """Compares all that the rule makes of its scopes with them, at every point of the box; how many there were."""
    seen = 0
    for source in beside(rule, count):
        for rewrite in (o for o in rule(source) if isinstance(o, Rewrite)):
            seen += 1
            assert closed(rewrite.scope), f"{source}\n{rewrite.parameters}\n{rewrite.scope.text()}"
            assert same_tensor(source, rewrite.scope), f"{source}\n{rewrite.parameters}\n{rewrite.scope.text()}"
    return seen


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_perturbed(rule: Rule) -> None:
    assert proposed_rightly(rule, EACH)
