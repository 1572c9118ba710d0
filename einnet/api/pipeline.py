"""From a program to a plan: subprograms searched, costed and chosen, one after the other, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from einnet.api.interrupt import Interrupts, deferred_interrupts
from einnet.api.settings import Progress, Settings
from einnet.expr.nodes import Scope, tensors
from einnet.graph.program import Opaque, Program
from einnet.graph.rewrite import exchange_in
from einnet.graph.split import Subprogram, subprograms
from einnet.instantiate.kernels import Kernel, Plan
from einnet.search.candidates import Candidate, Choice, choose
from einnet.search.plan import Assembly
from einnet.search.space import EXPLORED, Options, Statistics, deepen

SEARCH_SHARE = 0.6
"""Share of the time budget that exploring and measuring may use; compiling, checking and timing take the rest."""

LEAST_SHARE = 0.5
"""Seconds that a cheap subprogram gets at least."""

MEASURED = 32
"""Candidates of a subprogram that are measured beside the original; none where time is over."""


class Cost(Protocol):
    """What the pipeline asks of a backend: seconds of kernels, estimated without running and measured."""

    def estimates(self, kernels: Sequence[Kernel]) -> Sequence[float]: ...

    def costs(self, kernels: Sequence[Kernel]) -> Sequence[float]: ...


@dataclass
class Result:
    """One subprogram of the program and what was chosen for it (shared with every subprogram of the same key)."""

    subprogram: Subprogram
    names: Mapping[str, str]
    choice: Choice
    use_original: bool = False

    @property
    def candidate(self) -> Candidate:
        return self.choice.original if self.use_original else self.choice.best

    @property
    def changed(self) -> bool:
        """Something else than the model's own operators runs."""
        return self.candidate is not self.choice.original


@dataclass
class Outcome:
    """Everything the search decided."""

    program: Program
    results: list[Result]
    states: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    whole: bool = False
    """ONNX Runtime runs the whole model: nothing that was derived was faster."""

    def plan(self, original: bool = False) -> Plan:
        """The plan of the chosen candidates, or of the model's own operators."""
        assembly = Assembly(self.program)
        by_output = {r.subprogram.output.name: r for r in self.results}
        for node in self.program.nodes:
            if isinstance(node, Opaque):
                assembly.opaque(node)
            elif node.output.name in by_output:
                r = by_output[node.output.name]
                assembly.add((r.choice.original if original else r.candidate).build, r.names, node.output.name)
        return assembly.finish()


def search(program: Program, settings: Settings, cost: Cost, started: float) -> Outcome:
    """Search every distinct subprogram once and choose a candidate for each.

    Ctrl-C ends exploring: what was found until then is used, and what remains is taken as the model has it. A second one raises.
    """
    with deferred_interrupts() as interrupts:
        return _search(program, settings, cost, started, interrupts)


def _search(program: Program, settings: Settings, cost: Cost, started: float, interrupts: Interrupts) -> Outcome:
    """First the model's own operators are costed, then the subprograms are explored, the most expensive first, each with its share of the time."""
    parts = subprograms(program)
    expressions = {p.key: canonical(p.expression) for p in parts}
    chosen = {key: _one(e, settings, cost, 0.0, (n, len(expressions)), started, interrupts) for n, (key, e) in enumerate(expressions.items())}
    weight = {key: choice.original.measured for key, choice in chosen.items() if choice.original.measured < inf}
    end = started + SEARCH_SHARE * settings.time_budget
    for done, key in enumerate(sorted(weight, key=lambda k: -weight[k]) if settings.derive else ()):
        left = end - time.monotonic()
        if left <= 0 or interrupts.requested:
            break
        share = max(left * weight[key] / sum(sorted(weight.values())[: len(weight) - done]), min(left, LEAST_SHARE))
        found = _one(expressions[key], settings, cost, share, (done, len(weight)), started, interrupts)
        found.seconds += chosen[key].seconds
        chosen[key] = found
    results = [Result(p, dict(zip(tensors(expressions[p.key]), p.inputs)), chosen[p.key]) for p in parts]
    notes = ["interrupted: what was left to explore runs as the model has it"] if interrupts.requested else []
    states = sum(choice.states for choice in chosen.values())
    return Outcome(program, results, states, time.monotonic() - started, notes, interrupts.requested)


def canonical(expression: Scope) -> Scope:
    """The expression with its tensors renamed by first occurrence: w0, w1... for weights, t0, t1... for the rest (`is_constant` tells them)."""
    return exchange_in(expression, {t.name: replace(t, name=f"{'w' if t.weight else 't'}{n}") for n, t in enumerate(tensors(expression).values())})


def is_constant(buffer: str) -> bool:
    """A subprogram's buffer of that name holds weights: a weight tensor of `canonical`, or what `build` computes from such."""
    return buffer.startswith("w")


def options(settings: Settings, share: float) -> Options:
    """Search options for one subprogram with `share` seconds; with none, only the model's own operators."""
    explore = settings.derive and share > 0
    return Options(
        max_depth=settings.max_depth if explore else 0,
        rules=settings.rules or EXPLORED,
        converge=settings.converge and explore,
        fingerprint=settings.fingerprint,
        kinds=settings.kinds,
        deadline=time.monotonic() + share if explore else inf,
    )


def _one(
    expression: Scope, settings: Settings, cost: Cost, share: float, place: tuple[int, int], started: float, interrupts: Interrupts
) -> Choice:  # fmt: skip
    begin = time.monotonic()

    def report(statistics: Statistics) -> None:
        if interrupts.requested:
            statistics.stopped = "patience (Ctrl-C)"
        if settings.progress:
            used = max(time.monotonic() - begin, 1e-9)
            left = max(started + settings.time_budget - time.monotonic(), 0.0)
            settings.progress(Progress("search", place[0], place[1], statistics.states, statistics.states / used, left=left))

    report(Statistics())
    forms, statistics = deepen(expression, options(settings, share / 3), report)
    most = MEASURED if settings.derive and share > 0 and not interrupts.requested else 0
    choice = choose(expression, forms, cost.estimates, cost.costs, most=most, until=max(begin + share, time.monotonic() + share / 3))
    choice.states, choice.seconds = statistics.states, time.monotonic() - begin
    if statistics.stopped:
        choice.notes.append(f"search stopped by the budget of {statistics.stopped}")
    if settings.progress:
        left = max(started + settings.time_budget - time.monotonic(), 0.0)
        rate, best, original = choice.states / max(choice.seconds, 1e-9), 1e3 * choice.best.measured, 1e3 * choice.original.measured
        settings.progress(Progress("search", place[0] + 1, place[1], choice.states, rate, best, original, left))
    return choice


