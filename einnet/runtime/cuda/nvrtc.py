"""NVIDIA's run-time compiler: CUDA text to machine code of a card, without a card.

It runs in a child process: for some texts NVRTC ends the process that calls it, and for some it does not end in a time that anyone waits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from einnet.errors import BackendError
from einnet.runtime.child import Answer, Child, Ended
from einnet.runtime.cuda import nvrtc_child
from einnet.runtime.cuda.prelude import before

ARCHITECTURE = "sm_90"
"""H100 and H200."""

SECONDS = 30.0
"""For one text; nearly all take less than half a second."""


@cache
def available() -> str | None:
    """None if the compiler can be used, else why not."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as e:  # a missing module or library, of several kinds
        return f"NVRTC cannot be used ({e}): `pip install cuda-bindings nvidia-cuda-nvrtc`"
    return None


@cache
def version() -> str:
    """The compiler's version; "" where it cannot be used."""
    if available():
        return ""
    from cuda.bindings import nvrtc

    return ".".join(str(n) for n in nvrtc.nvrtcVersion()[1:])


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel holds on the card: registers of a thread, bytes that a block shares, bytes that a thread spills to memory."""

    registers: int
    shared: int
    spilled: int


class TooSlow(BackendError):
    """The compiler did not end in time: a busy machine may be why."""


class Compiler:
    """A child process that compiles one text after the other, and is begun anew where a text has ended it or took longer than `seconds`."""

    def __init__(self, seconds: float = SECONDS) -> None:
        missing = available()
        if missing:
            raise BackendError(missing)
        self.seconds = seconds
        self._child = Child(nvrtc_child.__name__)

    def __call__(self, text: str, architecture: str = ARCHITECTURE, *more: str) -> tuple[bytes, str]:
        """Machine code, and what the compiler says. Raises BackendError with its first error, or for a text at which it does not end as it should."""
        options = [f"--gpu-architecture={architecture}", "--std=c++17", *more]
        answer, code = self._asked({"text": before(text) + text, "options": options}, len(text))
        if answer["error"]:
            lines = str(answer["log"]).splitlines()
            said = next((x for x in lines if "error" in x), lines[0] if lines else answer["error"])
            raise BackendError(f"NVRTC rejects generated CUDA text: {said}")
        return code, str(answer["log"])

    def close(self) -> None:
        """End the child."""
        self._child.end()

    def _asked(self, request: dict[str, Any], characters: int) -> Answer:
        try:
            return self._child.one(request, self.seconds)
        except TimeoutError:
            raise TooSlow(f"NVRTC needs more than {self.seconds:g} s for a generated CUDA text of {characters} characters") from None
        except Ended as how:
            raise BackendError(f"NVRTC ends with {how} at a generated CUDA text of {characters} characters") from None


@cache
def _compiler() -> Compiler:
    """One child for all who ask for one text at a time."""
    return Compiler()


def compile_text(text: str, architecture: str = ARCHITECTURE) -> bytes:
    """The machine code of generated CUDA text. Raises BackendError with the compiler's first error, or without a compiler."""
    return _compiler()(text, architecture)[0]


def compile_texts(texts: Mapping[str, str], architecture: str = ARCHITECTURE, workers: int = 0) -> dict[str, bytes]:
    """The machine code of each text. Raises BackendError that names the text."""
    found = {}
    for name, code in compiled_or_refused(texts, architecture, workers):
        if isinstance(code, BackendError):
            raise BackendError(f"kernel {name}: {code}") from code
        found[name] = code
    return found


def compiled_or_refused(texts: Mapping[str, str], architecture: str = ARCHITECTURE, workers: int = 0) -> Iterable[tuple[str, bytes | BackendError]]:
    """The machine code of each text, or why there is none, by so many children at once (0: one for each processor, four at most)."""
    count = max(1, min(workers or min(os.cpu_count() or 1, 4), len(texts)))
    own = [_compiler()] if count == 1 else [Compiler() for _ in range(count)]
    free = list(own)

    def one(item: tuple[str, str]) -> tuple[str, bytes | BackendError]:
        compiler = free.pop()
        try:
            return item[0], compiler(item[1], architecture)[0]
        except BackendError as e:
            return item[0], e
        finally:
            free.append(compiler)

    try:
        with ThreadPoolExecutor(count) as pool:
            yield from pool.map(one, texts.items())
    finally:
        if count > 1:
            for compiler in own:
                compiler.close()


def resources(text: str, architecture: str = ARCHITECTURE) -> dict[str, Resources]:
    """What each kernel of a text holds, by the assembler's report: a figure without a card. Raises BackendError."""
    log = _compiler()(text, architecture, "--ptxas-options=-v")[1]
    found: dict[str, Resources] = {}
    for part in re.split(r"(?=Compiling entry function )", log)[1:]:
        name, registers = re.search(r"entry function '(\w+)'", part), re.search(r"Used (\d+) registers", part)
        if name is None or registers is None:
            raise BackendError("the assembler reports no registers of a kernel")
        shared = re.search(r"(\d+) bytes smem", part)
        spilled = sum(int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", part))
        found[name[1]] = Resources(int(registers[1]), int(shared[1]) if shared else 0, spilled)
    return found
