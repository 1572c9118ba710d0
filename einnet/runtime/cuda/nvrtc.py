"""NVIDIA's run-time compiler: CUDA text to machine code of a card, without a card. Imported when first used."""

from __future__ import annotations

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


def compile_text(text: str, architecture: str = ARCHITECTURE) -> bytes:
    """The machine code of generated CUDA text. Raises BackendError with the compiler's first error, or without a compiler."""
    missing = available()
    if missing:
        raise BackendError(missing)
    from cuda.bindings import nvrtc

    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    program = _done(nvrtc.nvrtcCreateProgram((PRELUDE + text).encode(), b"kernels.cu", 0, None, None))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log: bytes = b" " * _done(nvrtc.nvrtcGetProgramLogSize(program))
            _done(nvrtc.nvrtcGetProgramLog(program, log))
            lines = log.decode(errors="replace").strip("\0 \n").splitlines()
            raise BackendError(f"NVRTC rejects generated CUDA text: {next((x for x in lines if 'error' in x), lines[0] if lines else status)}")
        code: bytes = b" " * _done(nvrtc.nvrtcGetCUBINSize(program))
        _done(nvrtc.nvrtcGetCUBIN(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _done(result: tuple[Any, ...]) -> Any:
    """The value of a call. Raises BackendError where it failed."""
    status, *values = result
    if int(status) != 0:
        raise BackendError(f"NVRTC failed: {status.name}")
    return values[0] if values else None
