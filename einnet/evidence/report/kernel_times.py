"""Where the time of a program goes: every kernel timed in its place, beside what was predicted and what the machine could do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from einnet.evidence.report.schema import CostModelRow, KernelRow
from einnet.graph.program import Opaque
from einnet.instantiate.kernels import Kernel, OpaqueCall, Plan
from einnet.records import changed
from einnet.runtime.cpu import roofline
from einnet.search.time_shares import PROFILE_S

if TYPE_CHECKING:
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.cpu.roofline import Machine
    from einnet.search.outcome import Outcome

MOST, LEAST = 30, 2
"""Runs of a profile at most and at least."""


@dataclass(frozen=True)
class Owner:
    """What a kernel was made for: the subprogram's key (None for an opaque node) and the model's nodes."""

    key: str | None
    nodes: tuple[str, ...]


def owners(outcome: Outcome, plan: Plan) -> list[Owner]:
    """For each kernel, the part of the program whose result it, or the first kernel after it that writes such a result, writes."""
    known = {r.subprogram.output.name: Owner(r.subprogram.key, tuple(r.subprogram.origin)) for r in outcome.results}
    for node in outcome.program.nodes:
        if isinstance(node, Opaque):
            known.update((t.name, Owner(None, tuple(node.origin))) for t in node.outputs)
    found: list[Owner] = []
    current = Owner(None, ())
    for kernel in reversed(plan.kernels):
        current = next((known[v.buffer] for v in kernel.result_views if v.buffer in known), current)
        found.append(current)
    return found[::-1]


def kernel_profile(outcome: Outcome, executable: Executable, cost: CpuCost, expected_s: float) -> list[KernelRow]:
    """One entry for each kernel of the program, in its order; `expected_s` is the time of an inference, which decides how often it is run.

    Times are ms inside the program, operands as warm or cold as they are there. `flops` and `bytes` are counted from the kernel: operations
    (two for a multiply-add), and bytes that have to move at least. `predicted_ms` is what the choice was made by: measured alone with cold
    weights, or (`estimated`) a roofline estimate; `roofline_ms` that estimate in any case.
    """
    plan, machine = executable.plan, cost.machine
    executable.randomize()
    times = executable.profile(max(LEAST, min(MOST, round(PROFILE_S / max(expected_s, 1e-9)))))
    predicted = cost.like(plan).timings(plan.kernels)
    found: list[KernelRow] = []
    for time, owner, prediction in zip(times, owners(outcome, plan), predicted, strict=True):
        known = not isinstance(time.kernel, OpaqueCall)
        row = rates(time.kernel, time.timing.median, machine)
        found.append(changed(
            row,
            implementation=time.implementation,
            key=owner.key,
            nodes=list(owner.nodes),
            spread_ms=time.timing.spread * 1e3,
            predicted_ms=finite(prediction.median * 1e3) if known or not prediction.estimated else None,
            estimated=prediction.estimated,
            roofline_ms=finite(roofline.estimate(time.kernel, machine) * 1e3) if known else None,
        ))  # fmt: skip
    return found


def rates(kernel: Kernel, seconds: float, machine: Machine) -> KernelRow:
    """A kernel with its time: operations, bytes, what it does of them in a second, and its shares of the machine's peak and memory bandwidth.

    The bandwidth is that of main memory: what is read from a cache can exceed it. Operations of an opaque node are not known.
    """
    moved, operations = roofline.moved(kernel), None if isinstance(kernel, OpaqueCall) else roofline.flops(kernel)
    return KernelRow(
        kernel=kernel.describe(), implementation="", key=None, nodes=[], ms=seconds * 1e3, spread_ms=0.0,
        predicted_ms=None, estimated=False, roofline_ms=None,
        flops=operations,
        bytes=moved,
        gflops=None if operations is None else operations / seconds / 1e9,
        gbs=moved / seconds / 1e9,
        share_of_peak=None if operations is None else operations / seconds / machine.peak,
        share_of_bandwidth=moved / seconds / machine.bandwidth,
    )  # fmt: skip


def cost_model(entries: Sequence[KernelRow]) -> CostModelRow:
    """How far predictions were from what kernels took in their places, as |predicted - measured| / measured: median and worst.

    `estimated` counts kernels that nobody measured alone; they were predicted by the roofline, whose own error over all kernels stands beside.
    """
    given = [(e, e.predicted_ms) for e in entries if e.predicted_ms is not None]
    errors = [off(p, e.ms) for e, p in given]
    worst = max(range(len(given)), key=lambda n: errors[n], default=None)
    roofline = [off(e.roofline_ms, e.ms) for e, _ in given if e.roofline_ms is not None]
    return CostModelRow(
        kernels=len(given),
        estimated=sum(e.estimated for e, _ in given),
        predicted_ms=sum(p for _, p in given),
        measured_ms=sum(e.ms for e, _ in given),
        median_error=median(errors) if errors else None,
        worst_error=None if worst is None else errors[worst],
        worst_kernel=None if worst is None else given[worst][0].kernel,
        roofline_median_error=median(roofline) if roofline else None,
        roofline_worst_error=max(roofline, default=None),
    )


def finite(x: float) -> float | None:
    """None for what was not measured or cannot run: JSON has no infinity."""
    return x if x < float("inf") else None


def off(predicted: float, measured: float) -> float:
    """The relative error of a prediction."""
    return abs(predicted - measured) / measured
