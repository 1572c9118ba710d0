"""From a program to a plan: subprograms searched, costed and chosen, one after the other, within a budget of time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Protocol

from einnet.compile.budget import Schedule
from einnet.compile.bundling import apart, attempt, attempts_of
from einnet.compile.early_proofs import EarlyProofs
from einnet.compile.garbage import collection_on_demand
from einnet.compile.interrupts import Interrupts, deferred_interrupts
from einnet.compile.subprogram_search import Cost, SubprogramSearch, options
from einnet.compile.turns import Turns, beginning, keeping, saving, taking_over
from einnet.compile.workers import Crew, Found, crew, solve_all
from einnet.evidence.comparison.finite import keep_strict
from einnet.evidence.sound import keep_proven, unproven
from einnet.expr.nodes import Scope
from einnet.graph.bundle import Bundle
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.search.choosing.candidate import Candidate, Choice, Estimate
from einnet.search.outcome import Outcome, Result, canonical, result, taking
from einnet.search.plan import DEAR_S, Evaluated
from einnet.search.remote import task
from einnet.search.settings import Progress, Settings, explored
from einnet.search.time_shares import (
    BUNDLING_SHARE,
    CERTAIN_SHARE_S,
    FINISHING_PART_S,
    FINISHING_S,
    FIRST_TURNS_SHARE,
    LEAST_EXPLORING_S,
    LEAST_KEEPING_S,
    LEAST_SHARE_S,
    MOST_BUNDLE_SHARES,
)
from einnet.search.work import flops
from einnet.stages import stage

CODE_AT_ONCE = 32
"""Subprograms whose code is compiled before the first of them is measured: the last ones may have no time left for either."""

INTERRUPTED = "interrupted: what was left to explore runs as the model has it"


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

    @cached_property
    def single(self) -> SubprogramSearch:
        """What searches each subprogram."""
        return SubprogramSearch(self.settings, self.cost, self.schedule, self.interrupts, self.crew)

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
        outcome = Outcome(self.program, results, states, notes=notes, interrupted=self.interrupts.requested, evaluated=Evaluated(DEAR_S))
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
                choices[key] = beginning(self.single.chosen(joint[key], share, (n, len(groups)), apart=apart(alike[0], current)), narrower.get(key))
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
                self.single.tell(Progress("search", n, len(order)))
                plain = self.single.ahead({k: expressions[k] for k in order[n : n + CODE_AT_ONCE]})
            found[key] = self.single.chosen(expressions[key], 0.0, (n, len(order)), plain.get(key))
        return found

    def secure(self, choices: Sequence[Choice], end: float) -> float:
        """Finish of the model's own operators what takes time before anything is explored, in as far as it is the same whatever is found: their code,
        and the proofs of how their expressions were simplified. So what is certain is there, and only the search is cut short.

        The end of the search, which was `end`: later by what is done already of what comes after it. A quick search has the time that it had.
        """
        begin = self.schedule.clock.now()
        code = self.single.code
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
                self.single.built.pop(key, None)
                self.remember(chosen[key])
        self.single.let_go()

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
        found = self.single.chosen(
            expression, share, place, known, level=level, measuring=measuring, visited=visited, beaten_s=beaten_s, weight=weight
        )  # fmt: skip
        return keeping(found, earlier, self.single.noise) if self.settings.force is None else taking_over(found, earlier, self.single.noise)

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
            self.single.tell(Progress("search", turns.finished + done, len(turns.seconds)))
            return not self.interrupts.requested

        return solve_all(self.crew, tasks, clock.until(end), report)


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
