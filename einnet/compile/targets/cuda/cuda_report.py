"""The report of an optimization for a CUDA device: what the search decided, with times that come from a profile and say from where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from einnet.compile.targets.cuda.lowering import without_copies
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.finite import assumptions
from einnet.evidence.comparison.verdicts import model_digest
from einnet.evidence.report.assemble import asked, bound, called, reported, runs, subprogram_report, told
from einnet.evidence.report.card_schema import CudaReport, CudaTotals, OnDevice, StepTime
from einnet.evidence.report.schema import CandidateRow, KernelTime, SubprogramRow, Verification
from einnet.evidence.report.versions import versions
from einnet.instantiate.kernels import Kernel
from einnet.records import changed, fields_of
from einnet.runtime.cuda.fit import fitted_one_by_one
from einnet.search.outcome import Result
from einnet.search.settings import Settings

if TYPE_CHECKING:
    from einnet.compile.targets.cuda.lowering import Lowered
    from einnet.runtime.cuda.profiling.costs import CudaCost
    from einnet.search.choosing.candidate import Candidate


def build_report(
    model: object,
    settings: Settings,
    made: Lowered,
    cost: CudaCost,
    certificate: Certificate,
    verification: Verification,
    seconds: float,
    channels_last: bool,
    notes: Sequence[str] = (),
) -> CudaReport:
    """Everything that was decided, an entry for each subprogram as for a processor, and one for each step of the program.

    `channels_last` is the order in which data was searched; `measured_ms` are times that the profile has recorded, `predicted_ms` what was
    reckoned with: recorded or estimated.
    """
    outcome, own = made.outcome, without_copies(made.outcome, cost, original=True)[0]
    predicted = {name: sum(cost.like(plan).estimates(plan.kernels)) * 1e3 for name, plan in (("original", own), ("optimized", made.plan))}
    steps = step_reports(made, cost.like(made.plan))
    assert len(steps) == len(made.program.steps), "every step of the program is told of"
    return CudaReport(
        model=called(model, outcome.program),
        digest=model_digest(model),
        backend="cuda",
        device=cost.profile.device,
        profile="measured" if cost.profile.measured else "estimate",
        math=cost.profile.math,
        versions=versions(),
        settings=asked(settings, channels_last),
        runs=runs(outcome),
        subprograms=[subprogram(r, cost) for r in outcome.results],
        changed=sum(r.changed for r in outcome.results),
        totals=CudaTotals(
            original_predicted_ms=predicted["original"], optimized_predicted_ms=predicted["optimized"], launches=made.program.launches,
            unmeasured=sum(bool(k.estimated) for k in steps),
        ),
        kernels=steps,
        memory=OnDevice(arena=made.program.arena_bytes, constants=made.program.constant_bytes),
        certificate=changed(told(certificate), classes=None),
        verification=changed(verification, bound=bound(outcome)),
        assumes_finite=assumptions(outcome),
        notes=[*outcome.notes, *notes],
        states=outcome.states,
        seconds=seconds,
    )  # fmt: skip


def step_reports(made: Lowered, cost: CudaCost) -> list[StepTime]:
    """Each step of the program: its kernel, what is reckoned for it, and the subprogram that it is of."""
    parts = {r.subprogram.output.name: r.subprogram for r in made.outcome.results}
    found: list[StepTime] = []
    for kernels, owner in zip(fitted_one_by_one(made.plan, cost.channels_last), made.owners, strict=True):
        key, nodes = (parts[owner].key, list(parts[owner].origin)) if owner in parts else ("", [])
        found += [StepTime(**fields_of(kernel_report(k, cost)), key=key, nodes=nodes) for k in kernels]
    return found


def kernel_report(kernel: Kernel, cost: CudaCost) -> KernelTime:
    """One kernel: `ms` is None where the profile has no time of it."""
    seconds = cost.seconds(kernel)
    estimated = kernel in cost.unmeasured
    return KernelTime(kernel=kernel.describe(), ms=None if estimated else seconds * 1e3, predicted_ms=seconds * 1e3, estimated=estimated)


def subprogram(r: Result, cost: CudaCost) -> SubprogramRow:
    """One subprogram: what it is, what was considered, what runs."""
    chosen, original, row = r.candidate, r.choice.original, subprogram_report(r)
    predicted, measured = times(chosen, cost)
    before = times(original, cost)
    return changed(
        row,
        candidates=[timed(told, c, cost) for told, c in zip(row.candidates, reported(r.choice), strict=True)],
        predicted_ms=predicted,
        measured_ms=measured,
        original_ms=before[1],
        original_predicted_ms=before[0],
        kernels=[kernel_report(k, cost) for k in chosen.kernels],
        original_kernels=[kernel_report(k, cost) for k in original.kernels],
    )


def timed(row: CandidateRow, c: Candidate, cost: CudaCost) -> CandidateRow:
    """A candidate with what was reckoned for it."""
    predicted, measured = times(c, cost)
    return changed(row, predicted_ms=predicted, measured_ms=measured)


def times(c: Candidate, cost: CudaCost) -> tuple[float, float | None]:
    """What was reckoned for a candidate in ms, and the same where all of it was recorded."""
    total = sum(cost.seconds(k) * 1e3 for k in c.kernels)
    return total, None if any(k in cost.unmeasured for k in c.kernels) else total


def stored_report(report: CudaReport) -> CudaReport:
    """The report as a program carries it: the model by the name of its file, and without the times that its making took.

    Two makings of one program differ in nothing else.
    """
    parts = [changed(s, search_s=None) for s in report.subprograms]
    verification = changed(report.verification, seconds=None)
    return changed(report, model=Path(report.model).name, subprograms=parts, verification=verification, seconds=None)
