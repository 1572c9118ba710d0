"""Programs of one plan with some products rounded, tried beside the one in float32: how far they err, and which products a limit has room for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, inf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.compile.targets.cpu.certified import certified
from einnet.errors import BackendError
from einnet.evidence.comparison.verify import errors
from einnet.instantiate.kernels.arithmetics import Arithmetic
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime.cpu.program import Executable
from einnet.search.settings import ALIKE, Limits
from einnet.search.time_shares import GROUPS_SHARE

if TYPE_CHECKING:
    from einnet.evidence.report.schema import OutputError
    from einnet.instantiate.kernels import Plan

Array = np.ndarray[Any, np.dtype[Any]]
Values = Mapping[str, Array]


FEWEST_DRAWS = 4
"""Draws that a choice is confirmed by whatever the time."""

SPREAD = 5.0
"""How many times their spread beyond their mean errors of further draws may be: they are extremes over many elements, whose tail is long."""


@dataclass(frozen=True)
class Offer:
    """A product of a plan that is faster in another arithmetic than float32: where it stands, its times, and by which of the library's
    implementations it is, none for what the library takes first."""

    place: int
    arithmetic: Arithmetic
    float32_ms: float
    ms: float
    by: str = ""

    @property
    def gain(self) -> float:
        return self.float32_ms - self.ms


@dataclass
class Tried:
    """Programs of one plan with factors rounded, beside the one in float32, on some inputs; nothing is tried after `until`.

    Where there is a `budget`, no program will do whose certified bound on the first of the inputs is beyond it, or not known. Errors and bounds of
    outputs that have `limits` of their own count in terms of the others' limit.
    `alone` is what a product was found to err by when no other rounds, or, of a group that was tried as one, its part.
    """

    executable: Executable
    draws: Sequence[Values]
    until: float
    budget: float | None = None
    limits: Limits = ALIKE
    alone: dict[Offer, float] = field(default_factory=dict)
    bounds: dict[tuple[Offer, ...], float | None] = field(default_factory=dict)
    given: list[Values] = field(default_factory=list)
    """What float32 gives on the first draws, as far as `each` has asked."""
    whole: dict[tuple[Offer, ...], Executable] = field(default_factory=dict)
    """The first program that was tried, with constants of its own: others have packed what it has packed."""

    @cached_property
    def wanted(self) -> list[Values]:
        """What float32 gives."""
        return [self.executable(dict(inputs)) for inputs in self.draws]

    @property
    def late(self) -> bool:
        return time.monotonic() >= self.until

    def program(self, offers: Sequence[Offer]) -> Executable:
        """The program in which these products round, with constants of its own. Raises BackendError where the library refuses one after all."""
        return self.whole.get(in_order(offers)) or self._made(offers, [])

    def trial(self, offers: Sequence[Offer]) -> Executable:
        """The same program, to be run here and given up: packed weights are those of the one in float32 and of the first that was tried, which takes
        seconds where they are hundreds of megabytes. Raises BackendError."""
        key = in_order(offers)
        if not self.whole:
            self.whole[key] = self._made(offers, [])
        return self.whole.get(key) or self._made(offers, [self.executable, *self.whole.values()])

    def _made(self, offers: Sequence[Offer], beside: Sequence[Executable]) -> Executable:
        one = self.executable
        return Executable(self.plan(offers), one.threads, code=one.code, native=one.native, strict=True, beside=beside)

    def plan(self, offers: Sequence[Offer]) -> Plan:
        """The plan in which these products round."""
        kernels = list(self.executable.plan.kernels)
        for o in offers:
            product = kernels[o.place]
            assert isinstance(product, Contraction)
            kernels[o.place] = product.in_arithmetic(o.arithmetic).made_by(o.by)
        return replace(self.executable.plan, kernels=tuple(kernels))

    def error(self, offers: Sequence[Offer], limit: float = inf, draws: int | None = None) -> float:
        """The greatest difference from float32, relative to max|y| of an output, over the first so many draws; infinite where there is no such
        program. What is beyond the limit on one draw is not run on the others."""
        try:
            program = self.trial(offers)
        except BackendError:
            return inf
        found = 0.0
        for inputs, wanted in zip(self.draws[:draws], self.wanted, strict=False):
            found = max(found, worst(program(dict(inputs)), wanted, self.limits))
            if not found <= limit:
                break
        program.release()
        return found if self.budget is None or self.holds(offers, self.budget) else inf

    def each(self, offers: Sequence[Offer]) -> list[float]:
        """The same difference on each draw, on a few in any case where time is over; infinite where there is no such program."""
        try:
            program = self.trial(offers)
        except BackendError:
            return [inf]
        found: list[float] = []
        for n, inputs in enumerate(self.draws):
            if self.late and n >= FEWEST_DRAWS:
                break
            if n == len(self.given):
                self.given.append(self.executable(dict(inputs)))
            found.append(worst(program(dict(inputs)), self.given[n], self.limits))
        program.release()
        return found

    def holds(self, offers: Sequence[Offer], budget: float) -> bool:
        """The certified bound is known, and within a budget."""
        bound = self.bound(offers)
        return bound is not None and bound <= budget

    def bound(self, offers: Sequence[Offer]) -> float | None:
        """The certified bound of the program in which these products round; None where there is none, or no time for it."""
        key = in_order(offers)
        if key not in self.bounds:
            self.bounds[key] = certified(self.plan(key), self.draws[0], self.until, self.limits)
        return self.bounds[key]

    def certain(self, offers: Sequence[Offer]) -> float | None:
        """The certified bound that is told of a program, where one was asked for and there is one."""
        bound = self.bound(offers) if self.budget is not None else None
        return bound if bound is not None and bound < inf else None

    def within(self, offers: Sequence[Offer], limit: float) -> tuple[list[Offer], float]:
        """The offers that are taken, with their error together: all, or as many as the limit allows of those with little error for their gain.

        Roundings that have nothing to do with each other add up by their squares. How many there is room for is found by halving, first where
        these squares say that it is.
        """
        if not offers or self.late:
            return [], 0.0
        together = self.error(offers, limit)
        if together <= limit:
            return list(offers), together
        if any(o not in self.alone for o in offers):
            self._try_groups(offers)
        hopeful = [o for o in offers if self.alone.get(o, inf) <= limit]
        order = sorted(hopeful, key=lambda o: self.alone[o] ** 2 / max(o.gain, 1e-12))
        taken, least, most = 0, 0.0, len(order) - (len(order) == len(offers))
        beyond = together / summed(self.alone.values()) if 0 < summed(self.alone.values()) < inf else 1.0
        middle = fitting([self.alone[o] for o in order[:most]], limit / max(beyond, 1.0))
        while taken < most and not self.late:
            together = self.error(order[:middle], limit)
            taken, least, most = (middle, together, most) if together <= limit else (taken, least, middle - 1)
            middle = (taken + most + 1) // 2
        return order[:taken], least

    def fewer(self, taken: Sequence[Offer], less: float) -> list[Offer]:
        """So many of the offers that they may err `less` times as much together: by their own errors, or, where these are not known, as if all erred
        alike."""
        errors = {o: self.alone.get(o, 1.0) for o in taken}
        if not all(o in self.alone for o in taken) or not summed(errors.values()) < inf:
            errors = dict.fromkeys(taken, 1.0)
        order = sorted(taken, key=lambda o: errors[o] ** 2 / max(o.gain, 1e-12))
        room = less * summed(errors.values())
        return order[: int(np.searchsorted(np.cumsum([errors[o] ** 2 for o in order]), room * room, side="right"))]

    def _try_groups(self, offers: Sequence[Offer]) -> None:
        """What products err by: each alone on all draws, or on the first one only, or neighbours as one, as there is time for. Of a certified bound
        the first draw and groups say nothing.

        How long a program takes is known from the first of them.
        """
        left = self.until - time.monotonic()
        until = self.until - (1 - GROUPS_SHARE) * left if left < inf else inf
        began = time.monotonic()
        self.alone[offers[0]] = self.error(offers[:1], draws=1)
        seconds = time.monotonic() - began
        left = max(until - time.monotonic(), 0.0)
        every = self.budget is not None or len(offers) * len(self.draws) * seconds <= left
        others = offers if every and len(self.draws) > 1 else offers[1:]
        size = 1 if every else max(ceil(len(others) * seconds / max(left, seconds, 1e-9)), 1)
        for n in range(0, len(others), size):
            if self.late or time.monotonic() >= until:
                return
            group = others[n : n + size]
            self.alone |= dict.fromkeys(group, self.error(group, draws=None if every else 1) / sqrt(len(group)))


def in_order(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers by their places."""
    return tuple(sorted(offers, key=lambda o: o.place))


def beyond(errors: Sequence[float]) -> float:
    """What the errors of further draws are not expected to exceed, by those of some."""
    spread = float(np.std(errors, ddof=1)) if len(errors) > 1 and max(errors) < inf else 0.0
    return max(float(np.mean(errors)) + SPREAD * spread, *errors) if len(errors) > 1 else 2 * errors[0]


def summed(errors: Iterable[float]) -> float:
    """Errors that have nothing to do with each other, together."""
    return sqrt(sum(e * e for e in errors))


def fitting(alone: Sequence[float], limit: float) -> int:
    """How many of the first of these errors add up to no more than a limit by their squares, and one at least."""
    sums = np.cumsum(np.square(np.asarray(alone, np.float64)))
    return max(int(np.searchsorted(sums, limit * limit, side="right")), 1)


def worst(got: Values, wanted: Values, limits: Limits = ALIKE) -> float:
    """The greatest error of an output, relative to its max|y|, as it counts."""
    return counted(errors(got, wanted), limits)


def counted(found: Mapping[str, OutputError], limits: Limits) -> float:
    """The greatest of the errors of outputs; those of outputs that have a limit of their own in terms of the others'."""
    return max((limits.counted(name, e.max_rel) for name, e in found.items()), default=0.0)
