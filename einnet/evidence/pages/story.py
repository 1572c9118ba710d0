"""What a report says of a program, joined with its derivations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from einnet.derivation.checker.bounds import error_bound
from einnet.derivation.checker.check import Proof
from einnet.derivation.steps import Derivation, Step
from einnet.evidence.pages.story_schema import CandidateStory, CardStep, CardStory, Chapter, DerivationStory, ProofRow, StepStory, Story
from einnet.evidence.report.card_schema import AnyReport, CudaReport
from einnet.evidence.report.schema import Report, SubprogramRow
from einnet.expr.nodes import Scope
from einnet.records import fields_of

Reasons = Callable[[Derivation, Sequence[str]], Sequence[str]]
"""Why each step of a derivation that ends in the given operators was taken."""


class Told(Protocol):
    """A derivation of the subprogram `key`, with the vendor operators that its end holds."""

    @property
    def key(self) -> str: ...
    @property
    def derivation(self) -> Derivation: ...
    @property
    def matches(self) -> tuple[str, ...]: ...


class Proven(Told, Protocol):
    """A derivation with a proof for each step."""

    @property
    def proofs(self) -> tuple[Proof, ...]: ...


def story(report: Report, used: Iterable[Proven], considered: Iterable[tuple[int, Proven]] = (), reasons: Reasons | None = None) -> Story:
    """The story of a program for the processor; see `chapters`."""
    return Story(
        model=report.model, runs=report.runs, verification=report.verification, notes=report.notes,
        subprograms=chapters(report, used, considered, reasons),
        totals=report.totals, kernels=report.kernels, cost_model=report.cost_model, kept_whole=report.kept_whole, precision=report.precision,
    )  # fmt: skip


def card_story(
    report: CudaReport, steps: list[CardStep], used: Iterable[Proven], considered: Iterable[tuple[int, Proven]] = (), reasons: Reasons | None = None
) -> CardStory:
    """The story of a program for a card, with its steps; see `chapters`."""
    return CardStory(
        model=report.model, runs=report.runs, verification=report.verification, notes=report.notes,
        subprograms=chapters(report, used, considered, reasons),
        totals=report.totals, kernels=report.kernels, device=report.device, profile=report.profile, memory=report.memory, steps=steps,
    )  # fmt: skip


def chapters(report: AnyReport, used: Iterable[Proven], considered: Iterable[tuple[int, Proven]], reasons: Reasons | None) -> list[Chapter]:
    """What a report says about each distinct subprogram, joined with its derivations.

    `considered` are derivations of candidates that do not run, by their place in the report's list of candidates.
    """
    by_key = {t.key: t for t in used}
    others: dict[str, dict[int, Proven]] = {}
    for n, told in considered:
        others.setdefault(told.key, {})[n] = told
    alike: dict[str, list[SubprogramRow]] = {}
    for s in report.subprograms:
        alike.setdefault(s.key, []).append(s)
    return [chapter(rows, by_key.get(key), others.get(key, {}), reasons) for key, rows in alike.items()]


def chapter(rows: Sequence[SubprogramRow], used: Proven | None, others: dict[int, Proven], reasons: Reasons | None) -> Chapter:
    """One of some equal subprograms. Raises IndexError where a derivation is of a candidate that the report does not list."""
    first = rows[0]
    unknown = others.keys() - set(range(len(first.candidates)))
    if unknown:
        raise IndexError(f"there is no candidate {min(unknown)} of {first.key}")
    told = {n: derivation_story(other, reasons) for n, other in others.items()}
    return Chapter(
        key=first.key, changed=first.changed, expression=first.expression, kernels=first.kernels, original_kernels=first.original_kernels,
        measured_ms=first.measured_ms, original_ms=first.original_ms, states=first.states,
        predicted_ms=first.predicted_ms, original_predicted_ms=first.original_predicted_ms, nodes=[s.nodes for s in rows],
        candidates=[CandidateStory(**fields_of(c), derivation=told.get(n)) for n, c in enumerate(first.candidates)],
        derivation=None if used is None else derivation_story(used, reasons),
    )  # fmt: skip


def derivation_story(told: Proven, reasons: Reasons | None = None) -> DerivationStory:
    """A derivation; `reasons` says why each of its steps was taken."""
    derivation = told.derivation
    states = list(derivation.states())
    parts = zip(derivation.steps, states[1:], told.proofs, strict=True)
    why = reasons(derivation, told.matches) if reasons else [None] * len(derivation.steps)
    steps = [step_story(n, step, state, proof, because) for n, ((step, state, proof), because) in enumerate(zip(parts, why, strict=True), 1)]
    bound = error_bound(derivation)
    return DerivationStory(start=states[0].text(), steps=steps, kind=derivation.kind, bound=bound, operators=list(told.matches))


def step_story(number: int, step: Step, after: Scope, proof: Proof, reason: str | None = None) -> StepStory:
    """One step; `after` is the whole expression after it."""
    proven = ProofRow(method=proof.method, details=proof.details, points=proof.points)
    return StepStory(
        number=number, rule=step.rule, parameters=step.parameters, path=list(step.path), kind=step.kind, bound=step.bound,
        before=step.before.text(), after=step.after.text(), expression=after.text(), proof=proven, reason=reason,
    )  # fmt: skip
