"""The checker rejects wrong versions of what every rule gives: no rule is trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from einnet.derivation.checker.check import check
from einnet.derivation.moves.rule import Rewrite, Rule
from einnet.derivation.rules import RULES
from einnet.derivation.rules.relax import relax
from einnet.derivation.steps import Derivation, Step
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope, used_names, walk
from einnet.expr.notation.text import parse
from tests.derivation.generators import same_tensor
from tests.derivation.rule_cases import CASES, DECLARED
from tests.derivation.test_rules import sources
from tests.search.mutations import mutants

WRONG = 15
"""Wrong results of each rule: with 18 rules more than 200."""

PER_RESULT = 3
SMALL = 4000
"""Points of a golden's box and sums that are evaluated densely."""


def results(rule: Rule) -> Iterator[tuple[Scope, Rewrite]]:
    """What the rule makes of its small goldens and of random scopes."""
    for before, _, _ in CASES[rule.name].goldens:
        source = parse(DECLARED + before)
        size = 1
        for i in (*source.loops, *source.sums):
            size *= i.extent
        if size <= SMALL:
            yield from ((source, r) for r in rule.rewrites(source))
    for source in sources(400):
        yield from ((source, r) for r in rule.rewrites(source))


def closed(e: Scope) -> bool:
    """Every scope in it reads its own iterators alone, as the language has it: a change that makes anything else is no expression."""
    return all(used_names(s.body) <= s.ranges.keys() for s in walk(e))


def wrong(source: Scope, right: Scope, seen: Counter[str]) -> Iterator[Scope]:
    """A few changes of a result that change its values, of the kinds that were seen least."""
    count = 0
    for kind, after in sorted(mutants(right), key=lambda m: seen[m[0]]):
        if count < PER_RESULT and closed(after) and after.key != right.key and not same_tensor(source, after):
            seen[kind] += 1
            count += 1
            yield after


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_wrong_results_are_rejected(rule: Rule) -> None:
    seen: Counter[str] = Counter()
    for source, result in results(rule):
        for after in wrong(source, result.scope, seen):
            step = Step(rule.name, result.parameters, source, after, kind=result.kind, bound=result.bound)
            with pytest.raises(CertificateError, match=f"step 1 .{rule.name}"):
                check(Derivation(source, (step,)))
        if sum(seen.values()) >= WRONG:
            break
    assert sum(seen.values()) >= WRONG and len(seen) >= 3, seen


def test_there_are_two_hundred() -> None:
    assert WRONG * len(RULES) >= 200


@pytest.mark.parametrize(("before", "after"), [
    ("A : f32[8,12]\nL[h<8] Σ[k<9] A[h,k]", "Σ[k<12] A[h,k]"), ("A : f32[8,12]\nL[h<8] Σ[k<9] A[h,k]", "Σ[k<10] A[h,k]"),
    ("A : f32[8]\nL[h<8] Σ[r<3] A[h+r]", "Σ[r<4] A[h+r]"), ("A : f32[8]\nL[h<8] Σ[r<3] A[(h-r)/2]", "Σ[r<4] A[(h-r)/2]"),
    ("A : f32[8,9]\nL[h<8] Σ[k<9] A[h,k]", "Σ[k<8] A[h,k]"),
    ("V : f32[19]\nL[h<2] max[1<=r<7] V[2*h+r]", "max[r<4,q<2] V[2*h+2*r+q+1]"),
])  # fmt: skip
def test_ranges_that_are_too_wide_or_too_narrow(before: str, after: str) -> None:
    """Where the body is not 0 on the points that are added, or a maximum takes more of them, and where a range became shorter instead."""
    source = parse(before)
    declared, _, expression = before.rpartition("\n")
    wider = parse(f"{declared}\n{expression.partition(' ')[0]} {after}")
    assert wider not in [r.scope for r in relax.rewrites(source)]
    with pytest.raises(CertificateError, match=r"step 1 \(relax\)"):
        check(Derivation(source, (Step("relax", "", source, wider),)))
