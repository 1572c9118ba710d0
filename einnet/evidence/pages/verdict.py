"""What came out of an optimization, in the few sentences that a person reads first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from einnet.evidence.report.schema import KernelRow, Report

NOISY = 0.10
"""The noise of a comparison beyond which its ratio is no headline."""

BINDS = 0.5
"""The share of the machine's peak, or of its memory bandwidth, from which that is what binds a kernel."""

UNSURE = "not measured well enough (noise {:.0%})"

NEGLIGIBLE = 0.05
"""Shares of the time that no sentence is spent on."""


def verdict(report: Report) -> str:
    """One sentence: what is faster, by how much, and how much of the model changed."""
    totals, changed, parts = report.totals, sum(s.changed for s in report.subprograms), len(report.subprograms)
    if report.verification.passed is False:
        return "the program that was found does not give the model's results: nothing of it is to be used"
    if report.runs == "whole model":
        alone = f"; {changed} of {parts} parts are faster alone" if changed else ""
        return f"{'nothing was faster' if totals.noise <= NOISY else UNSURE.format(totals.noise)}: ONNX Runtime is kept{alone}"
    derived = f"{changed} of {parts} parts changed" if report.runs == "derived" else "the model's own operators, no part changed"
    if totals.speedup is None:
        return f"ONNX Runtime was timed once: no ratio; {derived}"
    if totals.noise > NOISY:
        return f"{UNSURE.format(totals.noise)}, about {totals.speedup:.2f}x of ONNX Runtime's speed; {derived}"
    if totals.speedup > 1 + totals.noise:
        return f"{totals.speedup:.2f}x faster than ONNX Runtime; {derived}"
    if totals.speedup < 1 - totals.noise:
        return f"slower than ONNX Runtime ({totals.speedup:.2f}x); {derived}"
    return f"as fast as ONNX Runtime ({totals.speedup:.2f}x, noise {totals.noise:.1%}); {derived}"


def reasons(report: Report) -> list[str]:
    """Where little or nothing changed: what binds the time, and what could be tried."""
    kept = report.runs == "whole model"
    if report.kept_whole or (not kept and any(s.changed for s in report.subprograms)):
        return []
    asked = report.settings
    cut = any(s.stopped_at is not None for s in report.subprograms)
    tries = [] if asked.allow == "precision" else ["--allow precision"]
    tries += [f"--time-budget {2 * asked.time_budget:g}"] if cut and asked.derive else []
    bound = binding(report.own_kernels or [] if kept else report.kernels)
    whose = "the model's own operators are" if kept else "the time is"
    return [*([f"{whose} bound by {bound}"] if bound else []), *([f"to try: {' or '.join(tries)}"] if tries else [])]


def binding(kernels: Sequence[KernelRow]) -> str:
    """What binds the kernels of a program, by their share of its time: `arithmetic (61 %), memory (20 %)`; nothing of no kernels."""
    shares: dict[str, float] = {}
    for k in kernels:
        shares[binds(k)] = shares.get(binds(k), 0.0) + k.ms
    total = sum(shares.values())
    return ", ".join(f"{what} ({ms / total:.0%})" for what, ms in sorted(shares.items(), key=lambda s: -s[1]) if ms > NEGLIGIBLE * total)


def binds(kernel: KernelRow) -> str:
    """What binds one kernel: the peak, main memory, or neither."""
    if kernel.share_of_peak is None:
        return "nodes that ONNX Runtime executes"
    if kernel.share_of_peak >= max(BINDS, kernel.share_of_bandwidth):
        return "arithmetic near the peak"
    if kernel.share_of_bandwidth >= BINDS:
        return "memory"
    return "neither the peak nor memory: latency, caches, short loops"


def opaque_line(report: Report) -> str | None:
    """The nodes without an expression, counted by operator, with the reason of each kind; None where there are none."""
    if not report.opaque:
        return None
    kinds = Counter((" + ".join(dict.fromkeys(n.partition(" ")[0] for n in node.nodes)), node.why) for node in report.opaque)
    told = "; ".join(f"{count} {name}" + (f" ({why})" if why else "") for (name, why), count in kinds.most_common())
    return f"opaque, run by ONNX Runtime inside the program: {told}"
