"""What a user can ask of `optimize`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypedDict

from einnet.derivation.rules import EXPLORED, PARALLEL, RULES
from einnet.derivation.steps import KINDS
from einnet.errors import UsageError, nearest
from einnet.instantiate.kernels.arithmetics import Arithmetic

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

TESTED = "tested"
"""What `allow` has beside a class where steps may be used that are tested and not proven."""

FINITE = "finite"
"""What `allow` has beside a class where vendor operators may be used that compute with finite numbers only."""

TOLERANCE = {"exact": 1e-4, "reassociation": 1e-4, "precision": 1e-3}
"""Greatest error against ONNX Runtime that passes, relative to max|y|, by the worst class of step that is allowed."""

PRECISION_FROM = 1e-5
"""The budget of error from which on steps of class precision are used: what they err is measured like all else, and is mostly a few millionths of
max|y|. A part that errs too much runs as the model has it. Smaller budgets have hardly room for another order of additions."""

ROUNDED = 8
"""Roundings of a factor, relative to max|y|, by which a result may be off whose products round their factors: those of one layer add up like
random numbers, and layers hand on what they err by. On a card seven models in TF32 were off by two at most; rounded so on a processor, the five
transposed convolutions of DCGAN are off by four at one sample and by four and a half at sixteen."""

KEPT, CANDIDATE, NEVER = ROLES = ("kept", "candidate", "never")
"""What ONNX Runtime with the whole model is: what runs unless a program of ours is surely faster, what runs where it is measured to be faster, or no
candidate."""

TARGETS = ("native", "onnx")
"""Where the program is to be fast: as ours, or as an ONNX model in ONNX Runtime."""


@dataclass(frozen=True)
class Limits:
    """What outputs may err, relative to max|y| of each: `error`, but for those that have a limit of their `own`."""

    error: float
    own: Mapping[str, float] = field(default_factory=dict)

    def of(self, output: str) -> float:
        """The limit of an output."""
        return self.own.get(output, self.error)

    def counted(self, output: str, error: float) -> float:
        """An error of an output in terms of `error`: as far beyond it as beyond the output's own limit."""
        return error * self.error / self.of(output)

    @property
    def least(self) -> float:
        return min((self.error, *self.own.values()))

    @property
    def most(self) -> float:
        return max((self.error, *self.own.values()))


ALIKE = Limits(1.0)
"""No output has a limit of its own: errors count as they are."""


@dataclass(frozen=True)
class Progress:
    """Where an optimization stands. `best` and `original` are ms of the subprogram at hand; `left` seconds of the time budget."""

    phase: str
    done: int = 0
    total: int = 0
    states: int = 0
    states_per_s: float = 0.0
    best: float | None = None
    original: float | None = None
    left: float = 0.0
    detail: str = ""


def explored(backend: str) -> tuple[str, ...]:
    """The rules that are choices of a search for a backend."""
    return PARALLEL if backend == "cuda" else EXPLORED


@dataclass(frozen=True)
class Settings:
    """The arguments of `einnet.optimize`; see there."""

    max_depth: int = 7
    time_budget: float = 120.0
    threads: int | None = None
    backend: str = "cpu"
    target: str = "native"
    cpu: str = "native"
    allow: str = "reassociation"
    max_error: float | None = None
    output_errors: Mapping[str, float] = field(default_factory=dict)
    certified: bool = False
    tested: bool = False
    finite: bool = False
    strict_nan: bool = False
    derive: bool = True
    whole: str = KEPT
    converge: bool = True
    fingerprint: bool = True
    rules: tuple[str, ...] | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    fresh: bool = False
    seed: int = 0
    workers: int = 1
    scheduler: str | None = None
    memory_limit: int | None = None
    force: int | None = None
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise UsageError(f"target {self.target!r} is not one of {', '.join(TARGETS)}")
        if self.whole not in ROLES:
            raise UsageError(f"whole {self.whole!r} is not one of {', '.join(ROLES)}")
        if self.target == "onnx" and self.cpu != "native":
            raise UsageError(f"cpu {self.cpu!r} is for generated code; target 'onnx' has none: ONNX Runtime runs its model on any processor")
        words = self.allow.split(",")
        for word in {TESTED, FINITE} & set(words):
            words.remove(word)
            object.__setattr__(self, word, True)
            object.__setattr__(self, "allow", ",".join(words) or "reassociation")
        if self.allow not in KINDS:
            raise UsageError(f"allow {self.allow!r} is not one of {', '.join(KINDS)}, {TESTED}, {FINITE}, or a class and these: 'precision,{TESTED}'")
        self._budget()
        self._limits()
        if self.force is not None and self.target != "native":
            raise UsageError("force draws candidates for our own program; target 'onnx' keeps what is fastest in ONNX Runtime")
        known = {r.name for r in RULES}
        unknown = [r for r in self.rules or () if r not in known]
        if unknown:
            raise UsageError(f"no rule {unknown[0]!r}; `einnet rules` lists them: {', '.join(sorted(known))}")

    def _limits(self) -> None:
        """Raises UsageError for a count or an amount below what can be used."""
        if self.max_depth < 0:
            raise UsageError(f"max_depth must be 0 or more, not {self.max_depth}")
        if not self.time_budget > 0:
            raise UsageError(f"time_budget must be a positive number of seconds, not {self.time_budget}")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads must be 1 or more, not {self.threads}")
        if self.seed < 0:
            raise UsageError(f"seed must be 0 or more, not {self.seed}")
        if self.workers < 1:
            raise UsageError(f"workers must be 1 or more, not {self.workers}")
        if self.memory_limit is not None and self.memory_limit < 1:
            raise UsageError(f"memory_limit must be a positive number of bytes, not {self.memory_limit}")

    def _budget(self) -> None:
        """Let the default class be the worst one where a budget is wide. Raises UsageError for a budget that nothing can keep."""
        if self.max_error is None:
            if self.certified:
                raise UsageError("certified is about a budget of error: it goes with max_error")
            if self.output_errors:
                raise UsageError("output_errors are limits of outputs that differ from the others': they go with max_error, the limit of those")
            return
        for name, error in {"": self.max_error, **self.output_errors}.items():
            if not 0 < error < 1:
                raise UsageError(f"max_error{f' of {name}' if name else ''} must be between 0 and 1, a part of max|y|, not {error}")
        if (self.backend, self.target) != ("cpu", "native"):
            raise UsageError("max_error is for programs on this CPU: it goes with backend cpu and target native")
        if self.allow == "reassociation" and self.limits.least >= PRECISION_FROM:
            object.__setattr__(self, "allow", KINDS[-1])

    @property
    def tolerance(self) -> float:
        """Greatest error against ONNX Runtime that passes, relative to max|y| of each output that has no limit of its own."""
        return tolerance(self.allow, self.max_error)

    @property
    def limits(self) -> Limits:
        """What outputs may err."""
        return Limits(self.tolerance, self.output_errors)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The numerical classes of steps that are allowed."""
        return KINDS[: KINDS.index(self.allow) + 1]

    @property
    def tables(self) -> bool:
        """Weights may be read as products of smaller tables, which are not quite they: with derivations of class precision, where NaN may spread."""
        return self.derive and self.target == "native" and self.allow == KINDS[-1] and not self.strict_nan

    @property
    def settles(self) -> bool:
        """What is the same for all numbers need not be computed: where an input is no number the model's result may be none either."""
        return self.derive and self.allow != KINDS[0] and not self.strict_nan


class Arguments(TypedDict, total=False):
    """The keyword arguments of `einnet.optimize`: the fields of Settings, so that a type checker knows them."""

    max_depth: int
    time_budget: float
    threads: int | None
    backend: str
    target: str
    cpu: str
    allow: str
    max_error: float | None
    output_errors: Mapping[str, float]
    certified: bool
    tested: bool
    finite: bool
    strict_nan: bool
    derive: bool
    whole: str
    converge: bool
    fingerprint: bool
    rules: tuple[str, ...] | None
    shapes: Mapping[str, tuple[int, ...]]
    inputs: Mapping[str, Array]
    fresh: bool
    seed: int
    workers: int
    scheduler: str | None
    memory_limit: int | None
    force: int | None
    progress: Callable[[Progress], None] | None


def tolerance(allow: str, max_error: float | None) -> float:
    """The limit of a budget, or of a class of steps."""
    return TOLERANCE[allow] if max_error is None else max_error


def rounded(limit: float, arithmetic: Arithmetic) -> float:
    """A limit, no less than what a program may err whose products round their factors to numbers of an arithmetic."""
    return max(limit, ROUNDED * arithmetic.roundoff)


def chosen(settings: Settings | None, arguments: Arguments) -> Settings:
    """The settings with these arguments put in. Raises UsageError for an argument that there is not, with the nearest one that there is."""
    known = [f.name for f in fields(Settings)]
    for name in arguments:
        if name not in known:
            meant = nearest(name, [*known, "dynamic"], "")
            raise UsageError(f"optimize has no argument {name!r}" + (f"; {meant}" if meant else f": it has {', '.join(known)}"))
    return replace(settings or Settings(), **arguments)


def tell(settings: Settings, phase: str, started: float) -> None:
    """Report a phase."""
    if settings.progress:
        settings.progress(Progress(phase, left=max(started + settings.time_budget - time.monotonic(), 0.0)))
