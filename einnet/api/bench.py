"""Stored programs timed again, each in a process of its own, in turns with what they are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from einnet.api.load import load
from einnet.compile.grid.served import GridProgram
from einnet.compile.interrupts import kept_from_interrupts
from einnet.compile.ranges.served import RangedProgram
from einnet.compile.targets.cuda.stored import StoredCuda
from einnet.compile.targets.stored import StoredProgram
from einnet.errors import BackendError, UsageError
from einnet.evidence.comparison.draws import random_values
from einnet.runtime.contention import CORES, waited
from einnet.runtime.ort import Session

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]

ROUNDS = 9
"""Turns of each program."""

SETTLE_S, WARM_S = 0.2, 0.05
"""Before a turn: for threads of the program before it to fall asleep, and of calls that do not count."""

SAMPLE_S = 0.0005
"""Shorter calls are repeated inside a sample, so that reading the clock is no part of it."""

PERCENTILES = (50, 90, 99)
RESAMPLED, CONFIDENCE = 2000, 0.95
"""How often the rounds are drawn again, with replacement, for the interval of a ratio, and the share of ratios that it holds."""

DISTURBED = 0.05
"""The share of a program's time for which its threads may wait for a core before the result says so."""


APART = 0.25
"""The share of a program's turns on cores that are far from each other before the result says so."""


@dataclass(frozen=True)
class Turn:
    """One turn of a program: seconds of each call, processor seconds of all of them, the share of the time that threads waited for a core, and
    whether the cores were far from each other before or after it."""

    seconds: tuple[float, ...]
    processor_s: float
    calls: int
    waited: float
    apart: bool = False


@dataclass(frozen=True)
class Timed:
    """All turns of one program."""

    name: str
    runs: str
    threads: int
    turns: tuple[Turn, ...]

    @property
    def seconds(self) -> Array:
        """Every sample, in seconds of one call."""
        return np.array([s for turn in self.turns for s in turn.seconds])

    @property
    def medians(self) -> Array:
        """Seconds of a call by turn."""
        return np.array([np.median(turn.seconds) for turn in self.turns])

    @property
    def waited(self) -> float:
        """The share of the time for which threads waited for a core, in the median turn."""
        return float(np.median([turn.waited for turn in self.turns]))

    def as_dict(self) -> dict[str, Any]:
        """Plain data: ms of a call by percentile, inferences and processor milliseconds of each, the medians of the turns."""
        calls = sum(turn.calls for turn in self.turns)
        spent = sum(turn.processor_s for turn in self.turns)
        total = sum(float(np.mean(turn.seconds)) * turn.calls for turn in self.turns)
        return {
            "name": self.name,
            "runs": self.runs,
            "threads": self.threads,
            "calls": calls,
            "ms": {f"p{p}": float(np.percentile(self.seconds, p)) * 1e3 for p in PERCENTILES} | {"least": float(self.seconds.min()) * 1e3},
            "inferences_per_s": calls / total,
            "processor_ms": spent / calls * 1e3,
            "waited": self.waited,
            "apart": float(np.mean([turn.apart for turn in self.turns])),
            "turns_ms": [float(m) * 1e3 for m in self.medians],
        }


def bench(path: str | Path, against: str | Path | None = None, inputs: Arrays | None = None, seconds: float = 10.0, seed: int = 0) -> dict[str, Any]:
    """Time a stored program and, in turns with it, a model in ONNX Runtime or another stored program, in about `seconds` for each.

    Inputs that are not given are random. Every program has a process of its own. Raises UsageError for programs that this processor does not run
    or inputs that are missing, BackendError where a process ends.
    """
    if not seconds > 0:
        raise UsageError(f"seconds must be a positive number, not {seconds}")
    threads, values = described(Path(path), inputs, seed)
    entries = [Path(path), *([Path(against)] if against is not None else [])]
    with ExitStack() as stack:
        runners = [stack.enter_context(runner(entry, threads, values)) for entry in entries]
        turns: list[list[Turn]] = [[] for _ in runners]
        for _ in range(ROUNDS):
            for run, found in zip(runners, turns, strict=True):
                found.append(run(seconds / ROUNDS))
    timed = [Timed(str(entry), what(entry), threads, tuple(found)) for entry, found in zip(entries, turns, strict=True)]
    told: dict[str, Any] = {"programs": [t.as_dict() for t in timed], "seed": seed, "rounds": ROUNDS}
    return told | ({"ratio": ratio(timed[1], timed[0])} if against is not None else {})


def described(path: Path, inputs: Arrays | None, seed: int) -> tuple[int, Arrays]:
    """The threads of a stored program, and values for all of its inputs."""
    stored = for_the_processor(path)
    ranged = isinstance(stored, (RangedProgram, GridProgram))
    missing = [name for name in stored.inputs if name not in (inputs or {})]
    if ranged and missing:
        raise UsageError(f"{path} serves a range of sizes: input {missing[0]!r} has to be given, its shape says which")
    given = random_values([(name, shape, dtype) for name, (dtype, shape) in stored.inputs.items() if name in missing], seed)
    threads = stored.threads if isinstance(stored, StoredProgram) else stored.ranged.manifest.threads
    return threads, {**given, **(inputs or {})}


def for_the_processor(path: Path) -> StoredProgram | RangedProgram | GridProgram:
    """A stored program. Raises UsageError for one for a CUDA device."""
    stored = load(path)
    if isinstance(stored, StoredCuda):
        raise UsageError(f"{path} is a program for a CUDA device; bench times programs for the processor")
    return stored


def what(path: Path) -> str:
    """What a file is run by."""
    return "ONNX Runtime" if path.suffix == ".onnx" else "einnet"


def ratio(base: Timed, ours: Timed) -> dict[str, Any]:
    """How many times as fast `ours` is, by the medians that are printed, and the interval that holds `CONFIDENCE` of what other turns would give.

    The turns are drawn again with replacement, those of both programs together, since what disturbs one disturbs its neighbour. `told` says
    whether the interval leaves out 1 and nothing disturbed the turns: only then is one of them faster.
    """
    drawn = np.random.default_rng(0).integers(0, ROUNDS, (RESAMPLED, ROUNDS))
    found = np.median(base.medians[drawn], axis=1) / np.median(ours.medians[drawn], axis=1)
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    disturbed = max(base.waited, ours.waited)
    return {
        "of": base.name,
        "speedup": float(np.median(base.seconds) / np.median(ours.seconds)),
        "low": float(low),
        "high": float(high),
        "confidence": CONFIDENCE,
        "disturbed": disturbed,
        "told": bool(disturbed <= DISTURBED and not low <= 1 <= high),
    }


@contextmanager
def runner(path: Path, threads: int, inputs: Arrays) -> Iterator[Callable[[float], Turn]]:
    """A process that has the program ready, as a function that takes seconds and gives a turn. Raises what loading it raises."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:

        def ask(task: Callable[..., Any], *arguments: Any) -> Any:
            try:
                with kept_from_interrupts():  # the first task starts the process, which would else end with a traceback of its own
                    answer = alone.submit(task, *arguments)
                return answer.result()
            except BrokenProcessPool as error:
                raise BackendError(f"the process of {path} ended: it may have taken more memory than there is") from error

        try:
            ask(_prepare, path, threads, dict(inputs))
            yield lambda seconds: ask(_turn, seconds)
        except KeyboardInterrupt:
            for process in list(alone._processes.values()):  # which would work on, and be waited for
                process.kill()
            raise


_calls: list[Callable[[], object]] = []
"""In a process of its own: the one program that it runs."""


def _prepare(path: Path, threads: int, inputs: Arrays) -> None:
    """Load the program, bind it and run it once."""
    if path.suffix == ".onnx":
        if not path.exists():
            raise UsageError(f"{path}: there is no such file")
        session = Session(path, threads, spin=True, rounds=True, title=str(path))
        call: Callable[[], object] = lambda: session(inputs)  # noqa: E731
    else:
        stored = for_the_processor(path)
        call = lambda: stored(inputs)  # noqa: E731
    call()
    _calls[:] = [call]


def _turn(seconds: float) -> Turn:
    """Call the program for so many seconds, after a pause and calls that do not count."""
    (call,) = _calls
    time.sleep(SETTLE_S)
    apart = CORES.apart()
    once = _warm(call)
    repeats = max(1, round(SAMPLE_S / max(once, 1e-7)))
    found: list[float] = []
    lost, spent, began = waited(), time.process_time(), time.perf_counter()
    while not found or time.perf_counter() < began + seconds:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        found.append((time.perf_counter() - start) / repeats)
    took = time.perf_counter() - began
    spent, lost = time.process_time() - spent, waited() - lost
    return Turn(tuple(found), spent, repeats * len(found), lost / took, apart or CORES.apart())


def _warm(call: Callable[[], object]) -> float:
    """Seconds of a call once caches and threads are this program's."""
    start, count = time.perf_counter(), 0
    while not count or time.perf_counter() < start + WARM_S:
        call()
        count += 1
    return (time.perf_counter() - start) / count
