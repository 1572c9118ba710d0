"""How many times as much an algorithm errs when factors are rounded: by squares of its constants, and as numbers show it."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest

from einnet.expr.algebra import spread, toom_cook
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.expr.values import mean_squares
from einnet.expr.values.mean_squares import growth, looked_at
from einnet.search.space import Options, Space

PLAIN = "X : f32[26,5]\nW : weight f32[3,5,4]\nL[h<24,f<4] Σ[r<3,c<5] X[h+r,c]*W[r,c,f]"


def parsed(text: str) -> Scope:
    found = parse(text)
    assert isinstance(found, Scope)
    return found


def forms_of(text: str) -> list[Scope]:
    return [f.tree for f in Space(Options(max_depth=3, states=60)).forms(parsed(text))]


def test_a_form_is_told_by_its_points() -> None:
    """Of the forms of a correlation, those by F(m,3) err as the spread of their points says, all others as the plain one."""
    plain = parsed(PLAIN)
    found = {round(growth(plain, form), 3) for form in forms_of(PLAIN)}
    points = {m: [row[1] for row in zip(*toom_cook(m, 3).A, strict=True)][:-1] for m in (2, 3, 4, 6)}
    expected = {round(sqrt(spread(m, 3, p)), 3) for m, p in points.items()} | {1.0}
    assert found <= expected
    assert len(found) >= 4


@pytest.mark.parametrize(("text", "grown"), [
    ("X : f32[9,5]\nL[i<9] Σ[k<5] 3*X[i,k]*X[i,k]", 3.0),
    ("X : f32[9,5]\nL[i<9] Σ[k<5] (X[i,k] + X[i,k])*X[i,k]", sqrt(2)),
    ("X : f32[9,5]\nL[i<9] relu({L[i<9] Σ[k<5] 2*X[i,k]*X[i,k]}[i])", 2.0),
    ("X : f32[9,5]\nL[i<9] Σ[k<5] X[i,k]*X[i,k]/2", 1.0),
])  # fmt: skip
def test_constants_count_by_their_squares(text: str, grown: float) -> None:
    """What is smaller than the plain sum is told as no better than that: it is no other form of it."""
    assert growth(parsed("X : f32[9,5]\nL[i<9] Σ[k<5] X[i,k]*X[i,k]"), parsed(text)) == pytest.approx(grown)


def test_what_takes_too_long_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = parsed(PLAIN)
    assert growth(plain, plain) == 1.0
    monkeypatch.setattr(mean_squares, "MOST_EFFORT", 10)
    assert growth(plain, plain) == inf


def test_all_places_of_a_tile_are_looked_at() -> None:
    points = np.array(looked_at(parsed("X : f32[50,3]\nL[h<50,f<3] X[h,f]")))
    assert all(set(points[:, 0] % m) == set(range(m)) for m in (2, 3, 4, 6))
    assert points[:, 0].min() > 10 and points[:, 0].max() < 40 and set(points[:, 1]) == {0, 1, 2}
