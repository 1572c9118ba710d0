"""The states of a search that recognises nothing: counted, and met one by one."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest

from benchmarks.search.whole import Counter, OutOfTime, interleaved, paths, unpruned
from einnet.derivation.normalise import normalise
from einnet.derivation.steps import Path, replace_at, subscope
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.search.space import Options, Space

EXPRESSIONS = {
    "two sums": "V : f32[8]\nL[m<8] Σ[r<3,s<2] V[m+r+s]",
    "k×1": "A : f32[57,5]\nK : weight f32[3,5,8]\nL[h<57,f<8] Σ[c<5,r<3] A[h+r-1,c]*K[r,c,f]",
    "product of three": "A : f32[4,3]\nB : f32[3,5]\nC : f32[5,2]\nL[m<4,n<2] Σ[k<3,l<5] A[m,k]*B[k,l]*C[l,n]",
    "two to be read": "A : f32[4,3]\nB : f32[3,5]\nL[m<4] relu({L[m<4] Σ[k<3,l<5] A[m,k]*B[k,l]}[m])*exp({L[m<4] Σ[k<3,l<5] A[k+m,l]}[m])",
}


def options(depth: int) -> Options:
    return Options(max_depth=depth, intensity=0.0, slack=inf)


def sequences(space: Space, whole: Scope, depth: int) -> Iterator[tuple[tuple[Path, int], ...]]:
    """Every sequence of at most so many steps, as a search makes it that does not compare expressions."""
    yield ()
    if depth:
        for path in paths(whole):
            for n, new in enumerate(space.following(subscope(whole, path))):
                for rest in sequences(space, replace_at(whole, path, new), depth - 1):
                    yield ((path, n), *rest)


def is_top_down(sequence: tuple[tuple[Path, int], ...]) -> bool:
    """No step at a scope comes after one inside it."""
    passed = [path for path, _ in sequence]
    return not any(len(b) < len(a) and a[: len(b)] == b for n, a in enumerate(passed) for b in passed[n + 1 :])


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_counts_are_those_of_sequences_made_one_by_one(name: str, depth: int) -> None:
    start, _ = normalise(parse(EXPRESSIONS[name]))
    made = list(sequences(Space(options(depth)), start, depth))
    counter = Counter(options(depth), inf)
    assert len(set(made)) == len(made) == counter.states(start, depth, depth)
    top_down = [s for s in made if is_top_down(s)]
    assert counter.top_down(start, depth) == tuple(sum(len(s) == n for s in top_down) for n in range(depth + 1))
    bounds = [counter.states(start, depth, orders) for orders in range(depth + 1)]
    assert bounds == sorted(bounds) and bounds[0] == len(top_down) and bounds[-1] == len(made)


def test_the_bound_is_exact_where_no_step_follows_one_inside() -> None:
    start, _ = normalise(parse(EXPRESSIONS["k×1"]))
    counter = Counter(options(1), inf)
    assert counter.states(start, 1, 0) == counter.states(start, 1, 1)


def test_the_bound_is_less_where_steps_go_back_to_a_scope() -> None:
    start, _ = normalise(parse(EXPRESSIONS["k×1"]))
    counter = Counter(options(4), inf)
    assert counter.states(start, 4, 0) < counter.states(start, 4, 4)


def test_sequences_of_two_places_are_interleaved_in_every_order() -> None:
    """a, b in one place and x in another: abx, axb, xab; one sequence of each length makes 2^n."""
    assert interleaved((0, 0, 1, 0), (0, 1, 0, 0)) == (0, 0, 0, 3)
    assert interleaved((1, 1, 1, 1), (1, 1, 1, 1)) == (1, 2, 4, 8)


def test_a_count_that_takes_too_long_is_a_bound_for_fewer_orders() -> None:
    scope = parse(EXPRESSIONS["k×1"])
    whole = unpruned(scope, options(3), inf)
    assert whole.orders == 3
    assert unpruned(scope, options(3), -1.0).states == 1
    with pytest.raises(OutOfTime):
        Counter(options(3), 0.0).states(normalise(scope)[0], 3, 0)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_search_visits_no_more_than_it_would_without_recognising(name: str) -> None:
    scope = parse(EXPRESSIONS[name])
    space = Space(options(3))
    space.forms(scope)
    made = 1 + sum(len(g.members) - 1 for g in space.groups.values())
    assert made <= unpruned(scope, options(3), inf).states
