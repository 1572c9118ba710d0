"""Texts that end the compiler, or that it does not end with: the process that asks goes on. The library is played by a module that misbehaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from einnet.errors import BackendError
from einnet.runtime.cuda import nvrtc

LIBRARY = '''
import os, sys, time
from types import SimpleNamespace

def nvrtcVersion():
    return done(0), 13, 0

def done(status):
    return type("Result", (int,), {"name": "NVRTC_SUCCESS" if not status else "NVRTC_ERROR_COMPILATION"})(status)

def nvrtcCreateProgram(text, *rest):
    return done(0), {"text": text.decode()}

def nvrtcCompileProgram(program, count, options):
    assert count == len(options)
    if "DIE" in program["text"]:
        os.kill(os.getpid(), 11)
    if "LEAVE" in program["text"]:
        os._exit(3)
    if "SLOW" in program["text"]:
        time.sleep(60)
    print("libraries print")
    program["options"] = b" ".join(options)
    return (done("WRONG" in program["text"]),)

def nvrtcGetProgramLogSize(program):
    return done(0), 40

def nvrtcGetProgramLog(program, room):
    fill(room, b"kernels.cu(9): error: this is wrong")
    return (done(0),)

def nvrtcGetCUBINSize(program):
    return done(0), 300000

def nvrtcGetCUBIN(program, room):
    fill(room, (program["options"] + b";") * 30000)
    return (done(0),)

def nvrtcDestroyProgram(program):
    return (done(0),)

def fill(room, values):
    import ctypes
    values = values[: len(room)]
    ctypes.memmove(room, values, len(values))
'''


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "cuda" / "bindings"
    folder.mkdir(parents=True)
    for empty in (folder.parent / "__init__.py", folder / "__init__.py"):
        empty.touch()
    (folder / "nvrtc.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(nvrtc, "available", lambda: None)
    made = nvrtc.Compiler(seconds=20.0)
    yield made
    made.close()


def test_machine_code_of_any_size_comes_back(compiler):
    code, said = compiler("good", "sm_100", "--more")
    assert len(code) == 300000
    assert code.startswith(b"--gpu-architecture=sm_100 --std=c++17 --more;")
    assert "wrong" in said


@pytest.mark.parametrize(("text", "why"), [("DIE", "ends with signal 11 at a generated CUDA text of 3 characters"), ("LEAVE", "ends with status 3")])
def test_a_text_that_ends_the_compiler_is_refused_and_the_next_one_is_compiled(compiler, text, why):
    assert compiler("good")
    with pytest.raises(BackendError, match=why):
        compiler(text)
    assert compiler("good")


def test_a_text_that_takes_too_long_is_refused(compiler):
    compiler("good")
    compiler.seconds = 0.3
    with pytest.raises(BackendError, match=r"needs more than 0.3 s for a generated CUDA text of 4 characters"):
        compiler("SLOW")
    compiler.seconds = 20.0
    assert compiler("good")


def test_errors_are_the_compilers(compiler):
    with pytest.raises(BackendError, match=r"NVRTC rejects generated CUDA text: kernels.cu\(9\): error: this is wrong"):
        compiler("WRONG")
    assert compiler("good")


def test_of_many_texts_those_that_are_refused_have_their_reason(compiler):
    texts = {"a": "good", "b": "DIE", "c": "good", "d": "WRONG", "e": "good"}
    found = dict(nvrtc.compiled_or_refused(texts, workers=2))
    assert [name for name, code in found.items() if isinstance(code, bytes)] == ["a", "c", "e"]
    with pytest.raises(BackendError, match="kernel b: NVRTC ends with signal 11"):
        nvrtc.compile_texts(texts, workers=2)
