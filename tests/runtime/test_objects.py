"""Compiled kernels are kept for later processes; what is damaged or of another version counts for nothing."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from einnet.errors import BackendError, OutOfTimeError
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import helpers
from einnet.runtime.cpu.compiler import machine_code, serving
from einnet.runtime.cpu.compiler.serving import WORTH_SHARING, shared_out
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
    with pytest.raises(BackendError, match="TVM cannot compile k: RuntimeError"):
        machine_code.compile_operators({"k": ONE}, 1)


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


FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
NAMES = codegen.operator_names(MANY)


@FORKS
@pytest.mark.parametrize("processors", [3, 1])
def test_many_kernels_are_compiled_by_several_processes(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    """Each once, by whichever; what has no code has a reason, whoever finds that."""
    monkeypatch.setattr(helpers, "processors", lambda: processors)
    refused = dict(shared_out([*NAMES], lambda name: ({"error": name}, b"") if name in NAMES[3:6] else ({}, b"code")))
    assert {name: told["error"] for name, (told, _) in refused.items() if told} == {name: name for name in NAMES[3:6]}
    found = dict(shared_out([*NAMES], lambda name: ({}, f"{os.getpid()} {name}".encode())))
    assert {name: code.split()[1].decode() for name, (_, code) in found.items()} == {name: name for name in NAMES}
    assert len({code.split()[0] for _, code in found.values()}) == processors
    few = dict(shared_out([*NAMES[: WORTH_SHARING - 1]], lambda name: ({}, str(os.getpid()).encode())))
    assert {code for _, code in few.values()} == {str(os.getpid()).encode()}


@FORKS
@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_what_another_process_does_not_do_is_done_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    """One that dies, one that hangs, and kernels without code."""
    here, others = os.getpid(), list[int]()
    forked = helpers._forked

    def answer(name: str) -> tuple[dict[str, str], bytes]:
        if os.getpid() != here:
            while how == "hangs":
                time.sleep(0.01)
            os._exit(3)
        return ({"error": "too hard"}, b"") if name in NAMES[3:5] else ({}, b"code")

    monkeypatch.setattr(serving, "PATIENCE", 0.0)
    monkeypatch.setattr(helpers, "processors", lambda: 2)
    monkeypatch.setattr(helpers, "_forked", lambda *given: others.append(forked(*given)) or others[-1])
    found = dict(shared_out([*NAMES], answer))
    assert {name for name, (told, _) in found.items() if told} == set(NAMES[3:5])
    assert {code for _, code in found.values()} == {b"", b"code"}
    (other,) = others
    with pytest.raises(ChildProcessError):
        os.waitpid(other, 0)


@FORKS
def test_processes_that_help_end_with_what_ends_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "processors", lambda: 2)
    forked, others = helpers._forked, list[int]()
    monkeypatch.setattr(helpers, "_forked", lambda *given: others.append(forked(*given)) or others[-1])
    sharing = shared_out([*NAMES], lambda name: (time.sleep(0.05), ({}, b"code"))[1])
    next(sharing)
    sharing.close()
    (other,) = others
    with pytest.raises(ChildProcessError):
        os.waitpid(other, os.WNOHANG)


def together(*, until: int = 1000) -> tuple[list[str], object]:
    """What stands for the compiler of many kernels, which dies after some, and the names of those that it was asked for."""
    asked: list[str] = []

    def compile_each(named: dict[str, EOperator], threads: int, cpu: str, look: object) -> Iterator[tuple[str, bytes | BackendError]]:
        asked.extend(named)
        for n, name in enumerate(named):
            if n < until:
                yield name, BackendError("too hard") if n == 1 else f"together {name}".encode()

    return asked, compile_each


def test_many_kernels_are_asked_for_at_once(compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked, compile_each = together()
    monkeypatch.setattr(codegen, "compile_each", compile_each)
    objects, hurried = Objects(2, tmp_path / "o"), list[None]()
    objects.get(MANY[-1:])
    objects.ahead(MANY, lambda: hurried.append(None))
    assert asked == [*NAMES[:-1]]
    assert compiled == [NAMES[-1]], "nothing is compiled twice, also what was there, or has no code"
    assert len(hurried) > len(asked)
    with pytest.raises(codegen.NotGenerated, match=r"no code for .*: too hard"):
        objects.get([MANY[1]])
    assert objects.get([MANY[0], *MANY[2:-1]]) == tuple(f"together {n}".encode() for n in (NAMES[0], *NAMES[2:-1]))
    asked.clear()
    Objects(2, tmp_path / "o").ahead(MANY[2:])
    assert asked == []


def test_few_kernels_are_asked_for_one_by_one(compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(codegen, "compile_each", lambda *_: pytest.fail("asked for together"))
    Objects(2, tmp_path / "o").ahead(MANY[: WORTH_SHARING - 1])
    assert compiled == [*NAMES[: WORTH_SHARING - 1]]


def test_what_a_compiler_that_dies_leaves_is_asked_for_one_by_one(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen, "compile_each", together(until=4)[1])
    Objects(2).ahead(MANY)
    assert compiled == [*NAMES[4:]]


def test_who_is_in_a_hurry_ends_it(compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(codegen, "compile_each", together()[1])
    calls = list[None]()

    def hurry() -> None:
        calls.append(None)
        if len(calls) > 3:
            raise OutOfTimeError("no time was left")

    objects = Objects(1, tmp_path / "o")
    with pytest.raises(OutOfTimeError):
        objects.ahead(MANY, hurry)
    assert compiled == []
    assert objects.seconds(MANY[0]) == 0, "what was compiled by then is there"
    assert objects.seconds(MANY[-1]) > 0


def test_what_every_program_has_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = list[None]()
    monkeypatch.setattr(codegen, "support_object", lambda: asked.append(None) or b"support")
    assert Objects(1, tmp_path / "o").support() == Objects(1, tmp_path / "o").support() == b"support"
    assert len(asked) == 1
    assert clear(tmp_path / "o") == 0, "it is no kernel"
    assert Objects(1).support() == b"support"
    assert len(asked) == 2
