"""Compiled kernels are kept for later processes; what is damaged or of another version counts for nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.objects import DRAFT, Objects, clear
from tests.runtime.test_costs import operator

ONE = operator("A : f32[9]\nL[i<9] relu(A[i])")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def compile_operators(named: dict[str, EOperator], threads: int, cpu: str) -> bytes:
        names.extend(named)
        return f"code for {threads}".encode()

    monkeypatch.setattr(codegen, "compile_operators", compile_operators)
    return names


def test_another_process_finds_the_code(compiled: list[str], tmp_path: Path) -> None:
    assert Objects(2, tmp_path / "o").get([ONE]) == (b"code for 2",)
    later = Objects(2, tmp_path / "o")
    assert later.seconds(ONE) == 0
    assert later.get([ONE]) == (b"code for 2",)
    assert len(compiled) == 1
    assert Objects(1, tmp_path / "o").get([ONE]) == (b"code for 1",)
    assert len(compiled) == 2


def test_damaged_code_is_compiled_again(compiled: list[str], tmp_path: Path) -> None:
    Objects(1, tmp_path / "o").get([ONE])
    (file,) = (tmp_path / "o").glob("*/*.o")
    file.write_bytes(file.read_bytes()[:-1])
    assert Objects(1, tmp_path / "o").get([ONE]) == (b"code for 1",)
    assert len(compiled) == 2


def test_code_of_another_version_is_removed(compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Objects(1, tmp_path / "o").get([ONE])
    monkeypatch.setattr(codegen, "generator_version", lambda: "another")
    Objects(1, tmp_path / "o").get([ONE])
    assert len(compiled) == 2
    assert clear(tmp_path / "o") == 1
    assert clear(tmp_path / "o") == 0


def test_a_folder_that_cannot_be_written(compiled: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert Objects(1, tmp_path / "file" / "o").get([ONE]) == (b"code for 1",)


def test_a_compiler_that_fails_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(tvm, "compile", fail)
    with pytest.raises(codegen.NotGenerated, match="RuntimeError"):
        Objects(1).get([ONE])


def test_a_full_disk_leaves_no_drafts(compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        written(self, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert Objects(1, tmp_path / "o").get([ONE]) == (b"code for 1",)
    (folder,) = (tmp_path / "o").iterdir()
    assert list(folder.iterdir()) == []
    assert Objects(1, tmp_path / "o").get([ONE]) == (b"code for 1",)
    assert len(compiled) == 2
    assert len(list(folder.iterdir())) == 1


def test_what_a_killed_process_was_writing_is_removed_by_a_later_one(compiled: list[str], tmp_path: Path) -> None:
    Objects(1, tmp_path / "o").get([ONE])
    (folder,) = (tmp_path / "o").iterdir()
    old, new = folder / f"{DRAFT}1-1", folder / f"{DRAFT}2-2"
    for draft in (old, new):
        draft.write_bytes(b"half")
    os.utime(old, (0, 0))
    Objects(2, tmp_path / "o").get([ONE])
    assert not old.exists()
    assert new.exists(), "another process may be writing it now"


def test_whole_lines_of_offsets_do_not_count() -> None:
    def at(offset: int) -> EOperator:
        return EOperator(ONE.scope, (("A", View("a", (9,), (1,), offset)),), dense_view("y", (9,)))

    first, line, other = codegen.operator_names([at(0), at(48), at(49)])
    assert first == line != other
