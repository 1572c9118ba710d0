"""One search shared by several processes: what it takes beside what one process takes, and that both find the same.

    python -m benchmarks.search --workers 2 -o build/bench/shared.json
    python -m benchmarks.search --workers 2 "stride 2" --states 6000 -o build/bench/shared.json

Both searches run in processes of their own, warmed up by a small search, so that neither knows what the other found.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

from benchmarks.models import build
from benchmarks.search.cases import CASES
from einnet.compile.far import FarSights
from einnet.compile.garbage import collection_on_demand
from einnet.compile.workers import Crew, crew
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.split import subprograms
from einnet.search.outcome import canonical
from einnet.search.space import Options, Space

WARMING = "A : f32[28,8]\nK : weight f32[3,8,8]\nL[h<28,f<8] Σ[c<8,r<3] A[h+r-1,c]*K[r,c,f]"
MODELS = ("longformer_masked", "longformer")
"""Models whose largest subprogram is searched, beside the single expressions."""


@dataclass
class Counted:
    """An executor whose workers tell how long they worked, in seconds of the processor."""

    executor: Executor
    seconds: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def submit(self, work: Callable[[str], str], text: str) -> Future[str]:
        told: Future[str] = Future()
        self.executor.submit(timed, work, text).add_done_callback(lambda done: self._tell(done, told))
        return told

    def _tell(self, done: Future[tuple[str, int, float]], told: Future[str]) -> None:
        if not done.cancelled() and told.set_running_or_notify_cancel():
            error = done.exception()
            if error is not None:
                told.set_exception(error)
                return
            answer, worker, seconds = done.result()
            self.seconds[worker] += seconds
            told.set_result(answer)


def timed(work: Callable[[str], str], text: str) -> tuple[str, int, float]:
    """What a worker finds, who it is, and the seconds of the processor that it took."""
    begin = time.process_time()
    return work(text), os.getpid(), time.process_time() - begin


def expressions(words: list[str]) -> dict[str, Scope]:
    """The cases with one of the words in their names; without words those whose search is long."""
    cases = {c.name: c.text for c in CASES if any(w in c.name for w in words or ["stride 2", "dilation 2"])}
    found = {name: parse(text) for name, text in cases.items()}
    for name in (m for m in MODELS if not words or any(w in m for w in words)):
        pieces = [canonical(p.expression) for p in subprograms(prepare(load(build(name))))]
        found[name] = max(pieces, key=lambda scope: len(scope.text()))
    return found


def searched(scope: Scope, states: int, workers: int) -> dict[str, Any]:
    """A search of so many states by so many workers, or by none; `forms` is a digest of all that it found, in order."""
    options = Options(states=states)
    with collection_on_demand(), crew(workers, None) as found:
        others = found and Crew(Counted(found.executor), found.size)  # type: ignore[arg-type]
        Space(options, sights=others and FarSights(options, others)).forms(parse(WARMING))
        if others:
            others.executor.seconds.clear()  # type: ignore[attr-defined]
        begin, used = time.perf_counter(), time.process_time()
        space = Space(options, sights=others and FarSights(options, others))
        forms = space.forms(scope)
        seconds, processor = time.perf_counter() - begin, time.process_time() - used
    told = "\n".join(f"{f.key} {[(s.rule, s.parameters, s.path, s.after.key) for s in f.steps]}" for f in forms)
    each = sorted(others.executor.seconds.values(), reverse=True) if others else []  # type: ignore[attr-defined]
    counts = {"forms": hashlib.blake2b(told.encode(), digest_size=16).hexdigest(), "counts": asdict(space.statistics)}
    return {"seconds": seconds, "processor_s": processor, "workers_s": each, **counts}


def compared(name: str, scope: Scope, states: int, workers: int) -> dict[str, Any]:
    """Alone and shared: `ratio` by the clock, and `processor_ratio` what the busiest process takes of what one process takes."""
    alone, shared = (_apart(scope, states, n) for n in (1, workers))
    same = all(alone[k] == shared[k] for k in ("forms", "counts"))
    busiest = max(shared["processor_s"], *shared["workers_s"], 0.0)
    ratios = {"ratio": shared["seconds"] / alone["seconds"], "processor_ratio": busiest / alone["processor_s"]}
    return {"name": name, "workers": workers, "same": same, **ratios, "alone": alone, "shared": shared}


def _apart(scope: Scope, states: int, workers: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(searched, scope, states, workers).result()


def line(case: dict[str, Any]) -> str:
    """One case for people."""
    same = "the same" if case["same"] else "NOT THE SAME"
    keeper, each = case["shared"]["processor_s"], ", ".join(f"{s:.2f}" for s in case["shared"]["workers_s"])
    alone = case["alone"]
    times = f"{alone['seconds']:.2f} s alone, {case['shared']['seconds']:.2f} s shared ({case['ratio']:.2f})"
    used = f"{alone['processor_s']:.2f} s alone, {keeper:.2f} and {each} ({case['processor_ratio']:.2f})"
    return f"{case['name']}: {same}; {times}; processor {used}"
