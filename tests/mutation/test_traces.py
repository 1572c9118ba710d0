"""What tests execute is kept piece by piece, whenever a run is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.runner import Traced, remember, remembered

FIRST = {"a": Traced(0.5, frozenset({"file:function"})), "b": Traced(1.0, frozenset())}
SECOND = {"b": Traced(2.0, frozenset({"file:3"})), "c": Traced(float("inf"), frozenset())}


def test_nothing_is_known_before(tmp_path: Path) -> None:
    assert remembered(tmp_path / "none") == {}
    assert not (tmp_path / "none").exists()


def test_pieces_are_appended_and_the_last_holds(tmp_path: Path) -> None:
    cache = tmp_path / "traces"
    remember(cache, FIRST)
    before = cache.read_bytes()
    remember(cache, SECOND)
    assert cache.read_bytes().startswith(before), "what was kept is not written again"
    assert remembered(cache) == {**FIRST, **SECOND}
    assert remembered(cache) == {**FIRST, **SECOND}


@pytest.mark.parametrize("left", [1, 10, -10, -1])
def test_a_piece_that_was_cut_off_hides_none_before_and_none_after(tmp_path: Path, left: int) -> None:
    cache = tmp_path / "traces"
    remember(cache, FIRST)
    size = cache.stat().st_size
    remember(cache, SECOND)
    written = cache.read_bytes()
    cache.write_bytes(written[: size + left if left > 0 else left])
    assert remembered(cache) == FIRST
    remember(cache, SECOND)
    assert remembered(cache) == {**FIRST, **SECOND}
