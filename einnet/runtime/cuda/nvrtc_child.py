"""The process that calls NVRTC: texts come in, machine code goes out. A text that ends it ends nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from einnet.runtime.child import Answer


def load() -> None:
    """Import the library."""
    from cuda.bindings import nvrtc  # noqa: F401


def answers(asked: dict[str, Any]) -> Iterator[Answer]:
    """The code of a text, with the compiler's error and what it says."""
    error, log, code = compiled(asked["text"].encode(), [str(o).encode() for o in asked["options"]])
    yield {"error": error, "log": log}, code


def compiled(text: bytes, options: list[bytes]) -> tuple[str, str, bytes]:
    """The compiler's error ("" where there is none), what it says, and the code."""
    from cuda.bindings import nvrtc

    status, program = nvrtc.nvrtcCreateProgram(text, b"kernels.cu", 0, None, None)
    if int(status):
        return status.name, "", b""
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _filled(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace").strip("\0 \n")
        if int(status):
            return status.name, log, b""
        return "", log, _filled(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _filled(size: Any, fill: Any, program: Any) -> bytes:
    status, count = size(program)
    room = b" " * (0 if int(status) else count)
    return room if int(status) or int(fill(program, room)[0]) == 0 else b""
