"""The process that calls NVRTC: texts come on its standard input, machine code goes out. A text that ends it ends nothing else.

A request is a line of JSON, {"text", "options"}; the answer a line {"error", "log", "bytes"} and so many bytes of code.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, BinaryIO


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every request until there are no more."""
    for line in requests:
        asked = json.loads(line)
        error, log, code = compiled(asked["text"].encode(), [str(o).encode() for o in asked["options"]])
        answers.write(json.dumps({"error": error, "log": log, "bytes": len(code)}).encode() + b"\n" + code)
        answers.flush()


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


def main() -> None:
    """Serve on the standard streams; what libraries print goes to the error stream."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
