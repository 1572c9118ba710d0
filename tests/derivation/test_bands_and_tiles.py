"""Which elements a band has, and which sizes of tiles are tried, by enumeration."""

from __future__ import annotations

from fractions import Fraction

import pytest

from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.rules.band import band_of, needed
from einnet.derivation.rules.tile import sizes
from einnet.derivation.rules.triangle import triangle
from einnet.expr.index import value
from einnet.expr.nodes import Iter, Select
from einnet.expr.notation.text import parse

ROWS, COLUMNS = 5, 9


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("lowest", range(-3, 4))
def test_the_elements_of_a_band(lowest: int, step: int) -> None:
    """The distances k - m of the conditions, each once, in order.

    No band where it is no narrower than the range, or has no distance at which every row has an element.
    """
    for highest in range(lowest, lowest + 6):
        for rest in range(step):
            conds = f"k-m-({lowest})>=0 & m-k+({highest})>=0" + (f" & (k-m+{step - rest})%{step}==0" if step > 1 else "")
            scope = parse(f"Y : f32[{ROWS},{COLUMNS}]\nL[m<{ROWS}] max[k<{COLUMNS}] select({conds}, Y[m,k], -inf)")
            distances = [d for d in range(lowest, highest + 1) if d % step == rest]
            common = [d for d in distances if all(0 <= m + d < COLUMNS for m in range(ROWS))]
            found = band_of(scope, scope.sums[0])
            assert (found is not None) == bool(common and len(distances) < COLUMNS), conds
            if found is not None:
                place, count = found
                for m in range(ROWS):
                    assert [value(place, {"k": w, "m": m}) - m for w in range(count)] == distances, conds


def test_the_narrowest_band_counts_and_a_band_as_wide_as_the_range_is_none() -> None:
    def count(conds: str, columns: int = 9) -> int | None:
        scope = parse(f"Y : f32[5,{columns}]\nL[m<5] max[k<{columns}] select({conds}, Y[m,k], -inf)")
        found = band_of(scope, scope.sums[0])
        return None if found is None else found[1]

    assert count("k-m>=0 & m-k+3>=0 & k-2>=0 & 4-k>=0") == 3 and count("k-m>=0 & m-k+1>=0 & k-2>=0 & 4-k>=0") == 2
    assert count("k-m+4>=0 & m-k+3>=0") == 8 and count("k-m+4>=0 & m-k+4>=0") is None and count("k-m+4>=0 & m-k+4>=0", 10) == 9
    assert count("k-m>=0") is None and count("m-k+3>=0") is None and count("k-m==0") is None


@pytest.mark.parametrize(("loop", "window", "tried"), [
    (100, 70, [64, 32, 16, 8]), (100, 64, [64, 32, 16, 8]), (100, 63, [32, 16, 8, 4]), (65, 64, [64, 32, 16, 8]), (64, 64, [32, 16, 8, 4]),
    (5, 4, [4]), (4, 4, []), (100, 3, []), (9, 8, [8, 4]), (8, 8, [4]),
])  # fmt: skip
def test_sizes_of_tiles(loop: int, window: int, tried: list[int]) -> None:
    """Powers of two from four on, no longer than the window and shorter than the loop: the four largest."""
    assert sizes(Iter("m", 3, 3 + loop), Iter("w", -2, window - 2)) == tried


def test_a_triangle_is_cut_in_twice_as_many_blocks_as_long_as_that_leaves_out_more() -> None:
    """Eight blocks leave 36 of 64 parts and sixteen would leave 34, which is not 8 % less. A corner is not worth blocks."""
    declared = "Y : f32[64,64]\nL[m<64] Σ[k<64] "
    found = [o.parameters for o in triangle(parse(f"{declared}select(m-k>=0, Y[m,k], 0)")) if isinstance(o, Rewrite)]
    assert found == ["m in 2", "m in 4", "m in 8"]
    assert not [o for o in triangle(parse(f"{declared}select(m+60-k>=0, Y[m,k], 0)")) if isinstance(o, Rewrite)]


@pytest.mark.parametrize(("body", "neutral", "conds"), [
    ("select(k-m>=0, Y[m,k], 0)*select(k-2>=0, Y[m,k], 0)", "0", "k-m>=0 & k-2>=0"),
    ("select(k-m>=0, Y[m,k], 0)*select(k-2>=0, 1/Y[m,k], 0)", "0", "k-2>=0"),
    ("select(k-m>=0 & k-2>=0, 1/Y[m,k], 0)*select(k-m>=0, log(Y[m,k]), 0)", "0", "k-m>=0"),
    ("select(k-m>=0, 1/Y[m,k], 0)*select(k-2>=0, log(Y[m,k]), 0)", "0", ""),
    ("select(k-m>=0, Y[m,k], 0)*log(Y[m,k])", "0", ""),
    ("select(k-m>=0, Y[m,k], -inf) + select(k-2>=0, Y[m,k], -inf)", "-inf", "k-m>=0 & k-2>=0"),
    ("select(k-m>=0, 1/Y[m,k], -inf) + Y[m,k]", "-inf", "k-m>=0"),
    ("select(k-m>=0, Y[m,k], -inf) + 1/Y[m,k]", "-inf", ""),
])  # fmt: skip
def test_a_body_is_neutral_where_a_condition_fails(body: str, neutral: str, conds: str) -> None:
    """Whatever has no value stands under each of them."""
    head = f"Y : f32[{ROWS},{COLUMNS}]\nL[m<{ROWS},k<{COLUMNS}] "
    scope, asked = parse(head + body), parse(f"{head}select({conds}, Y[m,k], {neutral})").body if conds else None
    value = float("-inf") if neutral == "-inf" else Fraction(0)
    assert needed(scope.body, value, "k", scope.ranges) == (asked.conds if isinstance(asked, Select) else ())
