"""`einnet.optimize(..., dynamic=("batch", 1, 32))`: one artifact for a range of sizes of a named dimension.

The program is searched at one size. Its derivations are taken to every size of the range by exchanging the size, and the checker proves each, for
every size or there. At a few sizes the candidates are measured, so that different ones may win; a size between runs what the nearest of them runs.
Every size is compared with ONNX Runtime. Plans of all sizes are made now, so that running needs no compiler; their weights are one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.compile.budget import Schedule
from einnet.compile.history import Memory
from einnet.compile.memory_limit import restrain
from einnet.compile.pipeline import compiled
from einnet.compile.program_search import search
from einnet.compile.ranges.family import Family, Member
from einnet.compile.ranges.follow import AtSize, Found, Guard, Taken, followed, name, taken
from einnet.compile.ranges.found import AtOneSize, Used
from einnet.compile.ranges.neighbours import Neighbours
from einnet.compile.ranges.range_report import build, certificate_text
from einnet.compile.ranges.served import Served
from einnet.compile.ranges.sizes import Effort, dimension_of, measured_sizes, nearest
from einnet.compile.run import Run
from einnet.compile.target import Optimization, Target
from einnet.compile.targets.cpu.target import CpuTarget
from einnet.compile.targets.registry import target_of
from einnet.compile.targets.whole.one_kernel import whole_model
from einnet.derivation import einfile
from einnet.derivation.ranged import RangedFile
from einnet.errors import BackendError, ModelError, NotStaticError, UsageError
from einnet.evidence.certificate import certify
from einnet.evidence.comparison.draws import random_values, where_defined
from einnet.evidence.comparison.right import References
from einnet.evidence.comparison.verdicts import refuse_failed
from einnet.evidence.comparison.verify import compare_outputs
from einnet.evidence.report.plain import plain
from einnet.evidence.report.ranged_schema import RangedReport
from einnet.evidence.sound import keep_proven
from einnet.expr.nodes import Scope
from einnet.expr.resize import Resize
from einnet.graph.dimension import Dimension
from einnet.graph.onnx.dynamic import Carried, carried
from einnet.graph.onnx.rounded_factors import rounds_factors
from einnet.graph.program import Program
from einnet.instantiate.kernels import EOperator, Plan
from einnet.records import as_json, changed
from einnet.runtime.cpu.program import Executable, build_code
from einnet.runtime.pool import Bound, Pool, save
from einnet.search.copy_elimination import in_place
from einnet.search.outcome import Outcome
from einnet.search.plan import Evaluated
from einnet.search.settings import Settings, tell
from einnet.search.time_shares import RANGE_CHOOSING_SHARE, RANGE_FOLLOWING_SHARE, RANGE_LEAST_S, RANGE_SEARCH_SHARE

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class DynamicOptimization(Served):
    """What `optimize` found for a range of sizes. Call it as an Optimization is called; `save` writes one artifact for all sizes."""

    dimension: Dimension
    settings: Settings
    found: dict[int, AtOneSize]
    derivations: list[RangedFile]
    record: RangedReport
    pool: Pool

    def __post_init__(self) -> None:
        self.name, self.lowest, self.highest = self.dimension
        self._bound = Bound[int](lambda size: self.pool.executable(self.found[size].stored, self._threads))

    @property
    def _threads(self) -> int:
        assert self.settings.threads is not None
        return self.settings.threads

    @cached_property
    def report(self) -> dict[str, Any]:
        """What was decided and measured, as `--json` writes it."""
        found: dict[str, Any] = as_json(self.record)
        return found

    def __repr__(self) -> str:
        return f"<{self.record.model}, {self.dimension}>"

    def plan(self, size: int) -> Plan:
        """What runs at one size."""
        return self.found[size].stored.plan

    def executable(self, size: int) -> Executable:
        """The program for one size, bound to memory."""
        return self._bound.get(size)

    def save(self, path: str | Path) -> Path:
        """Write the artifact, whole or not at all.

        Raises ArtifactError where the path cannot be written, and for a program that failed its verification.
        """
        refuse_failed(path, *(size.verification for size in self.record.sizes.values()))
        members = {size: found.stored for size, found in self.found.items()}
        save(Path(path), self.pool, members, plain({"report": self.record}), [str(d) for d in self.derivations], self._threads)
        return Path(path)


def optimize_dynamic(model: Any, dimension: Any, settings: Settings | None = None, /, **arguments: Any) -> DynamicOptimization:
    """What `einnet.optimize` gives with these settings for a range of sizes. Raises what `optimize_range` does."""
    return optimize_range(model, dimension, target_of(replace(settings, **arguments) if settings else Settings(**arguments)))


def optimize_range(model: Any, dimension: Any, target: Target[Any]) -> DynamicOptimization:
    """Optimize an ONNX model for a range of sizes of a dimension, "batch=1..32" or ("batch", 1, 32).

    The dimension is one that the model names or, for a static model, `batch`: the leading dimension of all inputs.

    Raises UsageError for a wrong range or argument, ModelError for a model without this dimension or one that cannot be read at a size.
    """
    if target.settings.strict_nan:
        raise UsageError("strict_nan is about a program for one size: it does not go with a range of sizes")
    if not isinstance(target, CpuTarget):
        raise UsageError("a range of sizes is served by programs for this CPU only: backend cpu, target native")
    wanted = dimension_of(dimension)
    title = str(model) if isinstance(model, (str, Path)) else model.graph.name or "model"
    tell(target.settings, "read the model", time.monotonic())
    try:
        return _Run(carried(model, wanted.name), title, wanted, target).all()
    except NotStaticError as reason:
        raise ModelError(f"{reason}; such a model can be kept whole, but not for a range of sizes") from reason


class _Run:
    """One optimization over a range."""

    def __init__(self, model: Carried, title: str, dimension: Dimension, target: CpuTarget) -> None:
        settings = target.settings
        assert settings.threads is not None
        self.title, self.dimension, self.settings, self.started = title, dimension, settings, time.monotonic()
        self.model, self.family, self.pool = model, Family(model, dimension, settings), Pool()
        self.target, self.cost = target, target.cost
        self.references = References(model.model.SerializeToString(), settings.threads, title, rounds_factors(model.model))
        self.found = Found(Memory(self.cost.database, settings, self.cost.place()))
        self.neighbours, self.evaluated = Neighbours(self.cost), Evaluated()
        self.guards: list[Guard] = []
        self.used: dict[str, Used] = {}
        self.seconds: dict[str, float] = {}
        self.interrupted = False

    def left(self) -> float:
        """Seconds until the budget is over, none once Ctrl-C was pressed in a search: what every size needs at least is done all the same."""
        return 0.0 if self.interrupted else max(self.started + self.settings.time_budget - time.monotonic(), 0.0)

    def all(self) -> DynamicOptimization:
        """Search, measure, follow. Small sizes are measured first: they cost least, and tell the larger ones where to look."""
        effort = self.search()
        self.passed("search")
        chosen = measured_sizes(self.dimension)
        others = [size for size in self.dimension.sizes if size not in chosen]
        following = min(sum(map(effort.following, others)), RANGE_FOLLOWING_SHARE * self.left())
        results: dict[int, tuple[Optimization, dict[Scope, Taken]]] = {}
        sizes: dict[int, AtOneSize] = {}
        for n, size in enumerate(chosen):
            share = effort.measuring(size) / sum(map(effort.measuring, chosen[n:]))
            sizes[size] = self.measured(size, max(share * (self.left() - following), RANGE_LEAST_S), results)
        self.passed("measured sizes")
        for n, size in enumerate(others):
            follows = nearest(size, chosen)
            sizes[size] = self.following(size, follows, *results[follows], time.monotonic() + self.left() / (len(others) - n) / 2)
        self.passed("other sizes")
        return self.result(dict(sorted(sizes.items())))

    def passed(self, part: str) -> None:
        """A part of the run has ended."""
        self.seconds[part] = time.monotonic() - self.started - sum(self.seconds.values())

    def search(self) -> Effort:
        """The representative size, unless there is none; what the others will take."""
        representative, reading_s = self.family.representative, self.family.reading_s
        if self.family.problem is not None:
            return Effort(reading_s, 0.0, 0.0, representative, len(self.family.program.nodes))
        settings = replace(self.settings, time_budget=RANGE_SEARCH_SHARE * self.settings.time_budget)
        outcome = search(self.family.program, settings, self.cost, Schedule(self.started, settings.time_budget), self.found)
        self.interrupted = outcome.interrupted
        for choice in self.found.choices.values():
            seen = [((choice.expression, name(c.form)), c) for c in choice.candidates]
            self.neighbours.note(representative, seen, choice.best.cost)
        run_s = sum(r.choice.original.cost for r in outcome.results if r.choice.original.cost < inf)
        compiling_s = self.cost.objects.anew([k for k in outcome.plan().kernels if isinstance(k, EOperator)])
        return Effort(reading_s, compiling_s, run_s, representative, len(self.found.choices))

    def at(self, member: Member, until: float) -> AtSize:
        """What was found, for a size."""
        known = {} if member.problem else self.found.choices
        return AtSize(known, Resize(self.family.representative, member.size), self.cost, until, self.cost.refuses, self.neighbours, self.evaluated)

    def measured(self, size: int, budget: float, results: dict[int, tuple[Optimization, dict[Scope, Taken]]]) -> AtOneSize:
        """Choose by measuring at this size, then prove, verify and time as for a model of this size alone."""
        tell(self.settings, f"measure {self.dimension.name} = {size}", self.started)
        member, started = self.family.at(size), time.monotonic()
        settings = replace(self.settings, time_budget=budget, shapes=self.model.shapes(self.dimension, size, self.settings.shapes))
        at = self.at(member, started + RANGE_CHOOSING_SHARE * budget)
        found = compiled(Run(self.model.model, member.program, settings, started), self.target.like(settings), at)
        outcome, executable = found.outcome, found.executable
        assert isinstance(executable, Executable)
        self.interrupted |= outcome.interrupted
        results[size] = found, taken(found.outcome, at)
        self.note(outcome, at, member)
        report = changed(found.timed, model=self.title)
        stored = self.pool.add(executable.plan, executable.code)
        return AtOneSize(size, stored, report.verification, None, report, member.proven, member.problem)

    def following(self, size: int, follows: int, measured: Optimization, chosen: Mapping[Scope, Taken], until: float) -> AtOneSize:
        """Do at this size what a measured size does."""
        tell(self.settings, f"{self.dimension.name} = {size}", self.started)
        member = self.family.at(size)
        at = self.at(member, until)
        outcome = followed(member.program, measured.outcome, chosen, at)
        outcome = keep_proven(outcome, self.settings, at.proven)
        outcome, executable = self.executable(outcome, until)
        certify(outcome, at.proven)
        inputs, expected = where_defined(self.references.of(executable.plan), self.inputs(member.program))
        verification = compare_outputs(executable(inputs), expected, self.settings.tolerance)
        if not verification.passed and outcome.changed:
            outcome, executable = self.executable(outcome.original(), until)
            verification = compare_outputs(executable(inputs), self.references.of(executable.plan)(inputs), self.settings.tolerance)
        self.note(outcome, at, member)
        stored = self.pool.add(executable.plan, executable.code)
        return AtOneSize(size, stored, verification, follows, None, member.proven, member.problem)

    def executable(self, outcome: Outcome, until: float) -> tuple[Outcome, Executable]:
        """The program of an outcome; the model's own operators where a library refuses a kernel at this size, or memory is limited to less.

        Raises BackendError where these take more than the limit, too.
        """

        def bound(plan: Plan, strict: bool = False) -> Executable:
            return Executable(plan, self.cost.threads, code=build_code(plan, self.cost.threads, self.cost.objects), strict=strict)

        if outcome.whole:
            plan = outcome.plan(original=True)
            return outcome, bound(whole_model(self.model.model, plan, [a.name for a in self.references.session.inputs]) or plan)
        limit = inf if self.settings.memory_limit is None else self.settings.memory_limit
        if limit < inf:
            outcome = restrain(outcome, int(limit))
        plan = outcome.plan()
        with suppress(BackendError):
            program = bound(in_place(plan, partial(self.cost.like(plan, measure=True).measured, until=until)), strict=True)
            if program.nbytes <= limit:
                return outcome, program
        outcome = outcome.original()
        program = bound(outcome.plan(original=True))
        if program.nbytes > limit:
            raise BackendError(f"{outcome.program.title}: running it takes {program.nbytes / 1e6:.3g} MB, of which {limit / 1e6:.3g} MB may be taken")
        return outcome, program

    def inputs(self, program: Program) -> dict[str, Array]:
        """Random inputs of a program."""
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
        self.passed("writing")
        report = build(self.title, self.dimension, self.settings, self.family, sizes, texts, self.guards, self.seconds)
        return DynamicOptimization(self.dimension, self.settings, sizes, texts, report, self.pool)
