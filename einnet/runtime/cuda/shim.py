"""Generated CUDA text run by a C++ compiler's code: every thread of a launch, one after the other. For kernels whose threads do not talk."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from einnet.errors import BackendError
from einnet.runtime.cuda.program import CudaProgram, Generated, Launch
from einnet.runtime.cuda.text import PRELUDE

_TALKING = re.compile(r"__syncthreads|__shfl|__shared__")


def compiler() -> str | None:
    """The C++ compiler's path, None where there is none."""
    return shutil.which("g++") or shutil.which("c++")


class Shim:
    """The program's texts as host code."""

    def __init__(self, program: CudaProgram) -> None:
        found = compiler()
        if found is None:
            raise BackendError("generated CUDA text is run on the host by a C++ compiler, and there is neither g++ nor c++")
        launches = [launch for s in program.steps if isinstance(s, Generated) for launch in s.launches]
        talking = next((name for name, text in program.texts.items() if _TALKING.search(text)), None)
        if talking:
            raise BackendError(f"the threads of kernel {talking} talk to each other: the host cannot run them one by one")
        self._library = _compiled(found, source(program.texts, {launch.function: len(launch.arguments) for launch in launches}))

    def bind(self, launch: Launch, addresses: Sequence[int]) -> Callable[[], None]:
        """A call that runs every thread of the launch."""
        run = getattr(self._library, f"run_{launch.function}")
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        return lambda: run(pointers, launch.grid[0], launch.block[0])


def source(texts: Mapping[str, str], arguments: Mapping[str, int]) -> str:
    """The texts, and for each function one that runs a grid of it."""
    runs = []
    for function, count in arguments.items():
        given = ", ".join(f"pointers[{n}]" for n in range(count))
        runs.append(
            f'extern "C" void run_{function}(float** pointers, int grid, int block) {{\n'
            "  for (int b = 0; b < grid; ++b) for (int t = 0; t < block; ++t) {\n"
            f"    blockIdx = {{b, 0, 0}}; threadIdx = {{t, 0, 0}}; {function}({given});\n  }}\n}}\n"
        )
    return "\n".join((PRELUDE, *texts.values(), *runs))


def _compiled(path: str, text: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        file.write_text(text)
        done = subprocess.run(
            [path, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o", str(library), str(file)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BackendError(f"the C++ compiler rejects generated CUDA text: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
        return ctypes.CDLL(str(library))
