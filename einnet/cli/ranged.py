"""What the commands do with a range of sizes: optimize --dynamic, verify, explain, check."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from einnet.cli.colour import show
from einnet.cli.files import write_json
from einnet.errors import CertificateError, EinNetError, UsageError

if TYPE_CHECKING:
    from einnet.compile.grid.target import GridOptimization
    from einnet.compile.ranges.served import RangedProgram
    from einnet.compile.ranges.target import DynamicOptimization
    from einnet.evidence.report.ranged_schema import RangedReport

FAILED = 1


def optimize(options: argparse.Namespace, chosen: Any) -> int:
    """Optimize for a range of sizes; exit code 1 where a size does not pass its verification."""
    from einnet.api.optimize import optimize as optimize_model
    from einnet.cli.progress import progress
    from einnet.compile.ranges.range_report import passed
    from einnet.compile.ranges.target import DynamicOptimization

    with progress(options.quiet) as report:
        result = optimize_model(options.model, chosen, dynamic=options.dynamic, progress=report)
    assert isinstance(result, DynamicOptimization), "one dimension has a range"
    return finish(options, result, passed(result.record), summary(result.record))


def finish(options: argparse.Namespace, result: DynamicOptimization | GridOptimization, good: bool, told: list[str]) -> int:
    """Save what passed, write the report and print what is told of it; exit code 1 where it did not pass."""
    if options.output and good:
        result.save(options.output)
    if options.json:
        write_json(options.json, result.report)
    if not options.quiet and options.json != "-":
        saved = [f"saved to {options.output}"] if options.output and good else ["not saved; -o OUT.einnet does that"]
        print("\n".join([*told, *saved]))
    return 0 if good else FAILED


def summary(report: RangedReport) -> list[str]:
    """The measured sizes with their times, all others with what they follow, the derivations and the guards."""
    from einnet.evidence.pages.proof_text import ms, ratio

    told = report.dynamic
    lines = [f"{report.model}, {report.backend}, {report.threads} threads, {told.name} in {told.lowest}..{told.highest}"]
    lines += [f"note: every size was searched by itself: {told.problem}"] if told.problem else []
    for size, found in report.sizes.items():
        if whole := found.report:
            t = whole.totals
            times = f"ONNX Runtime {ms(t.onnxruntime_ms)}   model's own operators {ms(t.original_ms)}   optimized {ms(t.optimized_ms)}"
            followers = sum(1 for other in report.sizes.values() if other.follows == int(size))
            lines.append(f"  {told.name} = {size}: {times}   {ratio(t.speedup)}, {whole.runs}; {followers} sizes do as this one")
    problems = [(size, found.problem) for size, found in report.sizes.items() if found.problem and not told.problem]
    lines += [f"  {told.name} = {size}: searched by itself: {why}" for size, why in problems]
    verdicts = [found.verification for found in report.sizes.values()]
    worst, good = max(v.max_rel for v in verdicts), sum(bool(v.passed) for v in verdicts)
    lines.append(f"verification passed at {good} of {len(verdicts)} sizes: max error {worst:.2g} of max|y|, allowed {verdicts[0].tolerance:g}")
    derivations = report.derivations
    lines.append(f"certificate: {len(derivations)} derivations, {sum(d.steps for d in derivations)} steps, proven at every size where they run")
    lines += holding(Counter(d.holds for d in derivations if d.holds is not None))
    lines += guard_lines(report)
    return [*lines, *(f"note: {note}" for note in report.notes), f"{report.total_s:.1f} s in all"]


def holding(claims: Mapping[str, int]) -> list[str]:
    """How many derivations hold where, and by what."""
    return [f"  {count} {'holds' if count == 1 else 'hold'} {where}" for where, count in claims.items()]


def guard_lines(report: RangedReport, most: int = 3) -> list[str]:
    """What did not come over to a size."""
    guards = report.guards
    if not guards.count:
        return []
    told = [f"  not at {report.dynamic.name} = {g.size}: {', '.join(g.rules) or 'no steps'}: {g.why}" for g in guards.told[:most]]
    return [f"{guards.count} candidates did not come over to a size", *told]


def is_ranged(text: str) -> bool:
    """The text is a derivation for a range of sizes."""
    from einnet.derivation.ranged import is_ranged as found

    return found(text)


def check(options: argparse.Namespace, text: str, title: str) -> int:
    """Prove a derivation at every size at which it is claimed to hold. CertificateError (exit code 1) at the first step that does not."""
    from einnet.derivation.ranged import parse, spans

    try:
        file = parse(text)
        claim = file.check()
    except EinNetError as error:
        if options.json and isinstance(error, CertificateError):
            write_json(options.json, {"file": title, "passed": False, "problem": str(error)})
        raise type(error)(f"{title}: {error}") from error
    steps = [line.removeprefix("by ") for line in file.body.splitlines() if line.startswith("by ")]
    if options.json:
        told = {str(size): [[p.method, p.details, p.points, p.kind] for p in found] for size, found in claim.proofs.items()}
        write_json(options.json, {"file": title, "passed": True, "name": file.name, "holds": claim.holds, "sizes": told})
    if options.json != "-":
        for number, (step, proof) in enumerate(zip(steps, claim.proofs[file.sizes[0]]), 1):
            print(f"{number}. {step}   {proof.method}: {proof.details}")
        print(f"{title}: {len(steps)} steps hold at {file.name} = {spans(file.sizes)}: {claim.holds}")
    return 0


def verify(options: argparse.Namespace, stored: RangedProgram) -> int:
    """Print the verdict; exit code 1 where it is not "passed"."""
    from einnet.cli.progress import checks
    from einnet.compile.ranges.audit_ranged import audit_ranged

    with checks() as tell:
        verdict = audit_ranged(options.model, stored, options.seed, tell)
    if options.json:
        write_json(options.json, verdict)
    if options.json != "-":
        print("\n".join(verdict_lines(verdict, stored.name)))
    return 0 if verdict["passed"] else FAILED


def verdict_lines(verdict: dict[str, Any], name: str) -> list[str]:
    """The verdict for people."""
    proofs = verdict["certificate"]
    counts = ", ".join(f"{n} {'by normal form' if m == 'inline' else 'at random points'}" for m, n in proofs["methods"].items())
    lines = [f"derivations  {proofs['derivations']} with {proofs['steps']} steps, at every size where they run" + (f": {counts}" if counts else "")]
    lines += holding(proofs["claims"])
    lines += [f"  {problem}" for problem in proofs["problems"]]
    for size, found in verdict["sizes"].items():
        mark = "" if found["passed"] else "  FAILED"
        errors = f"max error {found['max_abs']:.3g}, {found['max_rel']:.3g} of max|y|; allowed {found['tolerance']:g}"
        lines.append(f"{name} = {size}  {errors}; {told(found)}{mark}")
        lines += [f"  {problem}" for problem in found["problems"]]
    return [*lines, "passed" if verdict["passed"] else "FAILED"]


def told(found: Mapping[str, Any]) -> str:
    """What is known of the plan of one size, in a few words."""
    if found["whole"]:
        return "ONNX Runtime runs the whole model"
    if "lifting" not in found:
        return "not lifted"
    parts, constants, kernels, numbers = (found[name] for name in ("lifting", "constants", "kernels", "subprograms"))
    held = constants["weights"] + constants["computed"] + constants["tables"]
    tested = f", {parts['tested']} tested at points only" if parts["tested"] else ""
    subprograms = f"{parts['proven'] + parts['by_derivation']} of {parts['subprograms']} subprograms proven{tested}"
    return (
        f"{subprograms}, {held} of {constants['constants']} constants, {kernels['exact'] + kernels['bounded']} of {kernels['distinct']} kernels, "
        f"{numbers['subprograms']} of {numbers['of']} within their bounds"
    )


def explain(options: argparse.Namespace, stored: RangedProgram) -> int:
    """Print what every size runs, and the derivations with the size as a name."""
    if options.why_not or options.all:
        raise UsageError(f"{options.program} serves a range of sizes: --why-not and --all look at a program for one size")
    told = {**stored.report, "texts": [str(text) for text in stored.derivations]}
    if options.json:
        write_json(options.json, told)
    if options.json != "-":
        numbered = [f"\nDerivation {n}\n\n{text}" for n, text in enumerate(told["texts"], 1)]
        show("\n".join([*summary(stored.record), *numbered]))
    return 0
