"""A program for a part: loaded or searched, compared with eager mode on the call's own inputs, and kept if it is faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from einnet.api.torch import program_cache
from einnet.api.torch.agreement import differences, tolerance
from einnet.api.torch.frozen import Frozen
from einnet.api.torch.halves import budgeted, judged, roughly
from einnet.api.torch.options import Options
from einnet.api.torch.order import results
from einnet.api.torch.program import Bound
from einnet.api.torch.waiting import Stop, Turn, within
from einnet.errors import EinNetError
from einnet.evidence.comparison.right import is_whole
from einnet.evidence.comparison.verify import SETTLE_S
from einnet.runtime.timing import compare
from einnet.search.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.whole import Whole

Tensor = Any

ROUNDS, WARM_S, SAMPLE_S = 60, 0.01, 0.005
"""Most rounds that decide between a program and eager mode; seconds of calls before each sample, and of one."""

SECONDS = (1.5, 6.0)
"""Of rounds; of those that follow where the first are not certain."""

AWAKE_S = 0.015
"""Longer than the threads of torch's pool wait actively."""


@dataclass(frozen=True)
class Eager:
    """The part runs in eager mode. A user has to know of it where it was not measured to be the faster way."""

    why: str
    warn: bool = False


@dataclass(frozen=True)
class Making:
    """What runs from now on, and what was found on the way: ms of one call, the greatest error relative to max|y|."""

    runs: Bound | Eager
    verdict: str = ""
    eager_ms: float | None = None
    einnet_ms: float | None = None
    stored: bool = False
    error: float | None = None


def make(module: Any, args: Sequence[Any], frozen: Frozen, options: Options, settings: Settings, turn: Turn, timed: bool = True) -> Making:
    """A program for the part with these arguments, or eager mode where that is faster, or right where the program is not. Which one is faster is told
    by whoever asks where it is not `timed` here.

    Raises EinNetError where there can be no program, NotReady where there is none in time.
    """
    wanted = results(module, args)
    if not all(t.numel() for t in wanted):
        return Making(Eager("it computes nothing: a tensor is empty"))
    eager_ms = least_ms(lambda: module(*args), options.trivial / 1e3)
    if eager_ms * 1e3 < options.trivial:
        return Making(Eager(f"it takes {eager_ms * 1e3:.3g} us there, in which no program is called"), eager_ms=eager_ms)
    exact = results(frozen.module, frozen.inputs) if frozen.halves else None
    asked = settings
    if exact is not None:
        settings = budgeted(settings, wanted, exact)
    path = program_cache.path_of(frozen.digest, roughly(asked, settings), options.graph_budget) if options.store else None
    executable, verdict, stored = within(lambda stop: program(frozen, len(wanted), path, settings, turn, stop), turn)
    bound = Bound.of(executable, frozen.places, wanted)
    found = bound(args)
    if exact is None:
        error = differences(module, args, found, wanted, tolerance(settings))
        right = error <= tolerance(settings)
    else:
        error, right = judged(found, wanted, exact, tolerance(asked))
    if not right:
        return Making(Eager(f"the program's result is another one: {error:.2g} of max|y|", warn=True), verdict, eager_ms, None, stored, error)
    if not timed:
        return Making(bound, verdict, None, None, stored, error)
    faster, eager_ms, einnet_ms = in_turns(lambda: module(*args), lambda: bound(args), waits_actively_s(executable))
    if not faster and not options.slower:
        return Making(Eager("it is no slower there"), verdict, eager_ms, einnet_ms, stored, error)
    return Making(bound, verdict, eager_ms, einnet_ms, stored, error)


def program(
    frozen: Frozen, count: int, path: Path | None, settings: Settings, turn: Turn, stop: Stop
) -> tuple[Executable | Whole, str, bool]:  # fmt: skip
    """The part's program, from where it is stored if it is there; the report's verdict; whether it was stored.

    Raises EinNetError, and NotReady when it is told to stop.
    """
    from einnet.api.optimize import optimize
    from einnet.compile.run import on_processor
    from einnet.compile.targets.stored import StoredProgram
    from einnet.evidence.pages.verdict import verdict

    found = program_cache.recalled(path) if path and not settings.fresh else None
    if isinstance(found, StoredProgram):
        return on_processor(found.executable), verdict(found.record), True
    stop()
    with frozen.onnx(count) as model:
        stop()
        try:
            result = optimize(model, replace(settings, time_budget=turn.searched(settings.time_budget), progress=stop))
        except EinNetError:
            raise
        except Exception as error:  # a bug of ours must not end the user's program
            raise EinNetError(f"optimizing it failed: {type(error).__name__}: {error}") from error
        stop()
        if path:
            program_cache.remember(result, path)
    return on_processor(result.executable), verdict(result.timed), False


def timed_ms(call: Callable[[], object]) -> float:
    """ms of one call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def least_ms(call: Callable[[], object], enough: float) -> float:
    """The least of a few calls; of one where it takes long enough to be more than `enough` ms in any case."""
    found = timed_ms(call)
    for _ in range(4):
        if found > 100 * enough:
            break
        found = min(found, timed_ms(call))
    return found


def waits_actively_s(executable: Executable | Whole) -> float:
    """Seconds for which threads of a program wait actively after a call, at most."""
    return SETTLE_S if is_whole(executable.plan) else AWAKE_S


def in_turns(eager: Callable[[], object], program: Callable[[], object], awake_s: float = AWAKE_S) -> tuple[bool, float, float]:
    """Whether a program is the faster one for certain, and the medians of eager mode and of it in ms.

    Each is timed with the other's threads asleep, as it runs when it is called again and again: while they wait actively on the same cores, either
    takes up to three times as long, and the one that comes after its own kind looks fast. The program's do so for `awake_s` seconds. Where it seems
    to be faster and that is not certain, more rounds are taken.
    """
    for seconds in SECONDS:
        found = compare(
            {"eager": eager, "einnet": program}, seconds, least=3, most=ROUNDS, pause_s=AWAKE_S, warm_s=WARM_S, sample_s=SAMPLE_S,
            awake_s={"einnet": awake_s},
        )  # fmt: skip
        times, faster = found.timings, found.faster("einnet", "eager")
        if faster or times["einnet"].median >= times["eager"].median:
            break
    return faster, 1e3 * times["eager"].median, 1e3 * times["einnet"].median
