"""What of a program is true for finite numbers only, by trial: NaN and infinities in what a subprogram reads, and where they come out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np

from einnet.errors import OutOfTimeError, UsageError
from einnet.expr.nodes import Scope, tensors, walk
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.epilogue_kernels import nan_lost
from einnet.search.choosing.candidate import Choice
from einnet.search.outcome import Outcome
from einnet.search.time_shares import NAN_S
from einnet.search.work import operations, points

Array = np.ndarray[Any, np.dtype[Any]]

MOST_WORK, STRICT_WORK = 2e8, 4e9
"""Operations of an expression that is tried at most: for the report, and where the answer decides."""

DRAWS = ((np.nan, 0.0), (np.nan, 0.5), (np.nan, 0.02), (np.inf, 0.5), (np.inf, 0.02))
"""What stands in each tensor, in its last corner and in which share of the rest: much for what reads few elements, little for long sums."""


LATE = "not tried with NaN, for want of time"


@dataclass(frozen=True)
class Until:
    """Trials end when time.monotonic() is `moment`. That is no part of the question: what was found in time is found for all who ask."""

    moment: float = field(default=inf, compare=False)

    def __call__(self) -> None:
        """Raises OutOfTimeError when it is too late."""
        if time.monotonic() >= self.moment:
            raise OutOfTimeError(LATE)


def assumptions(outcome: Outcome) -> list[str]:
    """Why a NaN or an infinity may come out elsewhere than the model has it, a line for each reason; empty where it does not."""
    if outcome.whole:
        return []
    told: dict[str, list[str]] = {}
    until, most = Until(time.monotonic() + NAN_S), STRICT_WORK if outcome.strict_nan else MOST_WORK
    for r, *_ in outcome.changed.values():
        reason = reaches_further(r.choice.expression, r.candidate.form.tree, most, until)
        if reason:
            told.setdefault(reason, []).append(", ".join(r.subprogram.origin[:2]) or r.subprogram.output.name)
    lines = [f"{reason}: {'; '.join(where)}" for reason, where in told.items()]
    lines += [f"NaN or infinities reach all results of a filter that is computed by waves: {origin}" for origin in outcome.program.spreads]
    lines += [f"a number is the result, where the model may have NaN, of what depends on no input: {origin}" for origin in outcome.program.settled]
    lost = sum(map(nan_lost, outcome.plan().kernels))
    return lines + ([f"relu, clip and maxima inside of {lost} vendor kernels make a number of NaN"] if lost else [])


def reaches_further(before: Scope, after: Scope, most: float = STRICT_WORK, until: Until = Until()) -> str:
    """How NaN or an infinity in what both read comes out differently; "" where it does not, as far as was tried."""
    if max(work(before), work(after)) > most:
        return "too much work to try with NaN"
    try:
        return _tried(before, after, until)
    except OutOfTimeError as reason:
        return str(reason)


@lru_cache(maxsize=256)
def _tried(before: Scope, after: Scope, until: Until) -> str:
    """What trials tell. Raises OutOfTimeError, which is not remembered."""
    try:
        if any(not np.array_equal(kinds(before, held, until), kinds(after, held, until)) for held in draws(before)):
            return "NaN or infinities in the input reach other elements than in the model"
    except UsageError:
        return "cannot be tried with NaN"
    return ""


@lru_cache(maxsize=256)
def work(scope: Scope) -> int:
    """Operations of evaluating it as it is written: nothing is carried from one element to the next, as generated code of a recurrence does."""
    return sum(points(s) * (operations(s.body) + 1) for s in walk(scope))


def kinds(scope: Scope, held: dict[str, Array], until: Until) -> Array:
    """0 for a finite element, 1 for an infinity, 2 for NaN. Raises OutOfTimeError."""
    own = {n: np.array([float(v) for v in t.values]).reshape(t.shape) for n, t in tensors(scope).items() if t.values is not None}
    with np.errstate(all="ignore"):
        y = evaluate(scope, {name: own[name] if name in own else held[name] for name in tensors(scope)}, "float64", until)
    return np.asarray(np.isinf(y) + 2 * np.isnan(y))


def draws(scope: Scope) -> Iterator[dict[str, Array]]:
    """Positive values for all tensors, so that nothing cancels, with some that are not finite in each that is no weight."""
    rng = np.random.default_rng(0)
    for value, share in DRAWS:
        held: dict[str, Array] = {}
        for name, t in tensors(scope).items():
            held[name] = rng.uniform(0.5, 1.5, t.shape)
            if not t.weight and held[name].size:
                held[name][rng.random(t.shape) < share] = value
                held[name].reshape(-1)[-1] = value
        yield held


def keep_strict(outcome: Outcome, until: float = inf) -> Outcome:
    """The outcome in which nothing runs that is true for finite numbers only: the fastest candidates that are not, or the model's own operators.

    These run as well where nothing else is found until time.monotonic() is `until`.
    """
    strict = {key: settle(alike[0].choice, Until(until)) for key, alike in outcome.changed.items()}
    return replace(outcome.choosing(strict), strict_nan=True)


def settle(choice: Choice, until: Until = Until()) -> Choice:
    """The choice of the fastest candidate under which NaN and infinities go where they go in the original."""
    for candidate in (choice.best, *choice.candidates):
        if candidate is choice.original or not reaches_further(choice.expression, candidate.form.tree, until=until):
            return replace(choice, best=candidate)
    return replace(choice, best=choice.original)
