"""From a program to a plan: subprograms searched, costed and chosen, one after the other, within a budget of time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Protocol

from einnet.compile.budget import Clock, Schedule
from einnet.compile.bundling import apart, attempt, attempts_of
from einnet.compile.early_proofs import EarlyProofs
from einnet.compile.far import FarSights
from einnet.compile.garbage import collect, collection_on_demand
from einnet.compile.interrupts import Interrupts, deferred_interrupts
from einnet.compile.turns import LEVELS, MEASURED, Level, Turns, beginning, keeping, saving, taking_over
from einnet.compile.workers import Crew, Found, crew, solve_all
from einnet.derivation.rules import RULES
from einnet.derivation.steps import rules_of
from einnet.evidence.comparison.finite import keep_strict
from einnet.evidence.sound import keep_proven, unproven
from einnet.expr.nodes import Scope
from einnet.graph.bundle import Bundle
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.instantiate.build import Builds
from einnet.instantiate.kernels import Kernel
from einnet.instantiate.registry import tables_for
from einnet.search.choosing.candidate import GAIN, OUT, Candidate, Choice, Estimate
from einnet.search.choosing.choose import LONG_S, choose, draw, first_tried
from einnet.search.forms import Form
from einnet.search.outcome import Outcome, Result, canonical, result, taking
from einnet.search.remote import task
from einnet.search.settings import Progress, Settings, explored
from einnet.search.space import Options, Space, Statistics, deepen
from einnet.search.time_shares import (
    BUNDLING_SHARE,
    CERTAIN_SHARE_S,
    FINISHING_PART_S,
    FINISHING_S,
    FIRST_TURNS_SHARE,
    LEAST_EXPLORING_S,
    LEAST_KEEPING_S,
    LEAST_SHARE_S,
    MAKING_SHARE,
    MEASURED_BETWEEN_SHARE,
    MOST_BUNDLE_SHARES,
    PROMISED_SHARE,
)
from einnet.search.work import flops
from einnet.stages import stage

RESUMED_STATES = 1 << 13
"""States of searches that are kept for another turn, all together: a search that is not kept begins anew."""

FORCED_STATES = 40
"""Scopes that are visited for a subprogram whose candidate is drawn: any will do."""

CODE_AT_ONCE = 32
"""Subprograms whose code is compiled before the first of them is measured: the last ones may have no time left for either."""

INTERRUPTED = "interrupted: what was left to explore runs as the model has it"


class Cost(Protocol):
    """What the pipeline asks of a backend: seconds of kernels, estimated without running, and measured (see `search.choosing.candidate.Measure`)."""

    def estimates(self, kernels: Sequence[Kernel]) -> Sequence[float]: ...

    def measured(self, kernels: Sequence[Kernel], until: float) -> Sequence[float | None]: ...


class Known(Protocol):
    """What need not be searched (see `compile.history.Memory`). What `earlier` runs have found is told of by a note."""

    earlier: bool

    def recall(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]: ...

    def narrower(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]: ...

    def remember(self, choices: Sequence[Choice]) -> None: ...


def search(
    program: Program, settings: Settings, cost: Cost, schedule: Schedule, known: Known | None = None, *, proven: bool = True
) -> Outcome:  # fmt: skip
    """Search every distinct subprogram once and choose a candidate for each; what is `known` is not searched. What will not run need not be `proven`.

    Ctrl-C ends exploring: what was found until then is used, and what remains is taken as the model has it. A second one raises.
    """
    with deferred_interrupts() as interrupts, crew(settings.workers, settings.scheduler) as others, collection_on_demand():
        return _Search(program, settings, cost, schedule, interrupts, known, others, proven=proven).outcome()


@dataclass
class _Search:
    """First the model's own operators are costed, then the subprograms are explored, the most expensive first, each with its share of the time."""

    program: Program
    settings: Settings
    cost: Cost
    schedule: Schedule
    interrupts: Interrupts
    known: Known | None = None
    crew: Crew | None = None
    proven: bool = True
    spaces: dict[str, Space] = field(default_factory=dict)
    built: dict[str, Builds] = field(default_factory=dict)
    """What subprograms that wait for another turn have as kernels."""

    @property
    def noise(self) -> float:
        """Share by which two measurements of one kernel differ."""
        return float(getattr(self.cost, "noise", GAIN))

    def outcome(self) -> Outcome:
        begin = time.monotonic()
        with stage("splitting"):
            parts = subprograms(self.program)
            expressions = {p.key: canonical(p.expression) for p in parts}
        uses = Counter(p.key for p in parts)
        recalled = self.known.recall(expressions, self.cost.estimates) if self.known else {}
        chosen = self.costed(left := {key: e for key, e in expressions.items() if key not in recalled})
        seconds, others = _seconds(chosen, uses), _seconds(recalled, uses)
        end = self.schedule.searched(self.program, len(expressions), sum(seconds.values()) + sum(others.values()))
        end = self.secure([*chosen.values(), *recalled.values()], end)
        narrower = self.narrower(left)
        chosen = {key: beginning(own, narrower.get(key)) for key, own in chosen.items()}
        if self.settings.derive:
            kept = BUNDLING_SHARE * (end - self.schedule.clock.now()) if len(parts) > 1 else 0.0
            self.explore(expressions, chosen, self.savings(expressions, seconds, uses), end - kept)
        self.remember(*chosen.values())
        chosen |= recalled
        states = sum(choice.states for choice in chosen.values())
        results = tuple(result(p, chosen[p.key]) for p in parts)
        notes = self.notes(len(recalled), len(expressions))
        outcome = Outcome(self.program, results, states, notes=notes, interrupted=self.interrupts.requested)
        if self.settings.derive and "join" in (self.settings.rules or explored(self.settings.backend)):
            outcome = self.bundled(outcome, end, searching=len(recalled) < len(expressions))
        if self.proven:
            with stage("proving"):
                outcome = keep_proven(outcome, self.settings, late=self.proofs_end(), hurry=lambda: self.schedule.hurry("prove the subprograms"))
        outcome = keep_strict(outcome, self.kept_until()) if self.settings.strict_nan else outcome
        return replace(outcome, seconds=time.monotonic() - begin)

    def proofs_end(self) -> Callable[[], bool]:
        """Tells when what is not proven yet is given up; what is forced has all the time that it takes."""
        until, begin = self.kept_until(), time.process_time()
        return lambda: time.monotonic() >= until and time.process_time() - begin >= LEAST_KEEPING_S

    def kept_until(self) -> float:
        """A time.monotonic() value: what is not known to hold by then is given up."""
        clock = self.schedule.clock
        return clock.until(self.schedule.kept(clock.now())) if self.settings.force is None else inf

    def narrower(self, expressions: Mapping[str, Scope]) -> dict[str, Choice]:
        """What is known from runs that were allowed less, from which a search goes on; it may take less here, in other arithmetics."""
        found = self.known.narrower(expressions, self.cost.estimates) if self.known else {}
        for choice in found.values() if self.settings.max_error is not None else ():
            repriced(choice.best, self.cost.measured(choice.best.kernels, self.schedule.clock.until(self.schedule.costed)))
        return found

    def notes(self, recalled: int, expressions: int) -> tuple[str, ...]:
        """What a user should know of how so many expressions were searched, of which so many were recalled."""
        notes = [INTERRUPTED] if self.interrupts.requested else []
        if recalled and self.known and self.known.earlier:
            notes.append(f"{recalled} of {expressions} subprograms recalled from an earlier search")
        return tuple(notes)

    def bundled(self, outcome: Outcome, end: float, searching: bool) -> Outcome:
        """The outcome with subprograms computed together where that is faster; without `searching`, as far as an earlier run has got."""
        with stage("splitting"):
            groups = attempts_of(outcome.program, outcome.results)
        joint = {alike[0].joint.key: canonical(alike[0].joint.expression) for alike in groups}
        choices = self.known.recall(joint, self.cost.estimates) if self.known else {}
        recalled, narrower = len(choices), self.narrower({key: e for key, e in joint.items() if key not in choices})
        for n, alike in enumerate(groups):
            current = _by_output(outcome)
            alike = [b for b in alike if b.names <= current.keys()]
            left, key = end - self.schedule.clock.now(), alike[0].joint.key if alike else ""
            if searching and key and key not in choices and left > 0 and not self.interrupts.requested:
                share = left / min(len(groups) - n, MOST_BUNDLE_SHARES)
                choices[key] = beginning(self.one(joint[key], share, (n, len(groups)), apart=apart(alike[0], current)), narrower.get(key))
                outcome = replace(outcome, states=outcome.states + choices[key].states)
            if key in choices or key in narrower:
                outcome = self.together(outcome, alike, choices[key] if key in choices else narrower[key], end)
        self.remember(*list(choices.values())[recalled:])
        return outcome

    def together(self, outcome: Outcome, alike: Sequence[Bundle], choice: Choice, end: float) -> Outcome:
        """The outcome with each of these bundles, of which one is the other with other weights, computed together by a choice where that pays.

        What one bundle has taken is no longer there for the next. A choice that is forced need not pay.
        """
        for b in alike:
            current = _by_output(outcome)
            found = attempt(b, choice, current, self.cost.measured, self.schedule.clock.until(end)) if b.names <= current.keys() else None
            if found and (found.pays or (self.settings.force is not None and not found.choice.best.original)):
                outcome = outcome.together(b, found.choice)
        return outcome

    def remember(self, *choices: Choice) -> None:
        """Store choices for later runs; not when interrupted, as one may have been cut short."""
        if self.known and not self.interrupts.requested:
            self.known.remember(choices)

    def costed(self, expressions: Mapping[str, Scope]) -> dict[str, Choice]:
        """The model's own operators, those that compute most first: time may not suffice to measure all."""
        order = sorted(expressions, key=lambda key: -flops(expressions[key]))
        found: dict[str, Choice] = {}
        for n, key in enumerate(order):
            self.schedule.hurry(f"look at {len(order)} distinct subprograms")
            if n % CODE_AT_ONCE == 0:
                self.tell(Progress("search", n, len(order)))
                plain = self.ahead({k: expressions[k] for k in order[n : n + CODE_AT_ONCE]})
            found[key] = self.one(expressions[key], 0.0, (n, len(order)), plain.get(key))
        return found

    def ahead(self, expressions: Mapping[str, Scope]) -> dict[str, Found]:
        """The plain forms of some subprograms, of which the code of what will be measured first is compiled, by all processors where that is much:
        measuring wants them for itself. None where nothing is compiled."""
        code, now = self.secure_code, self.schedule.clock.now()
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
    def secure_code(self) -> Callable[[Sequence[Kernel], Callable[[], None]], None] | None:
        """Compiles generated kernels, where these are compiled one by one; None also where nothing is measured."""
        code: Callable[[Sequence[Kernel], Callable[[], None]], None] | None = getattr(self.cost, "secure", None)
        return code if self.settings.force is None and not self.interrupts.requested else None

    def secure(self, choices: Sequence[Choice], end: float) -> float:
        """Finish of the model's own operators what takes time before anything is explored, in as far as it is the same whatever is found: their code,
        and the proofs of how their expressions were simplified. So what is certain is there, and only the search is cut short.

        The end of the search, which was `end`: later by what is done already of what comes after it. A quick search has the time that it had.
        """
        begin = self.schedule.clock.now()
        code = self.secure_code
        if code is None or not (self.settings.derive and self.proven):
            return end
        with stage("building programs"):
            code([k for c in choices for k in c.original.build.kernels], lambda: self.schedule.hurry("compile its kernels"))
        with stage("proving"):
            for c in choices:
                self.schedule.hurry("prove the subprograms")
                unproven(c.original.form.derivation, self.settings, {})
        now = self.schedule.clock.now()
        done = min(now - begin, FINISHING_S + FINISHING_PART_S * len(choices))
        return max(end + done, now + min(end - begin, LEAST_EXPLORING_S))

    def explore(self, expressions: Mapping[str, Scope], chosen: dict[str, Choice], seconds: Mapping[str, float], end: float) -> None:
        """Replace choices by those among everything that is found in time, one turn of a subprogram after the other.

        What no turn is left for is remembered at once: a run that is broken off goes on from there.
        """
        clock = self.schedule.clock
        turns = Turns(seconds, clock.now() + FIRST_TURNS_SHARE * max(end - clock.now(), 0.0) if clock.certain < 0 else inf)
        known: dict[str, Found] = {}
        early = EarlyProofs(self.settings, self.proven and clock.certain < 0 and self.settings.force is None)
        while (due := turns.due(clock.now(), end)) and not self.interrupts.requested:
            key = due[0]
            if not turns.new(key):  # nothing goes deeper before what the first turns have found is safe, nor is that proven before all had one
                early.look_for(end)
            begin = clock.now()
            if begin >= end and (clock.certain < 0 or not turns.new(key)):
                break
            if self.crew and key not in known:
                batch = [k for k in (due if turns.new(key) else due[: self.crew.size]) if k not in known]
                if len(batch) >= self.crew.size:  # fewer than there are workers are searched here, one after the other, by all of them
                    known |= self.explored({k: expressions[k] for k in batch}, turns, end)
            earlier, chosen[key] = chosen[key], self.turn(key, expressions[key], turns, end, known.pop(key, None), chosen[key])
            early.found(key, chosen[key], earlier)
            turns.took(key, clock.now() - begin, not chosen[key].hurried)
            if not chosen[key].hurried:
                self.built.pop(key, None)
                self.remember(chosen[key])
        self.spaces.clear()
        self.built.clear()

    def savings(self, expressions: Mapping[str, Scope], seconds: Mapping[str, float], uses: Mapping[str, int]) -> Mapping[str, float]:
        """What could be saved of the seconds of equal subprograms: all, where the cost does not tell what the machine can do at best, and where the
        search is to be the same on every machine."""
        least = getattr(self.cost, "least", None)
        if least is None or self.schedule.clock.certain >= 0:
            return seconds
        return {key: uses[key] * saving(expressions[key], s / uses[key], least) for key, s in seconds.items()}

    def turn(self, key: str, expression: Scope, turns: Turns, end: float, known: Found | None, earlier: Choice) -> Choice:
        """What the next turn of a subprogram finds; in a first one measuring has a share of the time as large as the subprogram's."""
        now = self.schedule.clock.now()
        share = max(end - now, CERTAIN_SHARE_S)
        measuring = share
        if turns.new(key) and turns.first_until < inf:
            rest = sum(s for k, s in turns.seconds.items() if turns.new(k))
            own = (turns.first_until - now) * turns.seconds[key] / max(rest, 1e-12)
            measuring = min(share, max(own, LEAST_SHARE_S))
        place, visited = (turns.finished, len(turns.seconds)), 0 if turns.new(key) else earlier.states
        level, beaten_s = turns.level(key), earlier.best.measured
        weight = turns.seconds[key] / max(sum(turns.seconds.values()), 1e-12)
        found = self.one(
            expression, share, place, known, level=level, measuring=measuring, visited=visited, beaten_s=beaten_s, weight=weight
        )  # fmt: skip
        return keeping(found, earlier, self.noise) if self.settings.force is None else taking_over(found, earlier, self.noise)

    def explored(self, expressions: Mapping[str, Scope], turns: Turns, end: float) -> dict[str, Found]:
        """What the others find, all at once and before anything is measured: a busy machine measures badly."""
        assert self.crew
        clock = self.schedule.clock
        share = max((end - clock.now()) * clock.exploring, CERTAIN_SHARE_S)
        tasks: dict[str, str] = {}
        for key, expression in expressions.items():
            chosen = options(self.settings, share, clock, turns.level(key).states)
            tasks[key] = task(expression, chosen, chosen.deadline - time.monotonic())

        def report(done: int) -> bool:
            self.tell(Progress("search", turns.finished + done, len(turns.seconds)))
            return not self.interrupts.requested

        return solve_all(self.crew, tasks, clock.until(end), report)

    def one(
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

    def drawn(self, expression: Scope, forms: Sequence[Form]) -> Choice:
        """A candidate by the seed that forces one: the same for the same expression, whatever stands around it."""
        rng = Random(f"{self.settings.force} {expression.key}")
        runs = getattr(self.cost, "runs", None)
        return draw(expression, forms, self.cost.estimates, runs or (lambda kernel: True), rng)

    def tell(self, progress: Progress) -> None:
        """Report progress with the time that is left."""
        if self.settings.progress:
            self.settings.progress(replace(progress, left=max(self.schedule.end - self.schedule.clock.now(), 0.0)))


def repriced(candidate: Candidate, seconds: Sequence[float | None]) -> None:
    """Let a candidate take so many seconds for each of its kernels, where all are known and it is faster so."""
    known = tuple(s for s in seconds if s is not None)
    if len(known) == len(seconds) and sum(known) < candidate.measured:
        candidate.seconds, candidate.measured = known, sum(known)


def _seconds(choices: Mapping[str, Choice], uses: Mapping[str, int]) -> dict[str, float]:
    """The seconds that the model's own operators of each subprogram take, wherever it stands, as far as they are known."""
    return {key: uses[key] * s for key, choice in choices.items() if (s := taking(choice.original)) < inf}


def _by_output(outcome: Outcome) -> dict[str, Result]:
    """What was decided for each subprogram, by the name of its result."""
    return {r.subprogram.output.name: r for r in outcome.results}


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
