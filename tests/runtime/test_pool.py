"""Which programs of a range stay bound to memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from einnet.runtime import pool
from einnet.runtime.pool import BOUND, SHARE, Bound


@pytest.mark.parametrize(("free", "kept"), [(1e12, 10), (100 * (BOUND + 2.5) / SHARE, BOUND + 3), (0.0, BOUND)])
def test_the_last_ones_stay_and_all_where_there_is_memory(free: float, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(size: int) -> Any:
        made.append(size)
        return SimpleNamespace(nbytes=100, size=size)

    monkeypatch.setattr(pool, "available_bytes", lambda: free)
    bound = Bound(make)
    for size in range(1, 11):
        assert bound.get(size) is bound.get(size)
    assert (made, bound.nbytes) == (list(range(1, 11)), 100 * kept)
    for size in range(11 - kept, 11):
        bound.get(size)
    assert len(made) == 10
    bound.get(1)
    assert len(made) == (10 if kept == 10 else 11)
    bound.close()
    assert bound.nbytes == 0
