"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from einnet.runtime.files import replacing


def test_what_is_written_stands_there_with_what_came_along(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with replacing(tmp_path / "x") as draft:
        draft.write_text("new")
        draft.with_name("x.data").write_text("more")
        assert (tmp_path / "x").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["x", "x.data"]
    assert [(tmp_path / name).read_text() for name in ("x", "x.data")] == ["new", "more"]


@pytest.mark.parametrize("error", [OSError, RuntimeError, KeyboardInterrupt])
def test_where_writing_fails_all_stays_as_it_was(error: type[BaseException], tmp_path: Path) -> None:
    def broken(draft: Path) -> None:
        draft.write_text("ha")
        raise error

    (tmp_path / "x").write_text("old")
    with pytest.raises(error), replacing(tmp_path / "x") as draft:
        broken(draft)
    assert (tmp_path / "x").read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_where_nothing_can_stand_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in ("folder", "missing/x"):
        with pytest.raises(OSError), replacing(tmp_path / place) as draft:
            draft.write_text("lost")
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []
