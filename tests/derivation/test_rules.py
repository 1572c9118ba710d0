"""Every rule: its goldens, exact equality of its results on random scopes, its refusals by reason, and that none of the three is missing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from einnet.derivation import rules
from einnet.derivation.checker.check import check_equal
from einnet.derivation.moves.rule import Refused, Rewrite, Rule
from einnet.derivation.normalise import normalise
from einnet.derivation.rules import FORCED, RULES
from einnet.derivation.steps import KINDS
from einnet.expr.nodes import Scope, used_names, walk
from einnet.expr.notation.text import parse
from tests.derivation.generators import (
    band_products,
    cascades,
    choices,
    correlations,
    equations,
    long_sums,
    masked_reductions,
    moved_sums,
    pixels,
    raised,
    readers,
    recurrences,
    same_tensor,
    scopes,
    sums_of_sums,
    tables,
)  # fmt: skip
from tests.derivation.masked import masked_products
from tests.derivation.moves import layout_moves
from tests.derivation.rule_cases import CASES, DECLARED
from tests.derivation.siblings import concatenations, siblings

KINDS_OF_SOURCES = (
    scopes(), readers(), readers(), correlations(), correlations(), band_products(), masked_reductions(), siblings(), siblings(), concatenations(),
)  # fmt: skip
BY_NAME = {r.name: r for r in RULES}


def expression(text: str) -> Scope:
    """A case's expression; a golden's right-hand side may read matrices that the rule adds."""
    return parse(DECLARED + text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, cases in (("golden", [c.goldens for c in CASES.values()]), ("refusal", [c.refusals for c in CASES.values()])):
        if name in metafunc.fixturenames:
            found = [(rule, one) for rule, ones in zip(CASES, cases, strict=True) for one in ones]
            metafunc.parametrize(f"rule_name, {name}", found, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(found)])


def test_every_rule_has_its_cases() -> None:
    assert set(CASES) == set(BY_NAME), "a rule without cases, or cases without a rule"
    assert len(BY_NAME) == len(RULES), "two rules of one name"
    for name, cases in CASES.items():
        assert cases.goldens and cases.refusals and cases.least > 0, name


def test_a_rule_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "double_negation.py").write_text(
        "from einnet.derivation.moves.rule import rule\n\n\n"
        '@rule("double-negation", order=15, guard="the body is negated twice", roles=("explored",))\n'
        'def double_negation(e):\n    """L[x] -(-f(x)) = L[x] f(x)"""\n    yield from ()\n'
    )
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(tmp_path)])
    found = [r.name for r in rules._found()]
    assert found[found.index("sum-split") + 1] == "double-negation"
    assert [name for name in found if name != "double-negation"] == [r.name for r in RULES]


def test_normalisation_applies_what_is_forced_and_nothing_else() -> None:
    applied: set[str] = set()
    for cases in CASES.values():
        for before, _, after in cases.goldens:
            for text in (before, after):
                applied |= {s.rule for s in normalise(expression(text))[1]}
    assert applied == set(FORCED)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_says_what_it_is(rule: Rule) -> None:
    assert "=" in rule.equation and rule.guard and rule.kind in KINDS


def test_golden(rule_name: str, golden: tuple[str, str, str]) -> None:
    before, parameters, after = golden
    source = expression(before)
    outcomes = list(BY_NAME[rule_name](source))
    found = {r.parameters: r for r in outcomes if isinstance(r, Rewrite)}
    assert rule_name in ("relayout", "bilinear") or len(found) == len(outcomes), "what applies is not refused as well"
    assert parameters in found, sorted(found)
    result = found[parameters].scope
    assert result.text() == after
    check_equal(source, result)


def test_refusal(rule_name: str, refusal: tuple[str, str]) -> None:
    text, reason = refusal
    outcomes = list(BY_NAME[rule_name](expression(text)))
    assert [o.why for o in outcomes if isinstance(o, Refused) and reason in o.why], [getattr(o, "why", o) for o in outcomes]
    assert rule_name in ("substitute-sum", "relax", "relayout", "tile") or not any(not isinstance(o, Refused) for o in outcomes)


def closed(scope: Scope) -> bool:
    """Every body uses iterators of its own scope only, each bound once."""
    return all(
        used_names(s.body) <= s.ranges.keys() and len(s.ranges) == len(s.loops) + len(s.sums) and all(i.lo < i.hi for i in (*s.loops, *s.sums))
        for s in walk(scope)
    )


@cache
def sources(count: int) -> tuple[Scope, ...]:
    """Random scopes, the same in every run; drawn once for all rules."""
    found: list[Scope] = []

    @settings(max_examples=count, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(st.one_of(*KINDS_OF_SOURCES))
    def draw(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(layout_moves())
    def draw_moves(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(st.one_of(equations(), cascades()))
    def draw_equations(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(choices())
    def draw_choices(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 20, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(recurrences())
    def draw_recurrences(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(recurrences(apart=True))
    def draw_recurrences_of_sums(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(raised())
    def draw_raised(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(tables())
    def draw_tables(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(st.one_of(long_sums(), pixels()))
    def draw_long_sums_and_pixels(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(sums_of_sums())
    def draw_sums_of_sums(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(moved_sums())
    def draw_moved_sums(source: Scope) -> None:
        found.append(source)

    @settings(max_examples=count // 8, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(masked_products())
    def draw_masked_products(source: Scope) -> None:
        found.append(source)

    draw()
    draw_moves()
    draw_equations()
    draw_choices()
    draw_recurrences()
    draw_recurrences_of_sums()
    draw_raised()
    draw_tables()
    draw_long_sums_and_pixels()
    draw_sums_of_sums()
    draw_moved_sums()
    draw_masked_products()
    return tuple(found)


def exercise(rule: Rule, count: int) -> int:
    """Compare all results of a rule on random scopes with their sources, at every point of the box; how many there were."""
    seen = 0
    for source in sources(count):
        outcomes = list(rule(source))
        assert outcomes and all(o.why for o in outcomes if isinstance(o, Refused)), f"neither a result nor a reason for\n{source}"
        for rewrite in (o for o in outcomes if isinstance(o, Rewrite)):
            seen += 1
            assert closed(rewrite.scope), rewrite.scope.text()
            assert same_tensor(source, rewrite.scope), f"{source}\n{rewrite.parameters}\n{rewrite.scope.text()}"
            assert rewrite.kind in KINDS and (rewrite.kind != "precision" or rewrite.bound is not None)
    return seen


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_results_equal_their_source(rule: Rule) -> None:
    assert exercise(rule, 400) >= CASES[rule.name].least


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_many_results_equal_their_source(rule: Rule) -> None:
    assert exercise(rule, 4000) >= 8 * CASES[rule.name].least
