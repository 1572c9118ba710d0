"""One engine in a process of its own, pinned, answering "run once", "time yourself" and "how much memory" over a pipe."""

from __future__ import annotations

import multiprocessing as mp
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.contest.engines import Arrays, Run, engine
from einnet.runtime.contention import waited

START_SECONDS = 900.0
WARM_SECONDS, SAMPLE_SECONDS = 0.05, 0.01


class EngineError(Exception):
    """An engine that could not prepare or run the model; the message is the engine's own."""


@dataclass(frozen=True)
class Engine:
    """Who takes part: a name in the results, a kind (see `engines.engine`), and the file that it loads."""

    name: str
    kind: str
    path: Path


def status(field: str) -> int:
    """Bytes that this process has by that field of its status (VmRSS: resident now, VmHWM: the most so far); 0 where the system does not tell."""
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), 0)


def serve(pipe: Connection, kind: str, path: Path, threads: int, cpus: Sequence[int], limit: int) -> None:
    """Prepare the engine, then answer ("run", inputs) with outputs, ("time", inputs, seconds) with `_times`, ("memory", inputs) with `_memory`."""
    os.sched_setaffinity(0, cpus)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    bare = status("VmRSS")
    try:
        run = engine(kind)(path, threads)
        pipe.send(("ready", None))
        while True:
            request, inputs, *rest = pipe.recv()
            if request == "run":
                pipe.send(("done", [np.array(y) for y in run(inputs)]))
            elif request == "memory":
                pipe.send(("done", _memory(run, inputs, bare)))
            else:
                pipe.send(("done", _times(run, inputs, *rest)))
    except EOFError:
        return
    except Exception as error:
        pipe.send(("failed", _reason(error, limit)))


def _reason(error: Exception, limit: int) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    words = f"{type(error).__name__} {text}".lower()
    if limit and any(word in words for word in ("memoryerror", "bad_alloc", "allocate", "out of memory")):
        return f"needs more than the {limit / 2**30:.0f} GB of memory that are free ({text or type(error).__name__})"
    return f"{type(error).__name__}: {text}"


def _times(run: Run, inputs: Arrays, seconds: float) -> tuple[list[float], float]:
    """Milliseconds of an inference, sampled for about that many seconds, and the share of them in which threads waited for a core.

    Inferences before the first sample make caches and threads this engine's again; short ones are sampled several at a time.
    """
    start, count = time.perf_counter(), 0
    while not count or time.perf_counter() < start + WARM_SECONDS:
        run(inputs)
        count += 1
    repeats = max(1, round(SAMPLE_SECONDS * count / (time.perf_counter() - start)))
    found: list[float] = []
    before, began = waited(), time.perf_counter()
    while not found or time.perf_counter() < began + seconds:
        start = time.perf_counter()
        for _ in range(repeats):
            run(inputs)
        found.append((time.perf_counter() - start) * 1e3 / repeats)
    return found, (waited() - before) / (time.perf_counter() - began)


def _memory(run: Run, inputs: Arrays, bare: int) -> int:
    """Bytes by which the process grows at most while it runs inferences, libraries, model and program included; what loading took is forgotten."""
    marks = Path("/proc/self/clear_refs")
    if marks.exists():
        marks.write_text("5")
    for _ in range(2):
        run(inputs)
    return max(status("VmHWM") - bare, 0)


class Worker:
    """The parent's end of an engine process. A context manager: leaving it ends the process. `limit` bounds its memory in bytes, 0 does not."""

    def __init__(self, kind: str, path: Path, threads: int, cpus: Sequence[int], limit: int = 0) -> None:
        context = mp.get_context("spawn")
        self.pipe, child = context.Pipe()
        self.process = context.Process(target=serve, args=(child, kind, path, threads, cpus, limit), daemon=True)
        self.process.start()
        child.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def ready(self) -> None:
        """Wait until the engine has the model. EngineError if it refuses it or takes more than START_SECONDS."""
        self._answer()

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs for these inputs."""
        return self._ask("run", inputs)

    def time(self, inputs: Arrays, seconds: float) -> tuple[list[float], float]:
        """Milliseconds of each inference for about that many seconds, and the share of the time in which threads waited for a core."""
        return self._ask("time", inputs, seconds)

    def memory(self, inputs: Arrays) -> int:
        """Bytes that the process has at most while it runs, beyond a bare Python with numpy."""
        return self._ask("memory", inputs)

    def _ask(self, *request: Any) -> Any:
        try:
            self.pipe.send(request)
        except OSError as error:
            raise EngineError(f"the process ended (exit code {self.process.exitcode})") from error
        return self._answer()

    def _answer(self) -> Any:
        try:
            if not self.pipe.poll(START_SECONDS):
                raise EngineError(f"no answer within {START_SECONDS:.0f} s")
            state, value = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(1)
            raise EngineError(f"the process ended (exit code {self.process.exitcode})") from error
        if state == "failed":
            raise EngineError(value)
        return value
