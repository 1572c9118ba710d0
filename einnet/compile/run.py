"""One pass through the pipeline: what is read of a model, and what is made of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Protocol

import numpy as np

from einnet.compile.budget import CountedClock, Schedule
from einnet.evidence.comparison.draws import first_of
from einnet.evidence.comparison.verify import Trial
from einnet.evidence.report.schema import Verification
from einnet.graph.program import Program
from einnet.runtime.cpu.program import Executable
from einnet.runtime.whole import Whole
from einnet.search.outcome import Outcome
from einnet.search.settings import Settings, tell
from einnet.stages import stage

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Run:
    """One model on its way: `program` is what was read of it, `started` when that began, a time.monotonic() value.

    A run that is `counted` has visited states for seconds, so that the same model and settings give the same search on every machine.
    """

    model: Any
    program: Program
    settings: Settings
    started: float
    counted: bool = False
    worked: float = inf
    """A time.process_time() value: when it began, where it may be given up for want of time."""

    @cached_property
    def trial(self) -> Trial:
        """The model in ONNX Runtime on inputs that were given, or random ones."""
        kinds = [(self.program.names.get(t.name, t.name), t.shape, t.dtype) for t in self.program.inputs]
        inputs, given = first_of(self.settings.inputs, kinds, self.settings.seed, self.program.title)
        with stage("running the model in ONNX Runtime"):
            return Trial(self.model, self.program, self.settings, inputs, given)

    @cached_property
    def schedule(self) -> Schedule:
        """When everything has to end."""
        return Schedule(self.started, self.settings.time_budget, self.trial.seconds, worked=self.worked, again_s=self.trial.again_s)

    @cached_property
    def searching(self) -> Schedule:
        """When the search has to end."""
        return Schedule(0.0, self.settings.time_budget, clock=CountedClock()) if self.counted else self.schedule

    @property
    def used(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.started

    def tell(self, phase: str) -> None:
        """Report a phase."""
        tell(self.settings, phase, self.started)


class Runnable(Protocol):
    """A program that is bound to memory, or to a device."""

    @property
    def input_names(self) -> Sequence[str]:
        """The model's inputs, in its order."""

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        """Outputs by name. Raises UsageError for wrong names, shapes or types, BackendError without the device."""


@dataclass(frozen=True)
class Made:
    """A program that was made and compared with the model; `outcome` is what it consists of in the end."""

    outcome: Outcome
    executable: Runnable
    verification: Verification


def on_processor(made: Runnable) -> Executable | Whole:
    """A program for this processor, as what it is."""
    assert isinstance(made, (Executable, Whole)), "a program for a card is another"
    return made
