"""Generated CUDA text run by a C++ compiler's code: every thread of a launch, one after the other, and where they wait for each other, in turns.

A block whose threads meet at barriers is run as coroutines: each runs up to its next barrier before any passes it. A barrier that only some of
a block's threads reach is an error, as it is on a device. One launch of a library runs at a time: which thread of which block it is that runs is one
variable, and not one for each thread of the host, of which a process has little room for.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from einnet.errors import BackendError
from einnet.runtime.cuda.prelude import PRELUDE
from einnet.runtime.cuda.program import CudaProgram, Generated, Launch

_MEETING = re.compile(r"__syncthreads|__shared__|__shfl_xor_sync")
_SHARED = re.compile(r"__shared__ (alignas\(\d+\))")
"""An array of a block; blocks run one after the other, so that a static one will do."""

_BEYOND = re.compile(r"__shfl(?!_xor_sync)|__ballot|atomic|extern __shared__|__syncwarp")
"""What the host cannot play."""

TURNS = """
#include <setjmp.h>
#include <ucontext.h>
namespace einnet {
struct Fiber { ucontext_t context; jmp_buf jump; char* stack; bool started, done, second; };
constexpr int SIZE = 1 << 16;
jmp_buf scheduler; Fiber fibers[1024]; int now, count; void (*body)(float**); float** given;
__attribute__((noinline)) void barrier() {
  if (_setjmp(fibers[now].jump)) return;
  if (now + 1 == count || !fibers[now + 1].started) _longjmp(scheduler, 1);
  threadIdx = {++now, 0, 0};
  _longjmp(fibers[now].jump, 1);
}
void entry() { for (;;) { body(given); fibers[now].done = true; barrier(); } }
__attribute__((noinline)) void resume(int t) {
  now = t; threadIdx = {t, 0, 0};
  if (_setjmp(scheduler)) return;
  if (fibers[t].started) _longjmp(fibers[t].jump, 1);
  fibers[t].started = true;
  setcontext(&fibers[t].context);
}
void create(Fiber& f) {
  if (!f.stack) f.stack = new char[SIZE];
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack; f.context.uc_stack.ss_size = SIZE; f.context.uc_link = nullptr;
  makecontext(&f.context, entry, 0);
}
int block_of(int threads) {
  count = threads;
  for (int t = 0; t < threads; ++t) {
    if (!fibers[t].started) create(fibers[t]);
    fibers[t].done = fibers[t].second = false;
  }
  for (int ended = 0; !ended;) {
    for (now = -1; now + 1 < threads;) resume(now + 1);
    for (int t = 0; t < threads; ++t) ended += fibers[t].done;
    if (ended && ended != threads) {
      for (int t = 0; t < threads; ++t) fibers[t].started = false;
      return 1;
    }
  }
  return 0;
}
}
#define __syncthreads() einnet::barrier()
static inline float __shfl_xor_sync(unsigned, float value, int lane) {
  static float given[2][1024];
  int t = threadIdx.x;
  float* here = given[einnet::fibers[t].second = !einnet::fibers[t].second];
  here[t] = value; einnet::barrier();
  return here[t ^ lane];
}
"""
"""Threads of a block as coroutines, which go on from block to block: switching costs a jump and no call of the system, and leads to the next thread.

Values that lanes exchange lie in two arrays by turns: who writes again into the first has passed a barrier behind which all have read it.
"""


OPTIONS = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-U_FORTIFY_SOURCE")
"""Compilers of some systems harden by themselves: jumps between the stacks of coroutines would end the process."""

ARRAY = "struct Array { void* at; template <class T> operator T*() const { return static_cast<T*>(at); } };"
"""A pointer to elements of whatever type a function reads there."""

ALONE = """#include <pthread.h>
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;
struct Alone { Alone() { pthread_mutex_lock(&running); } ~Alone() { pthread_mutex_unlock(&running); } };
"""
"""One launch at a time, without the C++ library: reading its headers takes a compiler longer than most kernels."""


def compiler() -> str | None:
    """The C++ compiler's path, None where there is none."""
    return shutil.which("g++") or shutil.which("c++")


class Shim:
    """The program's texts as host code."""

    def __init__(self, program: CudaProgram) -> None:
        launches = [launch for s in program.steps if isinstance(s, Generated) for launch in s.launches]
        self._library = compiled(program.texts, {launch.function: len(launch.arguments) for launch in launches})

    def bind(self, launch: Launch, addresses: Sequence[int]) -> Callable[[], None]:
        """A call that runs every thread of the launch. It raises BackendError where the threads of a block do not meet at their barriers."""
        run = getattr(self._library, f"run_{launch.function}")
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)

        def call() -> None:
            if run(pointers, launch.grid[0], launch.block[0]):
                raise BackendError(f"some threads of {launch.function} wait at a barrier that others of their block never reach")

        return call


def compiled(texts: Mapping[str, str], arguments: Mapping[str, int]) -> ctypes.CDLL:
    """The texts as a library with a `run_NAME(pointers, grid, block)` for each function. Raises BackendError."""
    found = compiler()
    if found is None:
        raise BackendError("generated CUDA text is run on the host by a C++ compiler, and there is neither g++ nor c++")
    beyond = next((name for name, text in texts.items() if _BEYOND.search(text)), None)
    if beyond is not None:
        raise BackendError(f"the threads of kernel {beyond} talk in a way that the host cannot play")
    return _compile(found, source(texts, arguments))


def source(texts: Mapping[str, str], arguments: Mapping[str, int]) -> str:
    """The texts, and for each function one that runs a grid of it; 0 is success."""
    bodies = {name: body for text in texts.values() for name, body in functions(text).items()}
    runs = []
    for function, count in arguments.items():
        given = ", ".join(f"Array{{pointers[{n}]}}" for n in range(count))
        if _MEETING.search(bodies[function]):
            runs.append(
                f"static void body_{function}(float** pointers) {{ {function}({given}); }}\n"
                f'extern "C" int run_{function}(float** pointers, int grid, int block) {{\n  Alone alone;\n'
                f"  einnet::body = body_{function}; einnet::given = pointers;\n"
                "  for (int b = 0; b < grid; ++b) { blockIdx = {b, 0, 0}; if (einnet::block_of(block)) return 1; }\n  return 0;\n}\n"
            )
        else:
            runs.append(
                f'extern "C" int run_{function}(float** pointers, int grid, int block) {{\n  Alone alone;\n'
                "  for (int b = 0; b < grid; ++b) for (int t = 0; t < block; ++t) {\n"
                f"    blockIdx = {{b, 0, 0}}; threadIdx = {{t, 0, 0}}; {function}({given});\n  }}\n  return 0;\n}}\n"
            )
    meeting = any(_MEETING.search(text) for text in texts.values())
    played = (_SHARED.sub(r"\1 static", text) for text in texts.values())
    return "\n".join((PRELUDE, ALONE, ARRAY, TURNS if meeting else "", *played, *runs))


def functions(text: str) -> dict[str, str]:
    """The text of each function by its name."""
    parts = re.split(r'(?=extern "C" __global__)', text)
    names = [re.search(r"\b(\w+)\(", re.sub(r"__launch_bounds__\(\d+\)", "", part)) for part in parts]
    return {name[1]: part for name, part in zip(names, parts, strict=True) if name is not None and part.startswith('extern "C"')}


def _compile(path: str, text: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        file.write_text(text)
        done = subprocess.run([path, *OPTIONS, "-o", str(library), str(file)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BackendError(f"the C++ compiler rejects generated CUDA text: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
        return ctypes.CDLL(str(library))
