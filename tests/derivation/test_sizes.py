"""What rules infer from sizes: how large tiles are, and where the elements of a band lie."""

from __future__ import annotations

import pytest

from einnet.derivation.rules.band import band_of
from einnet.derivation.rules.tile import sizes, tiled
from einnet.expr.nodes import Iter, Read, Scope
from einnet.expr.notation.text import parse


@pytest.mark.parametrize(("loop", "window", "found"), [
    (64, 20, [16, 8, 4]), (64, 3, []), (8, 8, [4]), (9, 8, [8, 4]), (9, 7, [4]), (4, 4, []), (5, 4, [4]), (300, 300, [256, 128, 64, 32]),
    (100, 64, [64, 32, 16, 8]),
])  # fmt: skip
def test_sizes_of_tiles(loop: int, window: int, found: list[int]) -> None:
    """Powers of two from 4 on, no longer than the window and shorter than the loop; the four largest."""
    assert sizes(Iter("m", 0, loop), Iter("w", 0, window)) == found
    assert sizes(Iter("m", -3, loop - 3), Iter("w", 2, window + 2)) == found


@pytest.mark.parametrize(("sign", "reach"), [(1, (2, 16)), (-1, (-1, 13))])
def test_a_tile_sees_the_windows_of_all_its_rows(sign: int, reach: tuple[int, int]) -> None:
    scope = parse(f"A : f32[99]\nB : f32[40,3]\nL[-1<=m<20] Σ[2<=w<13] A[m{'+' if sign > 0 else '-'}w+30]*B[m+1,0]")
    result = tiled(scope, scope.loops[0], scope.sums[0], sign, 4).scope
    assert isinstance(result.body, Read) and isinstance(result.body.base, Scope)
    inner = result.body.base
    assert [i.range for i in inner.loops] == [(0, 6), (0, 4)] and [i.range for i in inner.sums] == [reach]


@pytest.mark.parametrize(("condition", "extent"), [
    ("n-m+6>=0 & m-n+6>=0", 13), ("n-m+6>=0 & m-n>=0", 7), ("n-m+6>=0 & m-n+6>=0 & (n-m)%3==0", 5), ("n-m+6>=0 & m-n+5>=0 & (n-m)%3==0", 4),
    ("n-m+6>=0 & m-n+6>=0 & (2*m+n)%3==0", 5), ("n-m+6>=0 & m-n+6>=0 & (n-m+1)%3==0", None), ("n-m-1>=0 & m-n+6>=0", None), ("n-m+6>=0", None),
    ("n-m+28>=0 & m-n+28>=0", None), ("n-m+27>=0 & m-n+28>=0", 56), ("n+m-5>=0 & 9-n-m>=0", None),
])  # fmt: skip
def test_elements_of_a_band(condition: str, extent: int | None) -> None:
    """As many as lie between the limits and in the residue class; none where a row has none, or where the band is as long as the loop."""
    scope = parse(f"A : f32[57,57]\nL[m<57] Σ[n<57] select({condition}, A[m,n], 0)")
    found = band_of(scope, scope.sums[0])
    assert (found[1] if found else None) == extent
