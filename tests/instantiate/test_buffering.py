"""Which nested scopes generated code keeps in a local array: those whose inlining would repeat so much work, where the array is smallest."""

from __future__ import annotations

from fractions import Fraction

import pytest

pytest.importorskip("tvm")

from einnet.instantiate.codegen import buffering
from einnet.instantiate.codegen.buffering import kept_arrays
from tests.instantiate.test_codegen_structure import nest_of


def arrays(text: str, bound: int = 0) -> list[tuple[int, ...]]:
    """Extents of the arrays kept inside the first `bound` loops and outside the others."""
    nest = nest_of(text)
    inside = frozenset(i.name for i in nest.loops[:bound])
    return [k.extents for k in kept_arrays(nest.expr, nest.loops[bound:], (), inside, nest.ranges)]


@pytest.mark.parametrize(("rows", "kept"), [(2, False), (18, False), (19, False), (20, True), (64, True)])
def test_an_array_saves_nearly_half_of_the_work(rows: int, kept: bool) -> None:
    """Two of rows+1 values are used by each of so many rows: at 19 rows 38 computations are 1.9 times 20, which is not more."""
    assert Fraction(buffering.GAIN).limit_denominator(100) == Fraction(2 * 19, 20)
    text = f"A : f32[{rows + 1}]\nL[h<{rows}] Σ[r<2] {{L[x<{rows + 1}] exp(A[x])}}[h+r]"
    assert arrays(text) == ([(rows + 1,)] if kept else [])


@pytest.mark.parametrize(("rows", "kept"), [(19, False), (20, True)])
def test_the_array_is_as_far_inside_as_it_is_smaller(rows: int, kept: bool) -> None:
    """A column at a time: outside of all loops nothing is kept, inside the loop over columns one column is."""
    text = f"A : f32[{rows + 1},7]\nL[b<7,h<{rows}] Σ[r<2] {{L[x<{rows + 1},b<7] exp(A[x,b])}}[h+r,b]"
    assert arrays(text) == []
    assert arrays(text, 1) == ([(rows + 1, 1)] if kept else [])


def test_what_every_element_uses_once_is_not_kept() -> None:
    assert arrays("A : f32[64]\nL[h<64] 2*{L[x<64] exp(A[x])}[h]") == []
    assert arrays("A : f32[64]\nL[h<64] Σ[r<1] {L[x<64] exp(A[x])}[63-h]") == []


def test_only_what_is_read_of_the_box_is_kept() -> None:
    """Of 90 values 31 are used, from the fifth on; two uses of one function share one window."""
    scope = "{L[x<90] exp(A[x])}"
    assert arrays(f"A : f32[90]\nL[h<30] Σ[r<2] {scope}[h+r+5]") == [(31,)]
    assert arrays(f"A : f32[90]\nL[h<30] Σ[r<2] {scope}[h+r+5]*{scope}[h+r+7]") == [(33,)]


def test_an_array_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "A : f32[65]\nL[h<64] Σ[r<2] {L[x<65] exp(A[x])}[h+r]"
    for most, kept in ((65, [(65,)]), (64, [])):
        monkeypatch.setattr(buffering, "LARGEST", most)
        assert arrays(text) == kept
