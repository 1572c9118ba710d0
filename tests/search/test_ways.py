"""Ways are made when they are asked for, and are those that making all of them would give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from random import Random
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.instantiate.build import Builds
from einnet.search import ways as module
from einnet.search.choosing.choose import choose
from einnet.search.forms import Form, plain
from einnet.search.groups import Base, Group, Member
from einnet.search.settings import explored
from einnet.search.space import JOINED, Options, Space
from einnet.search.ways import Ranked, Way, Ways, by_cost, by_place
from tests.derivation.generators import correlations, readers, scopes
from tests.derivation.siblings import concatenations, siblings

SOURCES = st.one_of(correlations(), readers(), scopes(), siblings(), concatenations())
RULES = explored("cpu")

SIBLINGS = (
    "x : f32[64,48]\nP : weight f32[48,40]\nQ : weight f32[48,40]\n"
    "L[m<64,n<40] {L[m<64,n<40] Σ[k<48] x[m,k]*P[k,n]}[m,n]*{L[m<64,n<40] Σ[k<48] x[m,k]*Q[k,n]}[m,n]"
)


def every(ranked: Sequence[Ranked]) -> list[tuple[int, Way]]:
    """All ways with their places."""
    found = []
    for r in ranked:
        place = 0
        while (way := r.at(place)) is not None:
            found.append((place, way))
            place += 1
    return found


def eager_by_cost(ranked: Sequence[Ranked]) -> Iterator[Way]:
    return iter(sorted((w for _, w in every(ranked)), key=lambda w: (w.cost, w.key)))


def eager_by_place(ranked: Sequence[Ranked]) -> Iterator[Way]:
    return iter(w for _, w in sorted(every(ranked), key=lambda f: (f[0], f[1].cost, f[1].key)))


def bases(rng: Random, most: int) -> tuple[list[Ranked], list[int]]:
    """Ways of some bases, with many that cost the same; and how many of each were made."""
    scope = parse("A : f32[4]\nL[i<4] A[i]")
    group, member = Group("g", scope, inf), Member(scope, (), 0)
    made = [0] * rng.randrange(1, 6)

    def ways(n: int) -> Iterator[Way]:
        for cost in sorted(rng.randrange(6) for _ in range(rng.randrange(most))):
            made[n] += 1
            way = Way(group, member, Base(plain(scope), (), cost, 0, ()), (), cost)
            way._key = f"{rng.random()}"
            yield way

    return [Ranked(list(ways(n))) for n in range(len(made))], made


@pytest.mark.parametrize("seed", range(20))
def test_orders_are_those_of_all_ways(seed: int) -> None:
    ranked, _ = bases(Random(seed), 9)
    assert [w.key for w in by_cost(ranked)] == [w.key for w in eager_by_cost(ranked)]
    assert [w.key for w in by_place(ranked)] == [w.key for w in eager_by_place(ranked)]
    assert sum(1 for _ in by_cost(ranked)) == len(every(ranked))


def test_no_more_ways_are_made_than_are_asked_for() -> None:
    """And one more of each base, which tells that it is no cheaper."""
    scope = parse("A : f32[4]\nL[i<4] A[i]")
    group, member = Group("g", scope, inf), Member(scope, (), 0)
    made = {"cheap": 0, "dear": 0}

    def ways(name: str, cost: int) -> Iterator[Way]:
        for n in range(100):
            made[name] += 1
            yield Way(group, member, Base(plain(scope), (), cost + n, 0, ()), (), cost + n)

    order = by_cost([Ranked(ways("cheap", 0)), Ranked(ways("dear", 1000))])
    assert [next(order).cost for _ in range(5)] == [0, 1, 2, 3, 4]
    assert made == {"cheap": 6, "dear": 1}
    order = by_place([Ranked(ways("cheap", 0)), Ranked(ways("dear", 1000))])
    assert [next(order).cost for _ in range(4)] == [0, 1000, 1, 1001]
    assert made == {"cheap": 8, "dear": 3}


def signature(forms: Sequence[Form]) -> list[tuple[str, int]]:
    return [(f.key, len(f.steps)) for f in forms]


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(SOURCES)
def test_lazy_and_eager_give_the_same_choices(source: Scope) -> None:
    """Few ways are handed on, so that which they are matters."""
    options = Options(max_depth=2, intensity=0.0, states=120, inner=5, kept=12, rules=RULES)
    lazy = Space(options).forms(source)
    with mock.patch.multiple(module, by_cost=eager_by_cost, by_place=eager_by_place):
        eager = Space(options).forms(source)
    assert signature(lazy) == signature(eager)
    chosen = [choose(source, forms, lambda ks: [1.0] * len(ks), lambda ks, _: [1.0] * len(ks)).best for forms in (lazy, eager)]
    assert chosen[0].form.key == chosen[1].form.key and chosen[0].kernels == chosen[1].kernels


def test_what_costs_too_much_apart_is_not_joined() -> None:
    scope = parse(SIBLINGS)
    space = Space(Options(max_depth=0, rules=RULES))
    space.forms(scope)
    (root,) = space.roots.values()
    for limit, joined in ((inf, True), (4 * root.best, True), (root.best / 4, False)):
        ways = Ways(256, 3, combine=space._together)
        ways.limit = ways.most_apart = limit
        found = [ways.form(w) for w in ways.of(root.group, 0)]
        assert any(s.rule == "join" for f in found for s in f.steps) == joined


@pytest.mark.parametrize(("dear", "joined"), [(0, False), (1, True)])
def test_of_what_costs_more_apart_than_joining_could_save_a_few_are_joined(dear: int, joined: bool) -> None:
    space = Space(Options(max_depth=0, rules=RULES))
    space.forms(parse(SIBLINGS))
    (root,) = space.roots.values()
    ways = Ways(256, 3, combine=space._together)
    ways.limit = root.best / 4
    with mock.patch("einnet.search.ways.MOST_DEAR", dear):
        found = [ways.form(w) for w in ways.of(root.group, 0)]
    assert any(s.rule == "join" for f in found for s in f.steps) == joined


def test_a_search_that_knows_how_fast_it_can_be_joins_less() -> None:
    """In the first layer nothing is known; in the second what could be as fast as the best is joined, and a few others within the slack."""
    for slack in (0.1, 4.0):
        space = Space(Options(max_depth=1, rules=RULES, slack=slack))
        space.forms(parse(SIBLINGS))
        (root,) = space.roots.values()
        assert root.ways.limit == JOINED * root.best and root.ways.most_apart == slack * JOINED * root.best


def test_builds_are_made_once_and_when_they_are_asked_for() -> None:
    scope = parse(SIBLINGS)
    known = Builds("out")
    with mock.patch("einnet.instantiate.build.builds", side_effect=lambda *_: iter((object(), object()))) as made:
        first, again = known.of(scope, (), True), known.of(scope, (), True)
        one, same = next(first), next(again)
        assert one == same and one[0] == 0
        assert list(first) == list(again)
        assert made.call_count == 1
        assert next(known.of(scope, (), False)) != one and made.call_count == 2


def test_what_is_known_of_forms_as_kernels_changes_no_choice() -> None:
    scope = parse(SIBLINGS)
    forms = Space(Options(max_depth=1, rules=RULES)).forms(scope)
    known = Builds("out")
    found = [
        choose(scope, forms, lambda ks: [1.0] * len(ks), lambda ks, _: [1.0] * len(ks), known=k) for k in (None, known, known)
    ]  # fmt: skip
    assert len({c.best.kernels for c in found}) == 1
    assert len({tuple(x.kernels for x in c.candidates) for c in found}) == 1
    assert all(a.build is b.build for a, b in zip(found[1].candidates, found[2].candidates, strict=True))
