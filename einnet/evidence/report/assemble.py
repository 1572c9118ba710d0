"""The report: everything that was decided and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from einnet.derivation.checker.bounds import error_bound, program_bound
from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.finite import assumptions
from einnet.evidence.comparison.verdicts import model_digest
from einnet.evidence.report.kernel_times import cost_model, finite
from einnet.evidence.report.schema import (
    Asked,
    CandidateRow,
    CertificateRow,
    KernelRow,
    KernelTime,
    OpaqueRow,
    Report,
    StageRow,
    StepRow,
    SubprogramRow,
    Totals,
    Verification,
)
from einnet.evidence.report.versions import versions
from einnet.expr.nodes import tensors
from einnet.expr.notation.printing import print_declaration
from einnet.graph.passes.integers.as_bytes import keeps_bytes
from einnet.graph.program import Opaque, Program
from einnet.records import changed
from einnet.search.choosing.candidate import Candidate, Choice
from einnet.search.outcome import Outcome, Result
from einnet.search.settings import Settings
from einnet.stages import spent

PEAKS = "original and optimized: arena and constants; onnxruntime: growth of the process in the first run, its session included"
"""What the bytes of the report are."""

REPORTED = 12
REPORTED_NEAR = 24
"""Candidates of a subprogram that are told of, beside the original and the best."""


def called(model: object, program: Program) -> str:
    """A model by its path, or by its own name where it was given otherwise."""
    return str(model) if isinstance(model, str) or hasattr(model, "__fspath__") else program.title


def asked(settings: Settings, channels_last: bool | None = None) -> Asked:
    """The settings that the report repeats."""
    listed = {"rules": None if settings.rules is None else list(settings.rules), "inputs": sorted(settings.inputs)}
    same = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name in Asked.__struct_fields__}
    return Asked(**{**same, **listed, "channels_last": channels_last, "tables": settings.tables and channels_last is None})


def told(certificate: Certificate) -> CertificateRow:
    """How many derivations and steps there are, steps by how they were proven, and by the numerical class that the checker found."""
    methods, classes = certificate.methods(), certificate.classes()
    return CertificateRow(derivations=len(certificate.entries), steps=certificate.steps, methods=methods, classes=classes)


def unmeasured(
    model: object, program: Program, outcome: Outcome, settings: Settings, verification: Verification, certificate: Certificate, seconds: float
) -> Report:  # fmt: skip
    """The report of a program of which no time is known."""
    return Report(
        model=called(model, program),
        backend=settings.backend,
        threads=settings.threads,
        versions=versions(),
        settings=changed(asked(settings), in_bytes=keeps_bytes(program), settled=bool(program.settled)),
        digest=model_digest(model),
        runs=runs(outcome),
        subprograms=subprogram_reports(outcome.results),
        totals=Totals(
            original_ms=None, onnxruntime_ms=None, optimized_ms=None, speedup=None, speedup_over_original=None, noise=0.0,
            search_s=outcome.seconds, total_s=seconds, states=outcome.states,
        ),
        spread_ms={},
        certificate=told(certificate),
        verification=changed(verification, bound=bound(outcome)),
        kernels=[],
        cost_model=cost_model(()),
        notes=list(outcome.notes),
        stages=stages(),
    )  # fmt: skip


def stages() -> list[StageRow] | None:
    """Where the time of the run at hand went, the longest stage first; None where nobody recorded that."""
    ordered = sorted((spent() or {}).items(), key=lambda s: -s[1][0])
    return [StageRow(stage=name, seconds=clock, processor_s=processor) for name, (clock, processor) in ordered] or None


def build_report(
    model: object,
    program: Program,
    outcome: Outcome,
    settings: Settings,
    times: Mapping[str, Any],
    verification: Verification,
    certificate: Certificate,
    kernels: Sequence[KernelRow],
    peaks: Mapping[str, int | None],
    seconds: float,
) -> Report:
    """The REPORT that `--json` writes: times in ms (None for what did not fit into memory), an entry for each subprogram, and for each kernel.

    What was timed once has no speedup over it. `kernels` are as `kernel_profile` gives them, `peaks` bytes by program.
    """
    report = unmeasured(model, program, outcome, settings, verification, certificate, seconds)
    timed = [k for k in ("original", "optimized", "onnxruntime") if k in times]
    original = times["original"].median * 1e3 if "original" in times else None
    optimized, reference = times["optimized"].median * 1e3, times["onnxruntime"].median * 1e3
    return changed(
        report,
        totals=changed(
            report.totals,
            original_ms=original,
            onnxruntime_ms=reference,
            optimized_ms=optimized,
            speedup=None if times.get("once") else reference / optimized,
            speedup_over_original=original / optimized if original else None,
            noise=times.get("noise", 0.0),
        ),
        spread_ms={k: times[k].spread * 1e3 for k in timed},
        peak_bytes={**peaks, "measured": PEAKS},
        opaque=[OpaqueRow(nodes=list(n.origin), why=n.why) for n in outcome.program.nodes if isinstance(n, Opaque)],
        assumes_finite=assumptions(outcome),
        kernels=list(kernels),
        cost_model=cost_model(kernels),
    )


def runs(outcome: Outcome) -> str:
    """What the program consists of: "derived" kernels, the model's "own operators", or the "whole model" in ONNX Runtime."""
    if outcome.whole:
        return "whole model"
    return "derived" if any(r.changed for r in outcome.results) else "own operators"


def bound(outcome: Outcome) -> float:
    """The a-priori bounds of all parts added up, each relative to its sums of absolute products (see `derivation.bounds`); 0 in ONNX Runtime."""
    return 0.0 if outcome.whole else program_bound(r.candidate.form.derivation for r in outcome.results)


def subprogram_reports(results: Sequence[Result]) -> list[SubprogramRow]:
    """A row for each subprogram: what equal ones have in common is told once and shared, as a model of many layers has each many times."""
    told: dict[tuple[int, bool], SubprogramRow] = {}
    rows = []
    for r in results:
        same = id(r.choice), r.use_original
        if same not in told:
            told[same] = subprogram_report(r)
        rows.append(changed(told[same], key=r.subprogram.key, output=r.subprogram.output.name, nodes=list(r.subprogram.origin)))
    return rows


def subprogram_report(r: Result) -> SubprogramRow:
    """One subprogram: what it is, what was considered, what runs."""
    choice, chosen = r.choice, r.candidate
    return SubprogramRow(
        key=r.subprogram.key,
        output=r.subprogram.output.name,
        nodes=list(r.subprogram.origin),
        expression=choice.expression.text(),
        tensors=[print_declaration(t) for t in tensors(choice.expression).values()],
        states=choice.states,
        depth=choice.depth,
        stopped_at=choice.stopped_at,
        forms=choice.forms,
        candidates=[candidate_report(c, c is chosen, c is choice.original) for c in reported(choice)],
        changed=r.changed,
        kernels=kernels_report(chosen),
        original_kernels=kernels_report(choice.original),
        operators=[str(m) for _, m in chosen.form.matches],
        steps=[StepRow(rule=s.rule, parameters=s.parameters, kind=s.kind) for s in chosen.form.steps],
        bound=error_bound(chosen.form.derivation),
        predicted_ms=finite(chosen.predicted * 1e3),
        measured_ms=finite(chosen.measured * 1e3),
        original_ms=finite(choice.original.measured * 1e3),
        search_s=choice.seconds,
        notes=list(choice.notes),
    )


def reported(choice: Choice) -> list[Candidate]:
    """The candidates that the report and the artifact tell of: the cheapest ones, those of the shortest derivations, the original and the best."""
    near = [c for c in choice.candidates if choices(c) <= 1][:REPORTED_NEAR]
    return [c for n, c in enumerate(choice.candidates) if n < REPORTED or c in near or c is choice.original or c is choice.best]


def choices(c: Candidate) -> int:
    """Steps of the derivation that were a choice and not forced by the operator that was aimed at."""
    return sum(s.rule in ("sum-split", "substitute-sum", "bilinear") for s in c.form.steps)


def kernels_report(c: Candidate) -> list[KernelTime]:
    """The kernels of a candidate in order; ms is None where they were not measured one by one."""
    seconds = c.seconds or (float("inf"),) * len(c.build.kernels)
    return [KernelTime(kernel=k.describe(), ms=finite(1e3 * t)) for k, t in zip(c.build.kernels, seconds, strict=True)]


def candidate_report(c: Candidate, chosen: bool, original: bool) -> CandidateRow:
    """A candidate in one line each: operators, rules, cost in ms."""
    return CandidateRow(
        operators=[str(m) for _, m in c.form.matches],
        kernels=[k.describe() for k in c.build.kernels],
        rules=list(c.rules),
        predicted_ms=finite(c.predicted * 1e3),
        measured_ms=finite(c.measured * 1e3),
        chosen=chosen,
        original=original,
    )
