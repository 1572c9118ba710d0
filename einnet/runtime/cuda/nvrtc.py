"""NVIDIA's run-time compiler: CUDA text to machine code of a card, without a card. Imported when first used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from einnet.errors import BackendError
from einnet.runtime.cuda.text import PRELUDE

ARCHITECTURE = "sm_90"
"""H100 and H200."""


def available() -> str | None:
    """None if the compiler can be used, else why not."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as e:  # a missing module or library, of several kinds
        return f"NVRTC cannot be used ({e}): `pip install cuda-bindings nvidia-cuda-nvrtc`"
    return None


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel holds on the card: registers of a thread, bytes that a block shares, bytes that a thread spills to memory."""

    registers: int
    shared: int
    spilled: int


def compile_text(text: str, architecture: str = ARCHITECTURE) -> bytes:
    """The machine code of generated CUDA text. Raises BackendError with the compiler's first error, or without a compiler."""
    return _compiled(text, architecture)[0]


def resources(text: str, architecture: str = ARCHITECTURE) -> dict[str, Resources]:
    """What each kernel of a text holds, by the assembler's report: a figure without a card. Raises BackendError."""
    log = _compiled(text, architecture, b"--ptxas-options=-v")[1]
    found: dict[str, Resources] = {}
    for part in re.split(r"(?=Compiling entry function )", log)[1:]:
        name, registers = re.search(r"entry function '(\w+)'", part), re.search(r"Used (\d+) registers", part)
        if name is None or registers is None:
            raise BackendError("the assembler reports no registers of a kernel")
        shared = re.search(r"(\d+) bytes smem", part)
        spilled = sum(int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", part))
        found[name[1]] = Resources(int(registers[1]), int(shared[1]) if shared else 0, spilled)
    return found


def _compiled(text: str, architecture: str, *more: bytes) -> tuple[bytes, str]:
    """Machine code, and what the compiler says."""
    missing = available()
    if missing:
        raise BackendError(missing)
    from cuda.bindings import nvrtc

    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", *more]
    program = _done(nvrtc.nvrtcCreateProgram((PRELUDE + text).encode(), b"kernels.cu", 0, None, None))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log: bytes = b" " * _done(nvrtc.nvrtcGetProgramLogSize(program))
        _done(nvrtc.nvrtcGetProgramLog(program, log))
        said = log.decode(errors="replace").strip("\0 \n")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            lines = said.splitlines()
            raise BackendError(f"NVRTC rejects generated CUDA text: {next((x for x in lines if 'error' in x), lines[0] if lines else status)}")
        code: bytes = b" " * _done(nvrtc.nvrtcGetCUBINSize(program))
        _done(nvrtc.nvrtcGetCUBIN(program, code))
        return code, said
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _done(result: tuple[Any, ...]) -> Any:
    """The value of a call. Raises BackendError where it failed."""
    status, *values = result
    if int(status) != 0:
        raise BackendError(f"NVRTC failed: {status.name}")
    return values[0] if values else None
