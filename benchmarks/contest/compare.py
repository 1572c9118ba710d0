"""Interleaved rounds over engines that agree with ONNX Runtime, and the figures made of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest.cores import WAIT_S, near, watched
from benchmarks.contest.engines import Arrays
from benchmarks.contest.worker import Engine, EngineError, Worker

REFERENCE = "onnxruntime"
PROGRAM = "einnet"
"""The kind of engine that our programs are."""

AGAIN = "onnxruntime (again)"
"""A second process of the reference engine: its ratio to the first is the noise floor."""

TOLERANCE = 1e-3
"""Largest difference from the reference, in units of its largest output, with which a time counts."""

SETTLE_SECONDS = 0.2
"""ONNX Runtime's threads wait actively for 0.1 s and more after a run, in the way of what is timed next."""

DISTURBED = 0.02
"""Share of its time that an engine may wait for a core; rounds with more do not count where enough others do."""

RESIDENT = 0.7
"""Share of the free memory up to which all engines stay loaded at once; where they need more, each is loaded anew in every round."""

AHEAD = 8
"""Times the memory of the largest engine that has to be free for the next one to be loaded while one is looked at."""

Result = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How long to measure: `rounds` at most, `seconds` for each engine in a round, no new round after `patience` seconds but `least` in any case.

    Other engines than ours answer fresh inputs for `fresh_s` seconds, `least` of them in any case.
    """

    rounds: int = 11
    seconds: float = 0.25
    patience: float = 90.0
    least: int = 3
    fresh_s: float = inf


@dataclass(frozen=True)
class Place:
    """Where engines run: that many threads on these processors; bytes of memory for each (0: as many as there are)."""

    threads: int
    cpus: tuple[int, ...]
    memory: int = 0


def free_memory() -> int:
    """Bytes that programs may still take; 0 where the system does not tell."""
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)


def difference(outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """max|y - r| / max|r|, the worst over the outputs; inf where shapes differ or a value is not finite."""
    worst = 0.0
    for y, r in zip(outputs, reference, strict=True):
        if y.shape != r.shape or not np.isfinite(y).all():
            return float("inf")
        if y.size:  # boxes that a detector found may be none
            y, r = (np.asarray(v, np.float64) for v in (y, r))
            worst = max(worst, float(np.abs(y - r).max() / max(np.abs(r).max(), 1e-30)))
    return worst


def figures(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """Milliseconds over all rounds: median, 20th percentile, and the spread of the rounds' medians (90th less 10th percentile)."""
    medians = [float(np.median(r)) for r in rounds]
    pooled = np.concatenate([np.asarray(r) for r in rounds])
    return {
        "median_ms": float(np.median(pooled)),
        "p20_ms": float(np.percentile(pooled, 20)),
        "spread_ms": float(np.percentile(medians, 90) - np.percentile(medians, 10)),
    }


def ratios(base: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> list[float]:
    """median(base) / median(other), round by round."""
    return [float(np.median(b) / np.median(o)) for b, o in zip(base, other, strict=True)]


def noise(base: Sequence[Sequence[float]], again: Sequence[Sequence[float]]) -> float:
    """How far a ratio may be from 1 and mean nothing: the reference against itself, median plus half the quartiles' distance, at least 1 %."""
    found = ratios(base, again)
    low, middle, high = np.percentile(found, (25, 50, 75))
    return max(abs(float(middle) - 1) + float(high - low) / 2, 0.01)


def outputs_of(engine: Engine, inputs: Arrays, place: Place) -> list[np.ndarray]:
    """What one run of the engine gives. Raises EngineError."""
    with Worker(engine.kind, engine.path, place.threads, place.cpus, place.memory) as worker:
        worker.ready()
        return worker.run(inputs)


Answered = tuple[Arrays, Sequence[np.ndarray]]
"""Inputs, and what the reference gives for them."""


def compare(
    engines: Sequence[Engine], inputs: Arrays, reference: Sequence[np.ndarray] | None, place: Place, effort: Effort, tolerance: float = TOLERANCE,
    fresh: Sequence[Answered] = (),
) -> dict[str, Result]:  # fmt: skip
    """Every engine's agreement with the reference outputs, its memory and times; the engine named REFERENCE runs a second time as AGAIN.

    Without reference outputs the first ones of REFERENCE are these; where it has none, nothing is timed. A time counts where the outputs differ by no
    more than the tolerance. An engine that fails or disagrees has a `status` that says so and no times.
    `worst` is the greatest difference on the first `draws` of `fresh` inputs, which decide nothing.
    """
    entered = sorted(engines, key=lambda e: e.name != REFERENCE)
    entered += [Engine(AGAIN, e.kind, e.path) for e in engines if e.name == REFERENCE]
    with _Arena(inputs, place, reference, tolerance, effort) as arena:
        for engine, following in zip(entered, [*entered[1:], None], strict=True):
            arena.admit(engine, fresh if engine.name != AGAIN else (), following)
            if arena.reference is None:
                return arena.results
        rounds = arena.rounds()
    for name, found in rounds.items():
        arena.results[name] |= {**figures(found), "times_ms": found}
    return arena.results


class _Arena:
    """Engines that passed, their processes alive where memory permits."""

    def __init__(self, inputs: Arrays, place: Place, reference: Sequence[np.ndarray] | None, tolerance: float, effort: Effort) -> None:
        self.inputs, self.place, self.reference, self.tolerance, self.effort = inputs, place, reference, tolerance, effort
        self.results: dict[str, Result] = {}
        self.engines: dict[str, Engine] = {}
        self.alive: dict[str, Worker] = {}
        self.loading: dict[str, Worker] = {}
        self.room, self.largest, self.crowded = RESIDENT * free_memory(), 0, False

    def __enter__(self) -> _Arena:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.loading.values():
            worker.close()
        self.end(*self.alive)

    def load(self, engine: Engine) -> None:
        """Begin with the engine's process: it is asked for next, and nothing is timed meanwhile."""
        place = self.place
        self.loading[engine.name] = Worker(engine.kind, engine.path, place.threads, place.cpus, place.memory)

    def worker(self, engine: Engine) -> Worker:
        """The engine's process, started now if it is not alive; alone where memory is scarce. Raises EngineError."""
        if engine.name not in self.alive:
            if self.crowded:
                self.end(*self.alive)
            if engine.name not in self.loading:
                self.load(engine)
            self.alive[engine.name] = self.loading.pop(engine.name)
            self.alive[engine.name].ready()
        return self.alive[engine.name]

    def end(self, *names: str) -> None:
        """End these engines' processes."""
        for name in names:
            if name in self.alive:
                self.alive.pop(name).close()

    def admit(self, engine: Engine, fresh: Sequence[Answered] = (), following: Engine | None = None) -> None:
        """Run the engine once and note how it agrees and what memory it takes, and on fresh inputs what it errs by at most; the one that is
        `following` is loaded meanwhile.

        Memory is scarce from where on twice what the largest engine took is no longer free: then one process is alive at a time.
        """
        try:
            worker = self.worker(engine)
            if following and not self.crowded and self.room > AHEAD * self.largest:
                self.load(following)
            outputs = worker.run(self.inputs)
            memory = worker.memory(self.inputs)
            apart = self.apart(worker, fresh, inf if engine.kind == PROGRAM else self.effort.fresh_s)
        except EngineError as error:
            self.end(engine.name)
            self.results[engine.name] = {"status": f"failed: {error}"}
            return
        if self.reference is None:
            self.reference = outputs
        error_size = difference(outputs, self.reference)
        said = "ok" if error_size <= self.tolerance else "disagrees with onnxruntime"
        self.results[engine.name] = {"status": said, "max_rel": error_size, "memory_bytes": memory}
        self.results[engine.name] |= {"worst": max(apart), "draws": len(apart)} if apart else {}
        self.room, self.largest = self.room - memory, max(self.largest, memory)
        self.crowded = self.crowded or self.room < 2 * self.largest
        if said == "ok":
            self.engines[engine.name] = engine
        else:
            self.end(engine.name)

    def apart(self, worker: Worker, fresh: Sequence[Answered], seconds: float) -> list[float]:
        """What it errs by on the first fresh inputs, those that it answers in so many seconds, and the least number in any case."""
        found, end = list[float](), time.monotonic() + seconds
        for given, wanted in fresh:
            if len(found) < self.effort.least or time.monotonic() < end:
                found.append(difference(worker.run(given), wanted))
        return found

    def rounds(self) -> dict[str, list[list[float]]]:
        """A B C A B C ...: the times of each engine by round. An engine that fails on the way is left out and marked. Rounds wait for cores that are
        near each other, and those in which these come apart do not count where others do."""
        effort, rows, apart = self.effort, list[dict[str, tuple[list[float], float]]](), list[bool]()
        cores, waited = watched(self.place.threads), 0.0
        end = time.monotonic() + effort.patience
        while self.engines and (len(rows) < effort.least or (len(rows) < effort.rounds and time.monotonic() < end + waited)):
            began = time.monotonic()
            before = near(cores, max(WAIT_S - waited, 0.0))
            waited += time.monotonic() - began
            rows.append(self.turn(effort.seconds))
            time.sleep(SETTLE_SECONDS)
            apart.append(not before or cores.apart())
        calm = [row for row, far in zip(rows, apart, strict=True) if not far]
        kept = [row for row in calm if all(share <= DISTURBED for _, share in row.values())]
        if len(kept) < effort.least:
            kept = calm
        if len(kept) < effort.least:
            kept = rows
        for name in self.engines:
            self.results[name]["disturbed"] = [row[name][1] for row in kept]
        return {name: [row[name][0] for row in kept] for name in self.engines}

    def turn(self, seconds: float) -> dict[str, tuple[list[float], float]]:
        """One sample of each engine."""
        row: dict[str, tuple[list[float], float]] = {}
        for name, engine in list(self.engines.items()):
            try:
                worker = self.worker(engine)
                time.sleep(SETTLE_SECONDS)
                row[name] = worker.time(self.inputs, seconds)
            except EngineError as error:
                self.results[name] = {"status": f"failed: {error}"}
                del self.engines[name]
                self.end(name)
        return row


def columns(results: Mapping[str, Result], family: Mapping[str, str]) -> dict[str, str]:
    """By column (`family[engine]`), the engine with the smallest median that fills it."""
    found: dict[str, str] = {}
    for name, result in results.items():
        column = family.get(name)
        if column is None or "median_ms" not in result:
            continue
        if column not in found or result["median_ms"] < results[found[column]]["median_ms"]:
            found[column] = name
    return found
