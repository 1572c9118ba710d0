"""Generated CUDA text run by a C++ compiler's code: every thread of a launch, one after the other, and where they wait for each other, in turns.

A block whose threads meet at barriers is run as coroutines: each runs up to its next barrier before any passes it. A barrier that only some of
a block's threads reach is an error, as it is on a device. A copy that a thread asks for arrives when that thread waits for it, and until then what
it goes to holds 3.4e38: so a read that is too early shows, and a copy into what others still read. Blocks of a cluster run one after the other up
to a barrier of the cluster, and the memory of one that has ended holds 3.4e38. One launch of a library runs at a time: which thread of which block
it is that runs is one variable, and not one for each thread of the host, of which a process has little room for.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from einnet.errors import BackendError
from einnet.runtime.cuda.prelude import PRELUDE, SHORT, short
from einnet.runtime.cuda.program import CudaProgram, Generated, Launch, Rounded

_MEETING = re.compile(r"__syncthreads|__shared__|__shfl_xor_sync|einnet_commit|einnet_multiply_piece")
_SHARED = re.compile(r"__shared__ (alignas\(\d+\))")
"""An array of a block; blocks run one after the other, so that a static one will do."""

_FUNCTION = re.compile(r'(?=extern "C" __global__)')
_CLUSTER = re.compile(r"__cluster_dims__\((\d+), 1, 1\)")
_SHARED_ONE = re.compile(r"__shared__ (alignas\(\d+\)) float (\w+)\[(\d+)\];")
"""Blocks of a cluster; an array of one of them, of which each has its own."""

_BEYOND = re.compile(r"__shfl(?!_xor_sync)|__ballot|atomic|extern __shared__|__syncwarp")
"""What the host cannot play."""

TURNS = """
#include <setjmp.h>
#include <ucontext.h>
namespace einnet {
constexpr int MOST = 1024, SIZE = 1 << 16;
constexpr float POISON = 3.4e38f;
struct Fiber { ucontext_t context; jmp_buf jump; char* stack; bool started, done, second, away; };
jmp_buf scheduler; Fiber fibers[MOST]; int now, first, last, rank; void (*body)(float**); float** given;
struct Copy { float* to; float value[4]; int count; };
struct Queue { Copy held[128]; int ends[16]; int copies, groups; };
Queue queues[MOST];
__attribute__((noinline)) void barrier() {
  if (_setjmp(fibers[now].jump)) return;
  if (now + 1 == last || !fibers[now + 1].started) _longjmp(scheduler, 1);
  ++now; threadIdx = {now - first, 0, 0};
  _longjmp(fibers[now].jump, 1);
}
void entry() { for (;;) { body(given); fibers[now].done = true; barrier(); } }
__attribute__((noinline)) void resume(int t) {
  now = t; threadIdx = {t - first, 0, 0};
  if (_setjmp(scheduler)) return;
  if (fibers[t].started) _longjmp(fibers[t].jump, 1);
  fibers[t].started = true;
  setcontext(&fibers[t].context);
}
void create(int t) {
  Fiber& f = fibers[t];
  if (!f.started) {
    if (!f.stack) f.stack = new char[SIZE];
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack; f.context.uc_stack.ss_size = SIZE; f.context.uc_link = nullptr;
    makecontext(&f.context, entry, 0);
  }
  f.done = f.second = f.away = false;
  queues[t].copies = queues[t].groups = 0;
}
enum Met { BARRIER, ENDED, CLUSTER, APART };
Met turn() {
  for (now = first - 1; now + 1 < last;) resume(now + 1);
  int ended = 0, away = 0;
  for (int t = first; t < last; ++t) { ended += fibers[t].done; away += fibers[t].away; }
  return ended == last - first ? ENDED : away == last - first ? CLUSTER : ended || away ? APART : BARRIER;
}
int failed(int threads) { for (int t = 0; t < threads; ++t) fibers[t].started = false; return 1; }
struct Array { float* at; int size; } arrays[16]; int known;
float* placed(float* at, int size) {
  int n = 0;
  while (n < known && arrays[n].at != at) ++n;
  if (n == known) arrays[known++] = {at, size};
  return at + rank * size;
}
int cluster_of(int threads, int blocks, int block) {
  for (int t = 0; t < threads * blocks; ++t) create(t);
  for (int ended = 0; !ended;) {
    for (int b = 0; b < blocks; ++b) {
      rank = b; first = b * threads; last = first + threads; blockIdx = {block + b, 0, 0};
      Met met;
      do met = turn(); while (met == BARRIER);
      if (met == APART) return failed(threads * blocks);
      if (met == ENDED) {
        ++ended;
        for (int n = 0; n < known; ++n) for (int k = 0; k < arrays[n].size; ++k) arrays[n].at[b * arrays[n].size + k] = POISON;
      }
      for (int t = first; t < last; ++t) fibers[t].away = false;
    }
    if (ended && ended != blocks) return failed(threads * blocks);
  }
  return 0;
}
void copy(float* to, const float* from, int inside, int count) {
  Queue& q = queues[now];
  for (int n = 0; n < count; ++n) to[n] = POISON;
  if (q.copies == 128) return;
  Copy& c = q.held[q.copies++];
  c.to = to; c.count = count;
  for (int n = 0; n < count; ++n) c.value[n] = inside ? from[n] : 0.0f;
}
void wait(int groups) {
  Queue& q = queues[now];
  if (q.groups <= groups) return;
  int done = q.groups - groups, arrived = q.ends[done - 1];
  for (int n = 0; n < arrived; ++n) for (int k = 0; k < q.held[n].count; ++k) q.held[n].to[k] = q.held[n].value[k];
  for (int n = arrived; n < q.copies; ++n) q.held[n - arrived] = q.held[n];
  for (int n = done; n < q.groups; ++n) q.ends[n - done] = q.ends[n] - arrived;
  q.copies -= arrived; q.groups = groups;
}
float ten_bits(float value, unsigned half) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits += half;
  bits &= 0xffffe000u;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
}
#define __syncthreads() einnet::barrier()
static inline float __shfl_xor_sync(unsigned, float value, int lane) {
  static float given[2][1024];
  int t = einnet::now;
  float* here = given[einnet::fibers[t].second = !einnet::fibers[t].second];
  here[t] = value; einnet::barrier();
  return here[t ^ lane];
}
static inline void einnet_copy_4(float* to, const float* from, int inside) { einnet::copy(to, from, inside, 1); }
static inline void einnet_copy_16(float* to, const float* from, int inside) { einnet::copy(to, from, inside, 4); }
static inline void einnet_commit() { einnet::Queue& q = einnet::queues[einnet::now]; if (q.groups < 16) q.ends[q.groups++] = q.copies; }
template <int groups> static inline void einnet_wait() { einnet::wait(groups); }
static inline float einnet_tf32(float value) { return einnet::ten_bits(value, 0x1000u); }
static inline void einnet_multiply_piece(float* sums, const float* a, const float* b) {
  static float given[2][1024][6];
  int t = einnet::now, warp = t & ~31, group = (t & 31) >> 2, place = t & 3;
  float (*here)[6] = given[einnet::fibers[t].second = !einnet::fibers[t].second];
  for (int n = 0; n < 4; ++n) here[t][n] = einnet::ten_bits(a[n], 0);
  for (int n = 0; n < 2; ++n) here[t][4 + n] = einnet::ten_bits(b[n], 0);
  einnet::barrier();
  for (int e = 0; e < 4; ++e) {
    int column = 2 * place + (e & 1);
    for (int k = 0; k < 8; ++k)
      sums[e] += here[warp + group * 4 + (k & 3)][(e >> 1) + 2 * (k >> 2)] * here[warp + column * 4 + (k & 3)][4 + (k >> 2)];
  }
}
static inline void einnet_meet_cluster() { einnet::fibers[einnet::now].away = true; einnet::barrier(); }
static inline float einnet_of_block(const float* at, int block) {
  for (int n = 0; n < einnet::known; ++n) {
    float* own = einnet::arrays[n].at + einnet::rank * einnet::arrays[n].size;
    if (at >= own && at < own + einnet::arrays[n].size) return at[(block - einnet::rank) * einnet::arrays[n].size];
  }
  return einnet::POISON;
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
        launches = [launch for s in program.steps if isinstance(s, (Generated, Rounded)) for launch in s.launches]
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
            cluster = _CLUSTER.search(bodies[function])
            size = int(cluster[1]) if cluster is not None else 1
            runs.append(
                f"static void body_{function}(float** pointers) {{ {function}({given}); }}\n"
                f'extern "C" int run_{function}(float** pointers, int grid, int block) {{\n  Alone alone;\n'
                f"  einnet::body = body_{function}; einnet::given = pointers; einnet::known = 0;\n"
                f"  if (block * {size} > einnet::MOST || grid % {size}) return 1;\n"
                f"  for (int b = 0; b < grid; b += {size}) if (einnet::cluster_of(block, {size}, b)) return 1;\n  return 0;\n}}\n"
            )
        else:
            runs.append(
                f'extern "C" int run_{function}(float** pointers, int grid, int block) {{\n  Alone alone;\n'
                "  for (int b = 0; b < grid; ++b) for (int t = 0; t < block; ++t) {\n"
                f"    blockIdx = {{b, 0, 0}}; threadIdx = {{t, 0, 0}}; {function}({given});\n  }}\n  return 0;\n}}\n"
            )
    meeting = any(_MEETING.search(text) for text in texts.values())
    played = (_played(part) for text in texts.values() for part in _FUNCTION.split(text))
    shorter = SHORT if any(map(short, texts.values())) else ""
    return "\n".join((PRELUDE, ALONE, ARRAY, TURNS if meeting else "", shorter, *played, *runs))


def _played(function: str) -> str:
    """The text of a function with arrays of its block: blocks of a cluster have one each, others, of which one runs at a time, the same."""
    cluster = _CLUSTER.search(function)
    if cluster is not None:
        function = _SHARED_ONE.sub(rf"\1 static float \2_all[{cluster[1]} * \3]; float* \2 = einnet::placed(\2_all, \3);", function)
    return _SHARED.sub(r"\1 static", function)


def functions(text: str) -> dict[str, str]:
    """The text of each function by its name."""
    parts = _FUNCTION.split(text)
    names = [re.search(r"\b(\w+)\(", re.sub(r"__\w+__\([^()]*\)", "", part)) for part in parts]
    return {name[1]: part for name, part in zip(names, parts, strict=True) if name is not None and part.startswith('extern "C"')}


@lru_cache(maxsize=64)
def _compile(path: str, text: str) -> ctypes.CDLL:
    """The text as a library, which all share that ask for it: arrays of blocks are written before they are read in every launch, or show poison.

    Raises BackendError."""
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        file.write_text(text)
        done = subprocess.run([path, *OPTIONS, "-o", str(library), str(file)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BackendError(f"the C++ compiler rejects generated CUDA text: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
        return ctypes.CDLL(str(library))
