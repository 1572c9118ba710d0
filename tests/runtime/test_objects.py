"""Compiled kernels are kept for later processes; what is damaged or of another version counts for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.objects import Objects, clear
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


def test_whole_lines_of_offsets_do_not_count() -> None:
    def at(offset: int) -> EOperator:
        return EOperator(ONE.scope, (("A", View("a", (9,), (1,), offset)),), dense_view("y", (9,)))

    first, line, other = codegen.operator_names([at(0), at(48), at(49)])
    assert first == line != other
