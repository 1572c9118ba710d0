"""The table at the end of an optimization."""

from __future__ import annotations

import sys
from pathlib import Path

from einnet.evidence.pages.precision_lines import precision_line
from einnet.evidence.pages.proof_text import ms, ratio, verdict_word
from einnet.evidence.pages.times import stages_line
from einnet.evidence.pages.verdict import opaque_line, reasons, verdict
from einnet.evidence.report.schema import Report, SubprogramRow, Verification

PIPED_WIDTH = 160
COLUMNS = (("", True), ("model nodes", False), ("original", True), ("chosen", True), ("runs as", False), ("by", False), ("cand.", True))
"""Titles, and whether a column stands to the right."""


def print_summary(report: Report, saved: Path | None, every: bool = False) -> None:
    """The verdict, a row for each distinct subprogram that was changed (or, of `every` one), then the totals."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
    console.print(Text(verdict(report), style="bold"), soft_wrap=True)
    for line in reasons(report):
        console.print(Text(line), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title, right in COLUMNS:
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    shown = rows(report, every)
    for row in shown:
        table.add_row(*map(Text, row))
    if shown:
        console.print()
        console.print(table)
    left = sum(not s.changed for s in report.subprograms)
    if left and not every:
        console.print(Text(f"{left} {'other ' if shown else ''}parts stay as the model has them (--all shows them)"))
    for line in totals(report, saved):
        console.print(Text(line), soft_wrap=True)


def rows(report: Report, every: bool = True) -> list[tuple[str, ...]]:
    """Cells of the table; equal subprograms share a row, the most expensive first. Not `every`: those that were changed."""
    groups: dict[str, list[SubprogramRow]] = {}
    for s in (s for s in report.subprograms if every or s.changed):
        groups.setdefault(s.key, []).append(s)
    ordered = sorted(groups.values(), key=lambda g: -(g[0].original_ms or 0.0) * len(g))
    return [row(group) for group in ordered]


def row(group: list[SubprogramRow]) -> tuple[str, ...]:
    """One row: times are those of one of the equal subprograms."""
    s = group[0]
    rules = ", ".join(dict.fromkeys(step.rule for step in s.steps)) if s.changed else ""
    kernels = "\n".join(shortened(k.kernel) for k in s.kernels) or "a view"
    nodes = s.nodes[0] + (f" +{len(s.nodes) - 1}" if len(s.nodes) > 1 else "") if s.nodes else s.output
    return (f"{len(group)}x", nodes, ms(s.original_ms), ms(s.measured_ms) if s.changed else "kept", kernels, rules, str(s.forms))


def shortened(kernel: str, most: int = 56) -> str:
    """A kernel's line, its end left out where it is long."""
    return kernel if len(kernel) <= most else kernel[: most - 3] + "..."


PROGRAMS = {"onnxruntime": "ONNX Runtime", "original": "model's own operators", "optimized": "optimized"}


def megabytes(nbytes: int | str | None) -> str:
    """12.3 MB."""
    return f"{nbytes / 1e6:.4g} MB" if isinstance(nbytes, int) else "not known"


def totals(report: Report, saved: Path | None) -> list[str]:
    """Whole-program times, verification and certificate."""
    title = ["", f"{report.model}, {report.backend}, {report.threads} threads"]
    measured = [] if report.kept_whole else measurements(report)
    notes = [line for line in [opaque_line(report)] if line] + [f"note: {note}" for note in report.notes]
    notes += [f"assumes finite inputs: {what}" for what in report.assumes_finite or ()]
    return [*title, *measured, *notes, f"saved to {saved}" if saved else "not saved; -o OUT.einnet does that"]


def verification_line(v: Verification) -> str:
    """passed, FAILED or not compared, and with what errors or why."""
    why = f" ({v.not_compared})" if v.not_compared else ""
    if v.passed is None:
        return f"not compared{why}"
    on = "" if v.compared_on == 1 else f" on {v.compared_on} sets of inputs"
    errors = f"max error {v.max_abs:.2g}, {v.max_rel:.2g} of max|y|{on}, allowed {v.tolerance:g}"
    return f"{verdict_word(v)}{why}: {errors}, a-priori bound {v.bound or 0.0:.2g} of sums of absolute products"


def measurements(report: Report) -> list[str]:
    """What was measured and proven."""
    t, v, c = report.totals, report.verification, report.certificate
    proofs = ", ".join(f"{n} {'by normal form' if m == 'inline' else 'at random points'}" for m, n in c.methods.items())
    lines = [f"ONNX Runtime {ms(t.onnxruntime_ms)}   model's own operators {ms(t.original_ms)}   optimized {ms(t.optimized_ms)}"]
    noise = f"   (noise {t.noise:.1%})"
    over = f", {t.speedup_over_original:.2f}x over the model's own operators" if t.speedup_over_original else ""
    lines.append(f"speedup {ratio(t.speedup)} over ONNX Runtime{over}{noise}")
    peaks = report.peak_bytes or {}
    lines.append("memory: " + ", ".join(f"{title} {megabytes(peaks.get(name))}" for name, title in PROGRAMS.items()))
    lines.append(f"verification {verification_line(v)}")
    limited = {name: e for name, e in v.outputs.items() if e.allowed is not None}
    lines += [f"  {name}: error {e.max_rel:.2g} of max|y|, allowed {e.allowed:g}" for name, e in limited.items()]
    lines += [precision_line(report.precision)] if report.precision else []
    lines.append(f"certificate: {c.derivations} derivations, {c.steps} steps" + (f" checked ({proofs})" if proofs else ""))
    lines.append(f"{t.states} states in {t.search_s:.1f} s of search, {t.total_s:.1f} s in all{stages_line(report.stages or [])}")
    if o := report.onnx_out:
        lines.append(
            f"as plain ONNX in ONNX Runtime: {ms(o.optimized_ms)}, {o.speedup:.2f}x the model's {ms(o.original_ms)}; "
            f"max error {o.verification.max_rel:.2g} of max|y|, {verdict_word(o.verification)}"
            + (", all products in float32" if report.precision else "")
        )
    return lines
