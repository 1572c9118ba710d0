"""The processes of a comparison on a card: one for each library and arithmetic, since a library's arithmetic is set for a whole process."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.card.engines import environment
from benchmarks.card.summary import Item

ROOT = Path(__file__).resolve().parents[2]
LATE = "took more than"
SAMPLING_S = 60.0
"""Seconds that samples may take: an engine that hangs ends nothing but itself."""

TOGETHER = {"einnet_no_derive": "einnet", "torch-nhwc": "torch"}
"""Engines that share another's process."""


class Crew:
    """Processes that are started when they are first asked, and again where one has ended."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs.resolve()
        self.processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for place in list(self.processes):
            self.end(place)

    def prepare(self, item: Item, seconds: float) -> dict[str, Any]:
        """The error of the engine's outputs and its versions; "missing" says why there are none."""
        return self.ask(item, {"do": "prepare"}, seconds)

    def sample(self, item: Item, state: str, count: int) -> dict[str, Any]:
        """Seconds of so many inferences."""
        return self.ask(item, {"do": "sample", "state": state, "count": count}, SAMPLING_S)

    def drop(self, item: Item) -> None:
        """Forget what was prepared."""
        if self.place(item) in self.processes:
            self.ask(item, {"do": "drop"}, SAMPLING_S)

    @staticmethod
    def place(item: Item) -> tuple[str, str]:
        return TOGETHER.get(item.engine, item.engine), item.math

    def ask(self, item: Item, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer of the engine's process, which is ended if it does not come in time."""
        place = self.place(item)
        process, ends = self.running(place), time.monotonic() + max(seconds, 0.1)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({**request, "item": asdict(item)}).encode() + b"\n")
            process.stdin.flush()
            held = b""
            while not held.endswith(b"\n"):
                if not select.select([process.stdout], [], [], max(ends - time.monotonic(), 0.0))[0]:
                    self.end(place)
                    return {"missing": f"{LATE} {seconds:.0f} s"}
                more = os.read(process.stdout.fileno(), 1 << 16)
                if not more:
                    raise BrokenPipeError
                held += more
            found: dict[str, Any] = json.loads(held)
            return found
        except BrokenPipeError:
            process.wait()
            self.end(place)
            return {"missing": f"its process ended with {process.returncode}"}

    def running(self, place: tuple[str, str]) -> subprocess.Popen[bytes]:
        known = self.processes.get(place)
        if known is None or known.poll() is not None:
            path = os.pathsep.join((str(ROOT), *filter(None, (os.environ.get("PYTHONPATH"),))))
            with (self.programs / f"{'-'.join(place)}.log").open("ab") as said:
                self.processes[place] = known = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.card.worker", str(self.programs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=said, env={**environment(place[1]), "PYTHONPATH": path}, cwd=ROOT,
                )  # fmt: skip
        return known

    def end(self, place: tuple[str, str]) -> None:
        process = self.processes.pop(place, None)
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
