"""What was found at the searched size, taken to other sizes: chosen by measuring there, or as a measured size has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from einnet.compile.program_search import Known
from einnet.compile.ranges.neighbours import Neighbours
from einnet.compile.subprogram_search import Cost
from einnet.compile.turns import MEASURED
from einnet.derivation.checker.check import Proof
from einnet.derivation.moves.rule import Refused
from einnet.derivation.steps import Derivation
from einnet.errors import CertificateError
from einnet.evidence.certificate import proofs, proofs_by
from einnet.expr.nodes import Scope
from einnet.expr.resize import Resize
from einnet.graph.bundle import bundles
from einnet.graph.program import Program
from einnet.graph.split import subprograms
from einnet.instantiate.build import Build, builds
from einnet.instantiate.kernels import Kernel
from einnet.search.choosing.candidate import GAIN, OUT, Candidate, Choice, Estimate
from einnet.search.choosing.choose import choose
from einnet.search.forms import Form, plain
from einnet.search.outcome import Outcome, canonical, result
from einnet.search.plan import Evaluated
from einnet.search.resized_forms import resized_form
from einnet.search.time_shares import LEAST_SHARE_S


@dataclass
class Found:
    """What a search remembers, kept for other sizes and handed to what remembers it for later runs: choices by expression."""

    memory: Known
    choices: dict[Scope, Choice] = field(default_factory=dict)
    earlier = True

    def recall(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """What an earlier run found."""
        recalled = self.memory.recall(expressions, estimate)
        self._keep(list(recalled.values()))
        return recalled

    def narrower(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """What an earlier run found for a narrower class."""
        return self.memory.narrower(expressions, estimate)

    def remember(self, choices: Sequence[Choice]) -> None:
        """Keep what was found."""
        self._keep(choices)
        self.memory.remember(choices)

    def _keep(self, choices: Sequence[Choice]) -> None:
        self.choices.update((c.expression, c) for c in choices)


@dataclass
class Guard:
    """A derivation that does not hold, or does not lead to its operators, at a size; `rules` are those of its steps."""

    size: int
    rules: tuple[str, ...]
    why: str


@dataclass
class AtSize:
    """The forms of the searched size at another one. The best is measured there, and taken only if its derivation is proven there.

    `refused` says of a kernel that the library does not run it, `neighbours` what other sizes tell about this one; `evaluated` keeps what is
    computed of weights. `origin` maps the forms at this size to those of the searched size; `guards` are the forms that do not come over,
    `proven` the proofs of those that have one for every size.
    """

    found: Mapping[Scope, Choice]
    resize: Resize
    cost: Cost
    until: float
    refused: Callable[[Kernel], bool]
    neighbours: Neighbours
    evaluated: Evaluated = field(default_factory=Evaluated)
    origin: dict[int, tuple[Form, Form]] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    proven: dict[Derivation, tuple[Proof, ...]] = field(default_factory=dict)
    earlier = False

    def recall(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """The choices at this size for expressions that are those of the searched size."""
        here = {self.resize.scope(e): choice for e, choice in self.found.items()}
        known = {key: here[e] for key, e in expressions.items() if e in here}
        rest = sum(choice.best.cost for choice in known.values())
        chosen: dict[str, Choice] = {}
        for key, choice in sorted(known.items(), key=lambda item: -item[1].best.cost):
            left = self.until - time.monotonic()
            share = max(left * choice.best.cost / max(rest, 1e-12), min(left, LEAST_SHARE_S))
            rest -= choice.best.cost
            chosen[key] = self._choose(expressions[key], choice, estimate, time.monotonic() + share)
        return chosen

    def narrower(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """What was found at the searched size is all that there is."""
        return {}

    def remember(self, choices: Sequence[Choice]) -> None:
        """What was searched at this size alone is not kept."""

    def source(self, form: Form) -> Form | None:
        """The form of the searched size behind one at this size; None for the expression as it is and for what was found here."""
        return self.origin[id(form)][1] if id(form) in self.origin else None

    def guard(self, form: Form, why: str) -> None:
        """Note that a form does not come over."""
        self.guards.append(Guard(self.resize.new, tuple(s.rule for s in form.steps), why))

    def disproven(self, form: Form, source: Form) -> str | None:
        """Why the derivation of a form, which is `source` at the searched size, does not hold here; None if it does."""
        found = proofs_by(source.derivation, self.resize, form.derivation)
        if found is None:
            return disproven(form)
        self.proven[form.derivation] = found
        return None

    def _choose(self, expression: Scope, choice: Choice, estimate: Estimate, until: float) -> Choice:
        forms, size = self._forms(expression, choice), self.resize.new

        def called(form: Form) -> Hashable:
            return choice.expression, name(self.source(form) or form)

        def learned(c: Candidate) -> tuple[list[float], list[float]] | None:
            return self.neighbours.expected(size, called(c.form), c)

        def expected(c: Candidate) -> float:
            seconds = self.neighbours.total(size, called(c.form), c)
            return inf if seconds is None or any(map(self.refused, c.kernels)) else seconds

        while True:
            chosen = choose(expression, forms, estimate, self.cost.measured, most=MEASURED, until=until, learned=learned)
            if chosen.hurried:
                as_expected(chosen, expected)
            why = disproven(chosen.best.form)
            if why is None:
                self.neighbours.note(size, [(called(c.form), c) for c in chosen.candidates], chosen.best.cost)
                return chosen
            self.guard(chosen.best.form, why)
            forms = [f for f in forms if f is not chosen.best.form]

    def _forms(self, expression: Scope, choice: Choice) -> list[Form]:
        """What is worth a try at this size, the model's own operators in any case."""
        forms = [plain(expression)]
        for form, original in {id(c.form): (c.form, c.original) for c in choice.candidates}.values():
            if not (original or self.neighbours.promising(self.resize.new, (choice.expression, name(form)))):
                continue
            made = resized_form(form, self.resize)
            if isinstance(made, Refused):
                self.guard(form, made.why)
            elif form.steps or form.matches:
                forms.append(made)
                self.origin[id(made)] = (made, form)
        return forms


def as_expected(choice: Choice, expected: Callable[[Candidate], float]) -> None:
    """Where time was too short to measure, let that run which takes least as far as was measured and as other sizes tell."""
    seconds = {id(c): expected(c) for c in choice.candidates}
    original = min((c for c in choice.candidates if c.original), key=lambda c: seconds[id(c)])
    best = min(choice.candidates, key=lambda c: seconds[id(c)])
    if seconds[id(original)] < inf:
        choice.original, choice.best = original, best if seconds[id(best)] < (1 - GAIN) * seconds[id(original)] else original


def name(form: Form) -> str | None:
    """What a form of the searched size is called at all sizes."""
    return form.key if form.steps or form.matches else None


def disproven(form: Form) -> str | None:
    """Why the derivation of a form does not hold; None if it does."""
    try:
        proofs(form.derivation)
    except CertificateError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Taken:
    """What runs for an expression, and the model's own operators for it: forms of the searched size (None: the expression as it is) and builds."""

    form: Form | None
    variant: int
    original: Form | None
    original_variant: int
    changed: bool


def variants(form: Form) -> list[Build]:
    """The ways to run a form, in an order that does not depend on sizes."""
    return [made for epilogues in ((True, False) if form.matches else (True,)) for made in builds(form.tree, dict(form.matches), OUT, epilogues)]


def taken(outcome: Outcome, at: AtSize) -> dict[Scope, Taken]:
    """What was chosen at a size, by the expression of the searched size; what was searched at this size alone is left out."""
    searched = {at.resize.scope(e): e for e in at.found}
    found = {}
    for r in outcome.results:
        if r.choice.expression in searched:
            best, original = r.candidate.form, r.choice.original.form
            numbers = (variant_of(r.candidate), variant_of(r.choice.original))
            found[searched[r.choice.expression]] = Taken(at.source(best), numbers[0], at.source(original), numbers[1], r.changed)
    return found


def variant_of(candidate: Candidate) -> int:
    """Which of the ways to run its form a candidate is."""
    return next((n for n, made in enumerate(variants(candidate.form)) if made.kernels == candidate.build.kernels), 0)


def followed(program: Program, measured: Outcome, chosen: Mapping[Scope, Taken], at: AtSize) -> Outcome:
    """The outcome at another size that does what the outcome at a measured size does.

    What does not come over runs as the model has it. Nothing is measured.
    """
    here = {at.resize.scope(e): t for e, t in chosen.items()}

    def choice(expression: Scope) -> Choice:
        wanted = here.get(expression)
        original = (_over(wanted.original, wanted.original_variant, at) if wanted else None) or _candidate(plain(expression), 0, at)
        assert original is not None, "generated code is never refused"
        best = (_over(wanted.form, wanted.variant, at) if wanted and wanted.changed else None) or original
        return Choice(expression, [best, original], original, best)

    outcome = Outcome(program, tuple(result(p, choice(canonical(p.expression))) for p in subprograms(program)), evaluated=at.evaluated)
    for bundle in measured.bundles:
        same = next((b for b in bundles(outcome.program, [r.subprogram for r in outcome.results]) if b.names == bundle.names), None)
        if same is not None:
            outcome = outcome.together(same, choice(canonical(same.joint.expression)))
    return replace(outcome, whole=measured.whole)


def _over(form: Form | None, variant: int, at: AtSize) -> Candidate | None:
    """A form of the searched size as a candidate at this one; None, and a guard, where it does not come over."""
    if form is None:
        return None
    made = resized_form(form, at.resize)
    why = made.why if isinstance(made, Refused) else at.disproven(made, form)
    if isinstance(made, Refused) or why is not None:
        at.guard(form, why or "")
        return None
    at.origin[id(made)] = (made, form)
    found = _candidate(made, variant, at)
    if found is None:
        at.guard(form, "the library refuses its kernels")
    return found


def _candidate(form: Form, variant: int, at: AtSize) -> Candidate | None:
    """The form in the wanted way, or in the first way that the library does not refuse."""
    made = variants(form)
    order = [made[variant], *made] if variant < len(made) else made
    return next((Candidate(form, build) for build in order if not any(map(at.refused, build.kernels))), None)
