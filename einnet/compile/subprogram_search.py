"""The search of one subprogram: its forms, and the choice among the candidates that are measured of them, in a share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Protocol

from einnet.compile.budget import Clock, Schedule
from einnet.compile.far import FarSights
from einnet.compile.garbage import collect
from einnet.compile.interrupts import Interrupts
from einnet.compile.turns import LEVELS, MEASURED, Level
from einnet.compile.workers import Crew, Found
from einnet.derivation.rules import RULES
from einnet.derivation.steps import rules_of
from einnet.expr.nodes import Scope
from einnet.instantiate.build import Builds
from einnet.instantiate.kernels import Kernel
from einnet.instantiate.registry import tables_for
from einnet.search.choosing.candidate import GAIN, OUT, Choice
from einnet.search.choosing.choose import LONG_S, choose, draw, first_tried
from einnet.search.forms import Form
from einnet.search.settings import Progress, Settings, explored
from einnet.search.space import Options, Space, Statistics, deepen
from einnet.search.time_shares import LEAST_SHARE_S, MAKING_SHARE, MEASURED_BETWEEN_SHARE, PROMISED_SHARE
from einnet.stages import stage

RESUMED_STATES = 1 << 13
"""States of searches that are kept for another turn, all together: a search that is not kept begins anew."""

FORCED_STATES = 40
"""Scopes that are visited for a subprogram whose candidate is drawn: any will do."""


class Cost(Protocol):
    """What the pipeline asks of a backend: seconds of kernels, estimated without running, and measured (see `search.choosing.candidate.Measure`)."""

    def estimates(self, kernels: Sequence[Kernel]) -> Sequence[float]: ...

    def measured(self, kernels: Sequence[Kernel], until: float) -> Sequence[float | None]: ...


@dataclass
class SubprogramSearch:
    """What every subprogram is searched with. Searches that time has ended, and kernels of their forms, are kept for another turn.

    `crew` looks ahead in a search, if there is one.
    """

    settings: Settings
    cost: Cost
    schedule: Schedule
    interrupts: Interrupts
    crew: Crew | None = None
    spaces: dict[str, Space] = field(default_factory=dict)
    built: dict[str, Builds] = field(default_factory=dict)
    """What subprograms that wait for another turn have as kernels."""

    @property
    def noise(self) -> float:
        """Share by which two measurements of one kernel differ."""
        return float(getattr(self.cost, "noise", GAIN))

    def ahead(self, expressions: Mapping[str, Scope]) -> dict[str, Found]:
        """The plain forms of some subprograms, of which the code of what will be measured first is compiled, by all processors where that is much:
        measuring wants them for itself. Empty where nothing is compiled."""
        code, now = self.code, self.schedule.clock.now()
        if code is None or now >= self.schedule.costed:
            return {}
        found: dict[str, Found] = {}
        wanted: list[Kernel] = []
        for key, expression in expressions.items():
            found[key] = self.deepened(expression, options(self.settings, 0.0, self.schedule.clock), lambda statistics: None)
            builds = self.built.setdefault(expression.key, Builds(OUT))
            wanted += first_tried(found[key][0], self.cost.estimates, builds, getattr(self.cost, "at_least", None)).kernels
        with stage("building programs"):
            code(wanted, lambda: self.schedule.hurry("compile its kernels"))
        return found

    @property
    def code(self) -> Callable[[Sequence[Kernel], Callable[[], None]], None] | None:
        """Compiles generated kernels, where these are compiled one by one; None also where nothing is measured."""
        code: Callable[[Sequence[Kernel], Callable[[], None]], None] | None = getattr(self.cost, "secure", None)
        return code if self.settings.force is None and not self.interrupts.requested else None

    def chosen(
        self, expression: Scope, share: float, place: tuple[int, int], known: Found | None = None, apart: float = inf,
        level: Level = LEVELS[-1], measuring: float = inf, visited: int = 0, beaten_s: float = inf, weight: float = 0.0,
    ) -> Choice:  # fmt: skip
        """The choice for one subprogram, made in `share` seconds; with none, only the original is costed. `known`: what was found already.

        For subprograms together that take `apart` seconds one by one: only forms in which they have something in common. A turn goes as far as
        its `level`, measures for `measuring` seconds what may take less than `beaten_s`, and visits states beyond those `visited` before; `weight` is
        the subprogram's share of what is promised.
        """
        begin, clock = time.monotonic(), self.schedule.clock

        def report(statistics: Statistics) -> None:
            if self.interrupts.requested:
                statistics.stopped = "patience (Ctrl-C)"
            rate = statistics.states / max(time.monotonic() - begin, 1e-9)
            self.tell(Progress("search", *place, statistics.states, rate))

        report(Statistics())
        forms, statistics = known or self.deepened(expression, options(self.settings, share * clock.exploring, clock, level.states), report)
        clock.spend(max(statistics.states - visited, 0) / (self.crew.size if known and self.crew else 1))
        deeper = statistics.stopped == "states" and level is not LEVELS[-1]
        if clock.certain < 0 and deeper:  # what a deeper turn finds has to be measured, too
            measuring = min(measuring, max(MEASURED_BETWEEN_SHARE * (share - (time.monotonic() - begin)), LEAST_SHARE_S))
        until, least_s = self.measuring(begin, share, measuring)
        promised_s = PROMISED_SHARE * weight * max(share - (time.monotonic() - begin), 0.0)
        forms = forms if apart == inf else [f for f in forms if _shares(f)]
        most = level.kernels if self.settings.derive and share > 0 else 0
        if self.settings.force is not None and share > 0:
            choice = self.drawn(expression, forms)
        else:
            closely, at_least, within = (getattr(self.cost, name, None) for name in ("closely", "at_least", "within"))
            estimates, measured = self.cost.estimates, self.cost.measured
            known_builds = self.built.setdefault(expression.key, Builds(OUT)) if apart == inf else None
            choice = choose(
                expression, forms, estimates, measured, most=most, until=until, least_s=least_s, known_s=apart, closely=closely, known=known_builds,
                at_least=at_least, noise=self.noise, within=within, beaten_s=beaten_s, promised_s=promised_s,
                long_s=LONG_S if deeper else inf,
            )  # fmt: skip
        choice.seconds, choice.depth = time.monotonic() - begin, options(self.settings, share, clock).max_depth
        self.note(choice, statistics, level)
        collect()
        rate = choice.states / max(choice.seconds, 1e-9)
        self.tell(Progress("search", place[0] + 1, place[1], choice.states, rate, 1e3 * choice.best.cost, 1e3 * choice.original.cost))
        return choice

    def note(self, choice: Choice, statistics: Statistics, level: Level) -> None:
        """Say of a choice how far was explored before it, what ended that, and whether a longer search would have gone on."""
        choice.states, choice.stopped_at = statistics.states, statistics.stopped_at
        cut = bool(statistics.stopped) and statistics.states < Options.states
        choice.hurried = self.settings.force is None and (choice.hurried or cut or (choice.unmeasured and level.kernels < MEASURED))
        if statistics.stopped:
            reason = self.schedule.clock.stops if cut and statistics.stopped == "states" else statistics.stopped
            choice.notes.append(f"search stopped by the budget of {reason}")

    def deepened(self, expression: Scope, chosen: Options, report: Callable[[Statistics], None]) -> Found:
        """What is found within the options, from where the turn before has ended."""
        sights = FarSights(chosen, self.crew) if self.crew else None
        space = self.spaces.pop(expression.key, None) or Space(chosen, report, sights=sights)
        with stage("searching"):
            forms, statistics = deepen(expression, chosen, report, space)
        if statistics.stopped in ("states", "time") and sum(s.statistics.states for s in self.spaces.values()) + statistics.states <= RESUMED_STATES:
            self.spaces[expression.key] = space
        return forms, statistics

    def measuring(self, begin: float, share: float, most: float) -> tuple[float, float]:
        """Until when is measured what was found in a share of the time that began then, and how many seconds at least."""
        if self.interrupts.requested:
            return time.monotonic(), 0.0
        if not share:
            return self.schedule.clock.until(self.schedule.costed), 0.0
        if most < inf:
            left = min(begin + share - time.monotonic(), most)
            return self.schedule.clock.until(time.monotonic() + left), (1 - MAKING_SHARE) * max(left, 0.0)
        return self.schedule.clock.until(begin + share), share / 3

    def let_go(self) -> None:
        """Keep nothing for another turn."""
        self.spaces.clear()
        self.built.clear()

    def drawn(self, expression: Scope, forms: Sequence[Form]) -> Choice:
        """A candidate by the seed that forces one: the same for the same expression, whatever stands around it."""
        rng = Random(f"{self.settings.force} {expression.key}")
        runs = getattr(self.cost, "runs", None)
        return draw(expression, forms, self.cost.estimates, runs or (lambda kernel: True), rng)

    def tell(self, progress: Progress) -> None:
        """Report progress with the time that is left."""
        if self.settings.progress:
            self.settings.progress(replace(progress, left=max(self.schedule.end - self.schedule.clock.now(), 0.0)))


def _shares(form: Form) -> bool:
    """The form is the plain one, or a rule that looks at several scopes made it."""
    return form.unchanged or not rules_of(form.steps).isdisjoint(r.name for r in RULES if r.family == "inter")


def options(settings: Settings, share: float, clock: Clock, most: float = inf) -> Options:
    """Search options for one subprogram with `share` seconds of the clock, and `most` states; with none, only the model's own operators."""
    explore = settings.derive and share > 0
    deadline, states = clock.limits(share) if explore else (inf, inf)
    states = min(states, most)
    if settings.force is not None:
        states = min(states, FORCED_STATES)
    return Options(
        max_depth=settings.max_depth if explore else 0,
        rules=(settings.rules or explored(settings.backend)) if explore else (),  # to join operators is to derive something
        tables=tables_for("onnx" if settings.target == "onnx" else settings.backend, settings.finite),
        converge=settings.converge and explore,
        fingerprint=settings.fingerprint,
        kinds=settings.kinds,
        deadline=deadline,
        states=int(min(states, Options.states)),
        intensity=Options.intensity if settings.force is None else 0.0,
        certain=clock.certain if explore else -1,
    )
