"""One problem in a process of its own, a fork of the nursery.

It writes a line of JSON for each thing that it finds; what was written is known even where the process is killed for its time or its memory.
"""

from __future__ import annotations

import gc
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.suites.problem import Problem, Task, Unusable, Value, suite
from benchmarks.suites.scores import OURS, PROGRAMS
from einnet.evidence.comparison.verify import SETTLE_S
from einnet.runtime.timing import compare

TRIALS = (1, 2)
"""Seeds of the inputs that are compared; the programs are made for the first."""

MOST, WARM_S, SAMPLE_S = 200, 0.01, 0.01
"""Rounds after which no more are timed; seconds of calls before a sample, and of one."""

Call = Callable[[Sequence[Value]], Value]


def tell(**found: Any) -> None:
    """Write what was found."""
    print(json.dumps(found), flush=True)


def main(orders: Mapping[str, Any]) -> None:
    """Run one problem with each engine, and time them in turns if that is asked for."""
    import torch

    torch.set_num_threads(orders["threads"])
    tell(phase="load")
    try:
        problem = suite(orders["suite"]).load(Task(orders["suite"], orders["name"], Path(orders["path"]), orders["largest"], orders["fit"]))
    except Unusable as reason:
        tell(status="unusable", why=str(reason))
        return
    tell(changed=problem.changed, phase="eager", **problem.told)
    with torch.no_grad():
        given = [problem.inputs(seed) for seed in TRIALS]
        try:
            seconds, _ = timed(lambda: problem.module(*given[0]))
        except Exception as error:
            tell(status="unusable", why=f"eager mode: {said(error)}")
            return
        tell(eager_s=seconds)
        if seconds > orders["longest"]:
            tell(status="skipped", why=f"eager mode takes {seconds:.3g} s, more than {orders['longest']:g}")
            return
        calls: dict[str, Call] = {"eager": lambda args: problem.module(*args)}
        for engine in orders["engines"]:
            tell(phase=engine)
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            call = engine_of(engine, problem, orders)
            found = tried(engine, call, problem, given)
            tell(engine=engine, **found)
            if found["right"] and engine != PROGRAMS:
                calls[engine] = call
        if orders["timed"]:
            before = os.getloadavg()[0]
            found = times(calls, given[0], orders["seconds"])
            tell(phase="times", ms=found, load=round((before + os.getloadavg()[0]) / 2, 2))
    tell(status="done")


def engine_of(name: str, problem: Problem, orders: Mapping[str, Any]) -> Call:
    """The problem compiled by an engine."""
    import torch

    if name in OURS:
        import einnet.api.torch  # noqa: F401

        slower = name == PROGRAMS
        options = {**{name: orders[name] for name in ("time_budget", "graph_budget", "allow", "threads")}, "slower": slower}
        if slower:  # who waits for a result that is to be compared waits until the problem's own limit
            options |= {"trivial": 0.0, "graph_budget": math.inf}
        fast = torch.compile(problem.module, backend="einnet", options=options)
    else:
        fast = torch.compile(problem.module, backend=name)
    return lambda args: fast(*args)


def tried(engine: str, call: Call, problem: Problem, given: Sequence[Sequence[Value]]) -> dict[str, Any]:
    """Whether the engine gives what eager mode gives, at which tolerances, how long its first call took, and what it says of itself."""
    import torch

    tolerances = set(problem.tolerances)
    first = 0.0
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            for n, args in enumerate(given):
                torch.manual_seed(n)  # some draw random numbers
                seconds, found = timed(lambda args=args: call(args))
                first = first or seconds
                torch.manual_seed(n)
                wanted = problem.module(*args)
                tolerances &= {t for t, (atol, rtol) in problem.tolerances.items() if close(found, wanted, atol, rtol)}
                tell(compared=n)
        except Exception as error:
            return {"right": False, "first_s": first, "error": said(error), **told(engine)}
    notes = sorted({str(w.message) for w in heard if str(w.message).startswith("einnet: ")})
    return {"right": bool(tolerances), "within": sorted(tolerances), "first_s": first, "notes": notes, **told(engine)}


def told(engine: str) -> dict[str, Any]:
    """What became of the parts, by our engine."""
    if engine not in OURS:
        return {}
    import torch

    import einnet.api.torch

    names = ("part", "operators", "runs", "why", "eager_ms", "einnet_ms", "error")
    breaks = sorted(str(reason).splitlines()[0][:200] for reason in torch._dynamo.utils.counters["graph_break"])
    return {"parts": [{name: getattr(part, name) for name in names} for part in einnet.api.torch.parts()], "breaks": breaks}


def close(found: Value, wanted: Value, atol: float, rtol: float) -> bool:
    """Both are the same but for roundings, NaN and infinities in the same places; containers by their elements."""
    import torch

    if isinstance(wanted, torch.Tensor):
        same = isinstance(found, torch.Tensor) and found.shape == wanted.shape and found.dtype is wanted.dtype
        return same and torch.allclose(found, wanted, atol=atol, rtol=rtol, equal_nan=True)
    if isinstance(wanted, (tuple, list)):
        return len(found) == len(wanted) and all(close(f, w, atol, rtol) for f, w in zip(found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(close(found[k], wanted[k], atol, rtol) for k in wanted)
    return bool(found == wanted)


def times(calls: Mapping[str, Call], args: Sequence[Value], seconds: float) -> dict[str, list[float]]:
    """Median and least ms and number of samples of every engine, in turns, for about so many seconds of the clock for each.

    Before each sample the threads of the engine before it have the time to fall asleep: while they wait actively, another engine has no core of its
    own, and one whose threads are the same as those before it looks fast.
    """
    from einnet.api.torch.make import AWAKE_S

    gc.collect()
    named = {name: partial(call, args) for name, call in calls.items()}
    found = compare(named, seconds * len(calls), pause_s=AWAKE_S, warm_s=WARM_S, sample_s=SAMPLE_S, most=MOST, awake_s=dict.fromkeys(OURS, SETTLE_S))
    return {name: [1e3 * t.median, 1e3 * min(found.samples[name]), float(t.n)] for name, t in found.timings.items()}


def timed(call: Callable[[], Value]) -> tuple[float, Value]:
    """Seconds of one call, and what it gave."""
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def said(error: BaseException) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]
