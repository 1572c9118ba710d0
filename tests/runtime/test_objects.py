"""Compiled kernels are kept for later processes; what is damaged or of another version counts for nothing."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from einnet.errors import OutOfTimeError
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import helpers
from einnet.runtime.cpu.objects import DRAFT, WORTH_SHARING, Objects, clear
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


MANY = [operator(f"A : f32[{n}]\nL[i<{n}] relu(A[i])") for n in range(2, 2 + 2 * WORTH_SHARING)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.parametrize("alone", [True, False])
def test_many_kernels_are_compiled_by_several_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alone: bool) -> None:
    """Each is compiled once, by whichever; what this process did not compile it finds on the disk."""
    monkeypatch.setattr(helpers, "processors", lambda: 3)
    monkeypatch.setattr(helpers, "alone", lambda: alone)
    monkeypatch.setattr(codegen, "compile_operators", lambda named, *_: f"{os.getpid()} {' '.join(named)}".encode())
    objects, asked = Objects(1, tmp_path / "o"), list[None]()
    objects.ahead(MANY, lambda: asked.append(None))
    assert asked
    found = objects.get(MANY)
    assert [code.split()[1].decode() for code in found] == list(codegen.operator_names(MANY))
    assert len({code.split()[0] for code in found}) == (3 if alone else 1)
    monkeypatch.setattr(codegen, "compile_operators", lambda *_: pytest.fail("compiled again"))
    Objects(1, tmp_path / "o").ahead(MANY, lambda: pytest.fail("nothing is left to do"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_what_another_process_does_not_do_is_done_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that dies, one that hangs, and kernels without code."""
    here, hanging = os.getpid(), list[int]()
    forked = helpers._forked

    def compile_operators(named: dict[str, EOperator], *_: object) -> bytes:
        if os.getpid() != here:
            while (tmp_path / "hang").exists():
                time.sleep(0.01)
            os._exit(3)
        if named.keys() & set(codegen.operator_names(MANY[3:5])):
            raise codegen.BackendError("too hard")
        return b"code"

    monkeypatch.setattr(helpers, "processors", lambda: 2)
    monkeypatch.setattr(helpers, "alone", lambda: True)
    monkeypatch.setattr(helpers, "_forked", lambda *given: hanging.append(forked(*given)) or hanging[-1])
    monkeypatch.setattr(codegen, "compile_operators", compile_operators)
    for folder in ("dies", "hang"):
        (tmp_path / folder).mkdir()
        objects = Objects(1, tmp_path / folder / "o")
        objects.ahead(MANY)
        assert objects.get([*MANY[:3], *MANY[5:]]) == (b"code",) * (len(MANY) - 2)
        with pytest.raises(codegen.NotGenerated):
            objects.get(MANY[3:4])
    assert len(hanging) == 2
    for helper in hanging:
        with pytest.raises(ChildProcessError):
            os.waitpid(helper, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_processes_that_help_end_with_what_ends_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(helpers, "processors", lambda: 2)
    monkeypatch.setattr(helpers, "alone", lambda: True)
    monkeypatch.setattr(codegen, "compile_operators", lambda *_: b"code")
    calls, forked, others = list[None](), helpers._forked, list[int]()
    monkeypatch.setattr(helpers, "_forked", lambda *given: others.append(forked(*given)) or others[-1])

    def hurry() -> None:
        calls.append(None)
        if len(calls) > 3:
            raise OutOfTimeError("no time was left")

    with pytest.raises(OutOfTimeError):
        Objects(1, tmp_path / "o").ahead(MANY, hurry)
    (other,) = others
    with pytest.raises(ChildProcessError):
        os.waitpid(other, os.WNOHANG)
