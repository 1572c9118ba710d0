"""What the commands do with ranges of several dimensions: optimize --dynamic A=1..8 B=16..512, verify, explain."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from einnet.cli.colour import show
from einnet.cli.files import write_json
from einnet.cli.ranged import FAILED, finish
from einnet.errors import UsageError

if TYPE_CHECKING:
    from einnet.compile.grid.served import GridProgram
    from einnet.evidence.report.grid_schema import GridReport


def optimize(options: argparse.Namespace, chosen: Any) -> int:
    """Optimize for ranges of several dimensions; exit code 1 where the plan for some sizes does not pass its verification."""
    from einnet.api.optimize import optimize as optimize_model
    from einnet.cli.progress import progress
    from einnet.compile.grid.target import GridOptimization
    from einnet.evidence.comparison.verdicts import failed

    with progress(options.quiet) as report:
        result = optimize_model(options.model, chosen, dynamic=options.dynamic, progress=report)
    assert isinstance(result, GridOptimization), "several dimensions have ranges"
    good = not any(failed(found.verification) for found in result.record.sizes.values())
    return finish(options, result, good, summary(result.record))


def summary(report: GridReport) -> list[str]:
    """The sizes that were measured with their times, and what becomes of others."""
    from einnet.evidence.pages.proof_text import ms, ratio

    names = [d.name for d in report.dynamic]
    ranges = ", ".join(f"{d.name} in {d.lowest}..{d.highest}" for d in report.dynamic)
    lines = [f"{report.model}, {report.making.threads} threads, {ranges}"]
    for key, found in report.sizes.items():
        t, sizes = found.totals, ", ".join(f"{name} = {size}" for name, size in zip(names, key.split("x")))
        times = f"ONNX Runtime {ms(t.onnxruntime_ms)}   model's own operators {ms(t.original_ms)}   optimized {ms(t.optimized_ms)}"
        lines.append(f"  {sizes}: {times}   {ratio(t.speedup)}, {found.runs}; max error {found.verification.max_rel:.2g} of max|y|")
    later = f"the plan for other sizes is made when they are first run, in about {report.making.seconds:.0f} s, and kept beside the artifact"
    return [*lines, later, *(f"note: {note}" for note in report.notes), f"{report.total_s:.1f} s in all"]


def verify(options: argparse.Namespace, stored: GridProgram) -> int:
    """Print the verdict; exit code 1 where it is not "passed"."""
    from einnet.cli.progress import checks
    from einnet.compile.grid.audit_grid import audit_grid

    with checks() as tell:
        verdict = audit_grid(options.model, stored, options.seed, tell)
    if options.json:
        write_json(options.json, verdict)
    if options.json != "-":
        print("\n".join(verdict_lines(verdict, stored)))
    return 0 if verdict["passed"] else FAILED


def verdict_lines(verdict: dict[str, Any], stored: GridProgram) -> list[str]:
    """The verdict for people: a line for the plan of some sizes, and what is wrong with it."""
    from einnet.compile.grid.domain import sizes_of

    lines = list(verdict["problems"])
    for key, found in verdict["sizes"].items():
        proofs, numbers = found["certificate"], found["verification"]
        told = f"{proofs['derivations']} derivations with {proofs['steps']} steps, max error {numbers['max_rel']:.3g} of max|y|"
        lines.append(f"{stored.domain.told(sizes_of(key))}  {told}{'' if found['passed'] else '  FAILED'}")
        lines += [f"  {problem}" for part in found.values() if isinstance(part, dict) for problem in part.get("problems", ())]
    return [*lines, "passed" if verdict["passed"] else "FAILED"]


def explain(options: argparse.Namespace, stored: GridProgram) -> int:
    """Print what the plans run, and the derivations of each."""
    from einnet.derivation import einfile

    if options.why_not or options.all or options.limits:
        raise UsageError(f"{options.program} serves ranges of sizes: --why-not, --all and --limits look at a program for one size")
    plans = {stored.domain.told(sizes): [einfile.write(d) for d in stored.plan(sizes).derivations] for sizes in stored.known}
    if options.json:
        write_json(options.json, {**stored.report, "texts": plans})
    if options.json != "-":
        numbered = [f"\n{sizes}, derivation {n}\n\n{text}" for sizes, texts in plans.items() for n, text in enumerate(texts, 1)]
        show("\n".join([*summary(stored.record), *numbered]))
    return 0
