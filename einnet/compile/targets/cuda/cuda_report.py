"""The report of an optimization for a CUDA device: what the search decided, with times that come from a profile and say from where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einnet.evidence.certificate import Certificate
from einnet.evidence.comparison.finite import assumptions
from einnet.evidence.comparison.verdicts import model_digest
from einnet.evidence.report.assemble import ASKED, bound, called, reported, runs, subprogram_report
from einnet.evidence.report.versions import versions
from einnet.instantiate.kernels import Kernel
from einnet.runtime.cuda.fit import fitted_one_by_one
from einnet.search.outcome import Outcome, Result
from einnet.search.settings import Settings

if TYPE_CHECKING:
    from einnet.runtime.cuda.profiling.costs import CudaCost
    from einnet.runtime.cuda.program import CudaProgram
    from einnet.search.candidates import Candidate

Json = dict[str, Any]
TAKEN = ("seconds", "search_s")
"""What is told of the time that the making took: two makings of one program differ in nothing else."""


def build_report(
    model: object,
    settings: Settings,
    outcome: Outcome,
    made: CudaProgram,
    cost: CudaCost,
    certificate: Certificate,
    verification: Mapping[str, Any],
    seconds: float,
) -> Json:
    """Everything that was decided, as plain JSON data: an entry for each subprogram as for a processor, and one for each step of the program.

    `measured_ms` are times that the profile has recorded, `predicted_ms` what was reckoned with: recorded or estimated.
    """
    predicted = {name: sum(cost.estimates(outcome.plan(original=name == "original").kernels)) * 1e3 for name in ("original", "optimized")}
    steps = step_reports(outcome, cost)
    assert len(steps) == len(made.steps), "every step of the program is told of"
    return {
        "model": called(model, outcome.program),
        "digest": model_digest(model),
        "backend": "cuda",
        "device": cost.profile.device,
        "profile": "measured" if cost.profile.measured else "estimate",
        "math": cost.profile.math,
        "versions": versions(),
        "settings": {name: getattr(settings, name) for name in ASKED} | {"channels_last": cost.channels_last},
        "runs": runs(outcome),
        "subprograms": [subprogram(r, cost) for r in outcome.results],
        "changed": sum(r.changed for r in outcome.results),
        "totals": {
            "original_predicted_ms": predicted["original"], "optimized_predicted_ms": predicted["optimized"], "launches": made.launches,
            "unmeasured": sum(k["estimated"] for k in steps),
        },
        "kernels": steps,
        "memory": {"arena": made.arena_bytes, "constants": made.constant_bytes},
        "certificate": {"derivations": len(certificate.entries), "steps": certificate.steps, "methods": certificate.methods()},
        "verification": {**verification, "bound": bound(outcome)},
        "assumes_finite": assumptions(outcome),
        "notes": outcome.notes,
        "states": outcome.states,
        "seconds": seconds,
    }  # fmt: skip


def step_reports(outcome: Outcome, cost: CudaCost) -> list[Json]:
    """Each step of the program: its kernel, what is reckoned for it, and the subprogram that it is of ("" for what a program pass made)."""
    plan, owners = outcome.assemble()
    parts = {r.subprogram.output.name: r.subprogram for r in outcome.results}
    found: list[Json] = []
    for kernels, owner in zip(fitted_one_by_one(plan, cost.channels_last), owners, strict=True):
        of = {"key": parts[owner].key, "nodes": list(parts[owner].origin)} if owner in parts else {"key": "", "nodes": []}
        found += [{**kernel_report(k, cost), **of} for k in kernels]
    return found


def kernel_report(kernel: Kernel, cost: CudaCost) -> Json:
    """One kernel: `ms` is None where the profile has no time of it."""
    seconds = cost.seconds(kernel)
    estimated = kernel in cost.unmeasured
    return {"kernel": kernel.describe(), "ms": None if estimated else seconds * 1e3, "predicted_ms": seconds * 1e3, "estimated": estimated}


def subprogram(r: Result, cost: CudaCost) -> Json:
    """One subprogram: what it is, what was considered, what runs."""
    chosen, original = r.candidate, r.choice.original
    told: Json = dict(subprogram_report(r))
    told["candidates"] = [{**row, **times(c, cost)} for row, c in zip(told["candidates"], reported(r.choice), strict=True)]
    before = times(original, cost)
    return {
        **told,
        **times(chosen, cost),
        "original_ms": before["measured_ms"],
        "original_predicted_ms": before["predicted_ms"],
        "kernels": [kernel_report(k, cost) for k in chosen.kernels],
        "original_kernels": [kernel_report(k, cost) for k in original.kernels],
    }


def times(c: Candidate, cost: CudaCost) -> Json:
    """What was reckoned for a candidate, and whether all of it was recorded."""
    kernels = [kernel_report(k, cost) for k in c.kernels]
    total = sum(k["predicted_ms"] for k in kernels)
    return {"predicted_ms": total, "measured_ms": None if any(k["estimated"] for k in kernels) else total}


def stored_report(report: Mapping[str, Any]) -> Json:
    """The report as a program carries it: the model by the name of its file, and without the times that its making took."""
    kept: Json = _without(report, TAKEN)
    return {**kept, "model": Path(kept["model"]).name}


def _without(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, Mapping):
        return {k: _without(v, names) for k, v in value.items() if k not in names}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_without(v, names) for v in value]
    return value
