"""A process that holds engines on a card, prepares items and samples them when it is told to: others wait while one is timed.

A request is a line of JSON on standard input, {"do", "item", ...}; the answer a line on standard output.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.card.engines import ENGINES, Job, Running
from benchmarks.card.programs import expected, program_of
from benchmarks.card.summary import Item
from benchmarks.contest.machine import random_inputs
from benchmarks.models import build

TOLERANCE = {"fp32": 1e-3, "tf32": 3e-2, "fp16": 3e-2, "bf16": 0.1}
"""Largest difference from ONNX Runtime, in units of its largest output, with which a time counts."""

WARM = 2
"""Replays before samples: another process may have been on the card since."""

BACK_TO_BACK = 20
"""Inferences behind each other in one sample of a burst."""

LONG_S = 0.1
"""Seconds that the samples of a state take in a turn, and a burst, unless one inference takes longer: torch takes 0.2 s for 16 of Longformer."""

Answer = dict[str, Any]


class Worker:
    """Engines that were prepared, by item."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.running: dict[Item, Running] = {}

    def answer(self, asked: Mapping[str, Any]) -> Answer:
        """What is answered to a request; an engine that cannot do it has a reason."""
        item = Item(**asked["item"])
        try:
            match asked["do"]:
                case "prepare":
                    return self.prepare(item)
                case "sample":
                    return {"seconds": self.sample(item, asked["state"], asked["count"])}
            self.running.pop(item, None)
            return {}
        except ModuleNotFoundError as e:
            return {"missing": f"not installed: {e.name}"}
        except Exception as e:  # of any library
            return {"missing": (f"{type(e).__name__}: {e}".strip().splitlines() or ["no message"])[0]}

    def prepare(self, item: Item) -> Answer:
        """The engine ready to run, and how far its outputs are from ONNX Runtime's."""
        import onnx

        model = build(item.model, item.batch)
        inputs = random_inputs(model, 0)
        wanted = expected(self.programs, item, model, inputs)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model, path)
            running = ENGINES[item.engine](Job(path, program_of(self.programs, item), inputs, item.math))
            error = max(float(np.abs(y - w).max() / np.abs(w).max()) for y, w in zip(running.outputs(), wanted, strict=True))
        self.running[item] = running
        return {"error": error, "right": error <= TOLERANCE[item.math], "versions": running.versions}

    def sample(self, item: Item, state: str, count: int) -> list[float]:
        """Seconds of inferences: "hot" alone, "cold" alone behind an overwritten cache, "burst" of one among many behind each other."""
        running = self.running[item]
        one = running.seconds()
        most = max(int(LONG_S / max(one, 1e-6)), 1)
        for _ in range(min(WARM, most) - 1):
            running.seconds()
        found = []
        for _ in range(min(count, most)):
            if state == "cold":
                running.flush()
            found.append(running.burst(min(BACK_TO_BACK, most)) if state == "burst" else running.seconds())
        return found


def serve(programs: Path, requests: TextIO, answer: Callable[[str], None]) -> None:
    """Answer every request until there are no more."""
    worker = Worker(programs)
    for line in requests:
        answer(json.dumps(worker.answer(json.loads(line))) + "\n")


def main() -> None:
    """Serve on the standard streams; what libraries print goes to the error stream."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(line: str) -> None:
        answers.write(line)
        answers.flush()

    serve(Path(sys.argv[1]), sys.stdin, answer)


if __name__ == "__main__":
    main()
