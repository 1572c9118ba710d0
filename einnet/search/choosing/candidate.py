"""A candidate: one way to run a subprogram, as kernels with what they are predicted and measured to take; and a choice among candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from einnet.expr.nodes import Scope
from einnet.instantiate.build import Build
from einnet.instantiate.kernels import Kernel
from einnet.search.forms import Form

Estimate = Callable[[Sequence[Kernel]], Sequence[float]]
"""Seconds of one run of each kernel, at least."""
Measure = Callable[[Sequence[Kernel], float], Sequence[float | None]]
"""Measured seconds, inf for a kernel that cannot run well, None where measuring would not be done when time.monotonic() is the second argument
or memory does not suffice. The search knows no device beyond these two functions."""

Within = Callable[[Kernel, float, float], tuple[float | None, bool]]
"""The same of one kernel whose time is of no interest where it is longer than so many seconds, the third argument, and whether it is known: else the
kernel takes longer than the seconds that are given."""

Learned = Callable[["Candidate"], tuple[Sequence[float], Sequence[float]] | None]
"""Seconds of each kernel of a candidate as the same candidate at other sizes lets one expect them, and at least; None where they tell nothing."""

OUT = "out"

GAIN = 0.03
"""Share of its time by which another has to be faster than the original."""

DOUBT = 1.2
"""Predictions may be this much too high."""

GENERATED_DOUBT = 4.0
"""Those of generated code: loops over what a cache holds take a fraction of what the same loops take over memory, and no roofline says which."""

COUNTED_DOUBT = 2.5
"""Those that follow from what is written: compilers and caches still make more or less of it."""


@dataclass
class Candidate:
    """One way to run a subprogram. `predicted` and `measured` are seconds of all its kernels; measured is inf unless all were measured.

    `expected` and `seconds` are those of each kernel, predicted and measured; `least` is what it takes in any case, `refused` are its kernels
    that cannot run well, and `assumed` those that time did not suffice to measure: their seconds are predicted, and doubted. `way` says which of the
    ways to run its form it is, whatever the sizes.
    """

    form: Form
    build: Build
    way: tuple[bool, int] = (True, 0)
    expected: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    predicted: float = inf
    measured: float = inf
    seconds: tuple[float, ...] = ()
    refused: frozenset[Kernel] = frozenset()
    assumed: frozenset[Kernel] = frozenset()
    tried: bool = False

    @property
    def cost(self) -> float:
        """Seconds as far as they are known: measured, else predicted."""
        return self.measured if self.measured < inf or (self.tried and self.seconds) else self.predicted

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels as far as their cost depends on them: parts of a batch are equal."""
        return self.build.priced

    @property
    def original(self) -> bool:
        """No derivation step but normalisation and the numbering of loops: the operators as the model has them."""
        return self.form.unchanged

    @property
    def rules(self) -> list[str]:
        """The rules of the derivation, in order."""
        return [s.rule for s in self.form.steps]


@dataclass
class Choice:
    """What was found for one subprogram: the candidates by cost, best first, the original among them.

    `hurried`: more time would have found more, or measured more of it; `unmeasured`: more would have been made or measured of what may be faster,
    had not enough been measured. `depth` is how far was searched, `stopped_at` the number of states at which
    a budget ended that.
    """

    expression: Scope
    candidates: list[Candidate]
    original: Candidate
    best: Candidate
    states: int = 0
    forms: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    hurried: bool = False
    unmeasured: bool = False
    depth: int = 0
    stopped_at: int | None = None
