"""Where expressions are compared: small boxes whole; of large ones the points beside conditions, corners, and those near constants."""

from __future__ import annotations

import random

import numpy as np
import pytest

from einnet.derivation.checker import suspects
from einnet.derivation.checker.suspects import _at_conditions, _constants, _edges, _integers, _near, _scattered, points_to_compare
from einnet.expr.index import var
from einnet.expr.nodes import Cond, Scope
from einnet.expr.notation.text import parse

H, K = var("h"), var("k")


def rows(before: Scope, after: Scope, forms: tuple[Scope, ...], count: int) -> list[tuple[int, ...]]:
    return [tuple(map(int, p)) for p in points_to_compare(before, after, forms, count)]


def test_small_boxes_are_compared_whole() -> None:
    scope = parse("A : f32[9,9]\nL[-1<=h<2,2<=k<4] A[h,k]")
    assert rows(scope, scope, (), 6) == [(-1, 2), (-1, 3), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert points_to_compare(parse("L[] 1"), parse("L[] 2"), (), 4).shape == (1, 0)
    assert len(rows(scope, scope, (), 5)) <= 5


def test_points_beside_conditions() -> None:
    """Each condition just fails, fails, and just holds; those of scopes within count too, and an equation fails on both sides."""
    scope = parse("A : f32[9000]\nL[h<9000] select(h>=4321, A[h], 0) + select(h==77, A[h], 0)")
    points = {p[0] for p in rows(scope, scope, (scope,), 40)}
    assert {4320, 4321} <= points and any(p > 77 for p in points) and any(p < 77 for p in points)
    found = [f["h"] for f in _at_conditions(scope)]
    assert found[0] == 4320 and found[1] < 4321 and found[2] == 4321 and found[3] > 77 and found[4] < 77 and len(found) == 5
    nested = parse("A : f32[9000]\nL[h<9000] relu({L[h<9000] Σ[k<9] select(h>=4321, A[h+k], 0)}[h])")
    assert [sorted(f) for f in _at_conditions(nested)] == [["h"]] * 3
    inside = parse("A : f32[50]\nL[h<9000] select(h>=4321 & h>=40, A[h], 0)")
    assert [f["h"] for f in _at_conditions(inside) if f["h"] >= 50] == []


def test_a_few_conditions_take_their_share() -> None:
    body = " + ".join(f"select(h>={100 * n}, A[h], 0)" for n in range(1, 30))
    scope = parse(f"A : f32[9000]\nL[h<9000] {body}")
    assert rows(scope, scope, (scope, scope), 64) == rows(scope, scope, (scope, scope), 64)
    assert len(rows(scope, scope, (scope,), 64)) > 64


def test_conditions_give_two_points_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "_scattered", lambda *given: ())
    plain = parse("A : f32[9000]\nL[h<9000] A[h]")
    many = parse("A : f32[9000]\nL[h<9000] " + " + ".join(f"select(h>={100 * n}, A[h], 0)" for n in range(1, 30)))
    assert [len(rows(plain, plain, (many,), count)) for count in (8, 16, 60)] == [16, 32, 60], "all there are in the end"


def test_all_entries_of_a_table_as_far_as_they_can_be_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = "M : weight f32[5,3] = [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]\nX : f32[9000,4]\n"
    cheap, dear = (parse(f"{declared}L[i<5,h<9000,k<3] {body}") for body in ("M[i,k]", "Σ[j<4] M[i,k]*X[h,j]"))
    for sides in ((cheap, dear), (dear, cheap)):
        for most, times in ((60, 2), (59, 0)):
            monkeypatch.setattr(suspects, "_MOST_AT_ENTRIES", most)
            found = list(suspects._at_entries(*sides, random.Random(1)))
            assert sorted((i, k) for i, _, k in found) == sorted([(i, k) for i in range(5) for k in range(3)] * times)
            assert all(0 <= h < 9000 for _, h, _ in found)


def test_sides_of_a_condition() -> None:
    assert _edges(Cond(H - 5)) == (Cond(H - 4, True), Cond(4 - H), Cond(H - 5, True))
    assert _edges(Cond(H - 5, True)) == (Cond(H - 6), Cond(4 - H))


def test_points_near_constants() -> None:
    assert _near(0, 10, [4]) == {0, 3, 4, 5, 6, 9}
    assert _near(-2, 10, [0]) == {-2, -1, 0, 1, 9}
    assert _near(0, 4, [4, 5]) == {0, 3}
    assert sorted(_integers((3 * H + K - 4) / 2)) == [1, 2, 3, 4]
    assert sorted(_integers((5 * H - 7) // 6 + 8 * K)) == [1, 1, 1, 2, 5, 5, 6, 8]
    scope = parse("A : f32[40]\nL[2<=h<7] Σ[r<11] {L[x<13] A[x+17]}[h+19*r-23]")
    assert {2, 7, 0, 11, 13, 17, 19, 23} <= set(_constants(scope))


def test_scattered_points() -> None:
    """Corners, near constants, one coordinate at an edge, anywhere: in turns."""
    scope = parse("A : f32[2000,2000]\nL[h<1000,5<=k<1000] A[h+500,k]")
    edges, near = ({0, 1, 998, 999}, {5, 6, 998, 999}), [_near(lo, hi, set(_constants(scope))) for lo, hi in scope.box]
    points = list(_scattered(scope, scope, 400, random.Random(1)))
    assert len(points) == 400 and all(0 <= h < 1000 and 5 <= k < 1000 for h, k in points)
    assert all(h in edges[0] and k in edges[1] for h, k in points[::4]) and len(set(points[::4])) == 16
    assert all(h in near[0] and k in near[1] for h, k in points[1::4]) and len({h for h, _ in points[1::4]}) == len(near[0])
    assert all(h in edges[0] or k in edges[1] for h, k in points[2::4]) and len(set(points[2::4])) > 50
    assert {h in edges[0] for h, _ in points[2::4]} == {k in edges[1] for _, k in points[2::4]} == {True, False}
    assert len(set(points[3::4])) > 90 and np.ptp([h for h, _ in points[3::4]]) > 900
    thin = parse("A : f32[1,2]\nL[h<1,k<2] A[h,k]")
    assert set(_scattered(thin, thin, 40, random.Random(1))) == {(0, 0), (0, 1)}
