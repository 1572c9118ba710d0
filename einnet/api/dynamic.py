"""`einnet.optimize(..., dynamic=("batch", 1, 32))`: one artifact for a range of sizes of a named dimension.

The program is searched at one size. Its derivations are taken to every size of the range by exchanging the size, and each is proven there by the
checker. At a few sizes the candidates are measured, so that different ones may win; a size between runs what the nearest of them runs. Every
size is compared with ONNX Runtime. Plans of all sizes are made now, so that running needs no compiler; their weights are one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.api.certificate import certify
from einnet.api.family import Family, Member
from einnet.api.follow import AtSize, Found, Guard, Taken, followed, taken
from einnet.api.memory import Memory
from einnet.api.optimize import TOLERANCE, Optimization, finish, tell
from einnet.api.pipeline import Outcome, is_constant, search
from einnet.api.plain import plain
from einnet.api.ranges import build, certificate_text
from einnet.api.schedule import Schedule
from einnet.api.settings import Settings
from einnet.derivation import einfile
from einnet.derivation.ranged import RangedFile
from einnet.errors import BackendError, ModelError, NotStaticError, UsageError
from einnet.expr.nodes import Scope
from einnet.expr.resize import Resize
from einnet.graph.onnx_dynamic import Carried, Dimension, carried
from einnet.graph.program import Program
from einnet.instantiate.kernels import Plan
from einnet.runtime.pool import Member as Stored
from einnet.runtime.pool import Pool, save
from einnet.search.forms import Form
from einnet.search.inplace import in_place

if TYPE_CHECKING:
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.ort import Session

Array = np.ndarray[Any, np.dtype[Any]]

MOST_SIZES = 256
"""Sizes that one artifact serves at most: each has a plan of its own."""

SEARCHING = 0.4
"""Share of the time budget for the search at the representative size."""

MEASURING = 0.45
"""Share for measuring candidates and whole programs at the measured sizes."""


@dataclass
class AtOneSize:
    """What was found for one size: the plan with its code, the report where it was measured, and how its numbers compare."""

    size: int
    stored: Stored
    verification: dict[str, Any]
    follows: int | None = None
    report: dict[str, Any] | None = None
    proven: int = 0
    problem: str | None = None


@dataclass
class Used:
    """A derivation and the sizes at which it runs and was proven: found at the searched size, or (`own`) at its only size."""

    form: Form
    sizes: set[int]
    own: bool = False


@dataclass
class DynamicOptimization:
    """What `optimize_dynamic` found for a range of sizes. Call it as an Optimization is called; `save` writes one artifact for all sizes."""

    dimension: Dimension
    settings: Settings
    sizes: dict[int, AtOneSize]
    derivations: list[RangedFile]
    report: dict[str, Any]
    pool: Pool

    def save(self, path: str | Path) -> Path:
        """Write the artifact, whole or not at all. Raises ArtifactError where the path cannot be written."""
        assert self.settings.threads is not None
        members = {size: found.stored for size, found in self.sizes.items()}
        save(Path(path), self.pool, members, plain({"report": self.report}), [str(d) for d in self.derivations], self.settings.threads)
        return Path(path)


def optimize_dynamic(model: Any, dimension: Any, settings: Settings | None = None, /, **arguments: Any) -> DynamicOptimization:
    """Optimize an ONNX model for a range of sizes of a dimension, ("batch", 1, 32); other arguments are those of `optimize`.

    The dimension is one that the model names or, for a static model, `batch`: the leading dimension of all inputs.

    Raises UsageError for a wrong range or argument, ModelError for a model without this dimension or one that cannot be read at a size.
    """
    from einnet.runtime.cpu.threads import resolve_threads

    settings = replace(settings, **arguments) if settings else Settings(**arguments)
    if settings.backend != "cpu" or settings.target != "native":
        raise UsageError("a range of sizes is served by programs for this CPU only: backend cpu, target native")
    wanted = dimension_of(dimension)
    settings = replace(settings, threads=resolve_threads(settings.threads))
    title = str(model) if isinstance(model, (str, Path)) else model.graph.name or "model"
    tell(settings, "read the model", time.monotonic())
    try:
        return _Run(carried(model, wanted.name), title, wanted, settings).all()
    except NotStaticError as reason:
        raise ModelError(f"{reason}; such a model can be kept whole, but not for a range of sizes") from reason


def dimension_of(text: Any) -> Dimension:
    """("batch", 1, 32) as a dimension. Raises UsageError for an empty range and for too many sizes."""
    name, lowest, highest = text
    if lowest < 1 or highest < lowest:
        raise UsageError(f"{name} in {lowest}..{highest} is no range of sizes: the lowest is 1 or more, and not above the highest")
    if highest - lowest + 1 > MOST_SIZES:
        raise UsageError(f"{name} in {lowest}..{highest} has {highest - lowest + 1} sizes; an artifact serves {MOST_SIZES} at most")
    return Dimension(str(name), int(lowest), int(highest))


def measured_sizes(dimension: Dimension) -> list[int]:
    """The ends of the range, and two between: small batches differ most from each other."""
    low, high = dimension.lowest, dimension.highest
    return sorted({low, min(3 * low, high), max(high // 2, low), high})


def nearest(size: int, measured: list[int]) -> int:
    """The measured size that is nearest by ratio."""
    return min(measured, key=lambda m: abs(log(m / size)))


class _Run:
    """One optimization over a range."""

    def __init__(self, model: Carried, title: str, dimension: Dimension, settings: Settings) -> None:
        from einnet.runtime.costs import CpuCost
        from einnet.runtime.ort import Session

        assert settings.threads is not None
        self.title, self.dimension, self.settings, self.started = title, dimension, settings, time.monotonic()
        self.model, self.family, self.pool = model, Family(model, dimension, settings), Pool()
        self.cost: CpuCost = CpuCost(settings.threads, constant=is_constant, cpu=settings.cpu)
        self.session: Session = Session(model.model.SerializeToString(), settings.threads, title=title)
        self.found = Found(Memory(self.cost.database, settings, self.cost.place()))
        self.guards: list[Guard] = []
        self.used: dict[str, Used] = {}

    def all(self) -> DynamicOptimization:
        """Search, measure, follow."""
        self.search()
        measured = measured_sizes(self.dimension)
        budget = MEASURING * self.settings.time_budget / len(measured)
        results: dict[int, tuple[Optimization, dict[Scope, Taken]]] = {}
        sizes: dict[int, AtOneSize] = {}
        for size in measured:
            sizes[size] = self.measured(size, budget, results)
        others = [size for size in self.dimension.sizes if size not in sizes]
        for n, size in enumerate(others):
            left = max(self.started + self.settings.time_budget - time.monotonic(), 0.0)
            follows = nearest(size, measured)
            sizes[size] = self.following(size, follows, *results[follows], time.monotonic() + left / (len(others) - n) / 2)
        return self.result(dict(sorted(sizes.items())))

    def search(self) -> None:
        """The representative size, unless there is none."""
        if self.family.problem is None:
            settings = replace(self.settings, time_budget=SEARCHING * self.settings.time_budget)
            search(self.family.program, settings, self.cost, Schedule(self.started, settings.time_budget), self.found)

    def at(self, member: Member, until: float) -> AtSize:
        """What was found, for a size."""
        known = {} if member.problem else self.found.choices
        return AtSize(known, Resize(self.family.representative, member.size), self.cost, until, self.cost.refuses)

    def measured(self, size: int, budget: float, results: dict[int, tuple[Optimization, dict[Scope, Taken]]]) -> AtOneSize:
        """Choose by measuring at this size, then prove, verify and time as for a model of this size alone."""
        from einnet.api.verify import Trial

        member, started = self.family.at(size), time.monotonic()
        settings = replace(self.settings, time_budget=budget, shapes=self.model.shapes(self.dimension, size, self.settings.shapes))
        trial = Trial(self.model.model, member.program, settings, self.inputs(member.program))
        at = self.at(member, started + budget / 2)
        schedule = Schedule(started, budget, trial.seconds)
        outcome = search(member.program, settings, self.cost, schedule, at)
        outcome.notes = [note for note in outcome.notes if "recalled" not in note]
        found = finish(self.model.model, outcome, settings, self.cost, schedule, trial)
        results[size] = found, taken(found.outcome, at)
        self.note(outcome, at, member)
        report = {**found.report, "model": self.title}
        stored = self.pool.add(found.executable.plan, found.executable.code)
        return AtOneSize(size, stored, found.report["verification"], None, report, member.proven, member.problem)

    def following(self, size: int, follows: int, measured: Optimization, chosen: Mapping[Scope, Taken], until: float) -> AtOneSize:
        """Do at this size what a measured size does."""
        from einnet.api.verify import compare_outputs

        tell(self.settings, f"{self.dimension.name} = {size}", self.started)
        member = self.family.at(size)
        at = self.at(member, until)
        outcome = followed(member.program, measured.outcome, chosen, at)
        executable = self.executable(outcome, measured, until)
        certify(outcome)
        inputs = self.inputs(member.program)
        verification = compare_outputs(executable(inputs), self.session(inputs), TOLERANCE[self.settings.allow])
        if not verification["passed"] and any(r.changed for r in outcome.results):
            outcome.keep_original()
            executable = self.executable(outcome, measured, until)
            verification = compare_outputs(executable(inputs), self.session(inputs), TOLERANCE[self.settings.allow])
        self.note(outcome, at, member)
        stored = self.pool.add(executable.plan, executable.code)
        return AtOneSize(size, stored, verification, follows, None, member.proven, member.problem)

    def executable(self, outcome: Outcome, measured: Optimization, until: float) -> Executable:
        """The program of an outcome; the model's own operators where a library refuses a kernel at this size."""
        from einnet.api.whole import whole_model
        from einnet.runtime.cpu.program import Executable, build_code

        def bound(plan: Plan) -> Executable:
            return Executable(plan, self.cost.threads, code=build_code(plan, self.cost.threads, self.cost.objects))

        plan = outcome.plan(original=outcome.whole)
        if outcome.whole:
            return bound(whole_model(self.model.model, plan, [a.name for a in self.session.inputs]) or plan)
        try:
            return bound(in_place(plan, partial(self.cost.like(plan, measure=True).measured, until=until)))
        except BackendError:
            outcome.keep_original()
            return bound(outcome.plan(original=True))

    def inputs(self, program: Program) -> dict[str, Array]:
        """Random inputs of a program."""
        from einnet.api.verify import random_values

        return random_values([(program.names.get(t.name, t.name), t.shape, t.dtype) for t in program.inputs], self.settings.seed)

    def note(self, outcome: Outcome, at: AtSize, member: Member) -> None:
        """Which derivations run at this size, and which could not."""
        self.guards += at.guards
        for r in outcome.results if not outcome.whole else ():
            form, source = r.candidate.form, at.source(r.candidate.form)
            if form.steps:
                written = source or form
                own = f"{member.size}:" if source is None else ""
                self.used.setdefault(own + einfile.write(written.derivation), Used(written, set(), source is None)).sizes.add(member.size)

    def result(self, sizes: dict[int, AtOneSize]) -> DynamicOptimization:
        """All of it."""
        texts = [certificate_text(used, self.family.representative, self.dimension) for used in self.used.values()]
        seconds = time.monotonic() - self.started
        report = build(self.title, self.dimension, self.settings, self.family, sizes, texts, self.guards, seconds)
        return DynamicOptimization(self.dimension, self.settings, sizes, texts, report, self.pool)
