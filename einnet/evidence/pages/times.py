"""Where the time of a program goes, as people read it: a line for each kernel, the slowest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from einnet.evidence.report.card_schema import StepTime
from einnet.evidence.report.schema import CostModelRow, KernelRow, StageRow

WIDEST = 76
"""Characters of a kernel's description that a line has room for."""


def time_lines(kernels: Sequence[KernelRow], model: CostModelRow | None, numbers: Mapping[str, int]) -> list[str]:
    """The kernels of a profile; `numbers` gives the derivation that made those of a subprogram, by key, the others are the model's own.

    A prediction marked ~ is a roofline estimate: that kernel was not measured alone.
    """
    if not kernels:
        return []
    total = sum(k.ms for k in kernels)
    rows: list[tuple[str, ...]] = [("ms", "share", "GFLOP/s", "of peak", "GB/s", "of memory", "predicted", "kernel and what made it")]
    rows += [(*figures(k, total), f"{shortened(k.kernel)}   {maker(k, numbers)}") for k in sorted(kernels, key=lambda k: -k.ms)]
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]) - 1)]
    lines = ["  " + "  ".join([*(v.rjust(w) for v, w in zip(r, widths)), r[-1]]) for r in rows]
    return [f"Where the time goes: {len(kernels)} kernels, {total:.3g} ms one after the other", "", *lines, "", *error_lines(model), ""]


def figures(k: KernelRow, total: float) -> tuple[str, ...]:
    """The numbers of a line; a dash for what is not known of an opaque node."""
    rate = ("–", "–") if k.gflops is None else (f"{k.gflops:.3g}", f"{k.share_of_peak:.0%}")
    predicted = "–" if k.predicted_ms is None else f"{'~' if k.estimated else ''}{k.predicted_ms:.3g}"
    return (f"{k.ms:.3g}", f"{k.ms / total:.0%}", *rate, f"{k.gbs:.3g}", f"{k.share_of_bandwidth:.0%}", predicted)


def maker(k: KernelRow | StepTime, numbers: Mapping[str, int]) -> str:
    """The derivation, or the model's own node."""
    nodes = (k.nodes[0] + (f" +{len(k.nodes) - 1}" if len(k.nodes) > 1 else "")) if k.nodes else "a program pass"
    number = numbers.get(k.key or "")
    return f"[Derivation {number}, {nodes}]" if number else f"[{nodes}]"


def error_lines(model: CostModelRow | None) -> list[str]:
    """How good the predictions were."""
    if model is None or model.worst_kernel is None:
        return []
    lines = [f"  predicted {model.predicted_ms:.3g} ms, measured {model.measured_ms:.3g} ms in place; error of a kernel's prediction: "
             f"median {model.median_error:.0%}, worst {model.worst_error:.0%} ({shortened(model.worst_kernel)})"]  # fmt: skip
    if model.roofline_median_error is not None:
        lines.append(f"  the roofline alone: median {model.roofline_median_error:.0%}, worst {model.roofline_worst_error:.0%}")
    if model.estimated:
        lines.append(f"  {model.estimated} of {model.kernels} were predicted by the roofline (~): nobody measured them alone")
    return lines


def stages_line(stages: Sequence[StageRow], share: float = 0.1) -> str:
    """The stages that took more than a share of the making, in parentheses; nothing where they were not recorded."""
    total = sum(s.seconds for s in stages)
    told = ", ".join(f"{s.stage} {s.seconds:.1f}" for s in stages if s.seconds > share * total)
    return f" ({told})" if told else ""


def stage_table(stages: Sequence[StageRow]) -> list[str]:
    """A line for each stage of the making: seconds of the clock, and of the processor in all threads."""
    if not stages:
        return []
    width = max(len(s.stage) for s in stages)
    rows = [f"{s.stage:<{width}}  {s.seconds:>8.2f}  {s.processor_s:>9.2f}" for s in stages]
    return ["what the making took, in seconds", f"{'':<{width}}  {'clock':>8}  {'processor':>9}", *rows]


def shortened(kernel: str) -> str:
    """A kernel's description, its end left out where it is long."""
    return kernel if len(kernel) <= WIDEST else kernel[: WIDEST - 3] + "..."
