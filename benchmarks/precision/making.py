"""Optimizations of one model, one after another in one process: libraries are loaded once, and what is measured for one is known to the next."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import resource
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import einnet
from benchmarks.contest.compare import Place
from benchmarks.contest.programs import Search, excerpt
from benchmarks.contest.worker import Engine, EngineError
from einnet.evidence.comparison.verdicts import failed


def serve(pipe: Connection, model: Path, place: Place) -> None:
    """Answer (name, search) with what the results keep of the report of what was made and stored under that name, or with what went wrong."""
    os.sched_setaffinity(0, place.cpus)
    if place.memory:
        resource.setrlimit(resource.RLIMIT_DATA, (place.memory, place.memory))
    while True:
        try:
            name, search = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("done", json.dumps(made(model, name, search, place.threads))))
        except Exception as error:
            pipe.send(("failed", (str(error).strip().splitlines() or [type(error).__name__])[-1]))


def made(model: Path, name: str, search: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Optimize a model, store the program under a name, and tell what the results keep of its report. What ONNX Runtime runs as a whole is right
    without being compared. Raises EngineError where the program is wrong."""
    found = einnet.optimize(model, threads=threads, **{key: value for key, value in search.items() if key != "limit"})
    if failed(found.record.verification):
        raise EngineError("the program does not pass its verification")
    found.save(stored(model, name))
    return excerpt(found.report)


def stored(model: Path, name: str) -> Path:
    """Where a program of a model is stored."""
    return model.with_name(f"{name}.einnet")


class Maker:
    """The parent's end of a process that optimizes a model. A context manager: leaving it ends the process."""

    def __init__(self, model: Path, place: Place) -> None:
        self.model, self.place = model, place
        self.process: Any = None

    def __enter__(self) -> Maker:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def optimized(self, name: str, search: Search) -> tuple[Engine, dict[str, Any]]:
        """The stored program as an engine of that name, and what its report says. Raises EngineError; a process that is late is ended, and the next
        search has a new one."""
        if self.process is None:
            self.begin()
        try:
            self.pipe.send((name, asdict(search)))
            if not self.pipe.poll(search.limit):
                raise EngineError(f"einnet optimize took more than {search.limit:g} s with a budget of {search.time_budget:g} s")
            state, told = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(1)
            status = self.process.exitcode
            self.end()
            raise EngineError(f"einnet optimize ended with status {status}") from error
        except EngineError:
            self.end()
            raise
        if state == "failed":
            raise EngineError(f"einnet optimize: {told}")
        return Engine(name, "einnet", stored(self.model, name)), json.loads(told)

    def begin(self) -> None:
        """Start the process."""
        context = mp.get_context("spawn")
        self.pipe, child = context.Pipe()
        self.process = context.Process(target=serve, args=(child, self.model, self.place))
        self.process.start()
        child.close()

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.process is not None:
            self.pipe.close()
            self.process.kill()
            self.process.join()
            self.process = None
