"""One engine in a process of its own, pinned, answering "run once" and "time yourself" over a pipe."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import numpy as np

from benchmarks.baselines.engines import ENGINES, Arrays, Run

START_SECONDS = 900.0


class EngineError(Exception):
    """An engine that could not prepare or run the model; the message is the engine's own."""


def serve(pipe: Connection, engine: str, path: Path, threads: int, cpus: Sequence[int]) -> None:
    """Prepare the engine, then answer ("run", inputs) with outputs and ("time", inputs, seconds) with a list of milliseconds."""
    os.sched_setaffinity(0, cpus)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    try:
        run = ENGINES[engine](path, threads)
        pipe.send(("ready", None))
        while True:
            request, inputs, *rest = pipe.recv()
            if request == "run":
                pipe.send(("done", [np.array(y) for y in run(inputs)]))
            else:
                pipe.send(("done", _times(run, inputs, *rest)))
    except EOFError:
        return
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"))


def _times(run: Run, inputs: Arrays, seconds: float, warmup: int = 2, least: int = 3) -> list[float]:
    """Milliseconds of each inference for about that many seconds, after the caches are this engine's again."""
    for _ in range(warmup):
        run(inputs)
    found: list[float] = []
    stop = time.perf_counter() + seconds
    while len(found) < least or time.perf_counter() < stop:
        start = time.perf_counter()
        run(inputs)
        found.append((time.perf_counter() - start) * 1e3)
    return found


class Worker:
    """The parent's end of an engine process. A context manager: leaving it ends the process."""

    def __init__(self, engine: str, path: Path, threads: int, cpus: Sequence[int]) -> None:
        context = mp.get_context("spawn")
        self.engine = engine
        self.pipe, child = context.Pipe()
        self.process = context.Process(target=serve, args=(child, engine, path, threads, cpus), daemon=True)
        self.process.start()
        child.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()

    def ready(self) -> None:
        """Wait until the engine has the model. EngineError if it refuses it or takes more than START_SECONDS."""
        self._answer(START_SECONDS)

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs for these inputs."""
        self.pipe.send(("run", inputs))
        return self._answer(START_SECONDS)

    def time(self, inputs: Arrays, seconds: float) -> list[float]:
        """Milliseconds of each inference for about that many seconds."""
        self.pipe.send(("time", inputs, seconds))
        return self._answer(START_SECONDS)

    def _answer(self, seconds: float) -> list:
        try:
            if not self.pipe.poll(seconds):
                raise EngineError(f"no answer within {seconds:.0f} s")
            state, value = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise EngineError(f"the process ended (exit code {self.process.exitcode})") from error
        if state == "failed":
            raise EngineError(value)
        return value
