"""The steps of a CUDA program as plain data: what each launches, on which bytes, and with which algorithm of a library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from einnet.evidence.pages.story_schema import CardStep, Grid, PlanRow
from einnet.evidence.report.card_schema import StepTime
from einnet.instantiate.kernels import Conv, OpaqueCall
from einnet.instantiate.kernels.contractions import told_arithmetic
from einnet.runtime.cpu.roofline import moved
from einnet.runtime.cuda.program import CudaProgram, Gemm, Generated, Rounded, Step, calls
from einnet.runtime.cuda.tuning import Tuning, step_key

ITEM = 4
"""Bytes of a float32."""

BY = {Generated: "generated", Gemm: "cuBLASLt", Rounded: "cuBLASLt", Conv: "cuDNN", OpaqueCall: "ONNX Runtime on the host"}
"""What runs a step."""


def steps(program: CudaProgram, tunings: Sequence[Tuning], rows: Sequence[StepTime]) -> list[CardStep]:
    """Every step in order, with its row of the report. Raises ValueError where there are more or fewer rows than steps."""
    return [step_story(step, tunings, row) for step, row in zip(program.steps, rows, strict=True)]


def step_story(step: Step, tunings: Sequence[Tuning], row: StepTime) -> CardStep:
    """One step."""
    launched = step.launches if isinstance(step, (Generated, Rounded)) else ()
    grids = [Grid(function=x.function, grid=list(x.grid), block=list(x.block)) for x in launched]
    return CardStep(
        kernel=step_text(step), ms=row.ms, predicted_ms=row.predicted_ms, estimated=row.estimated, key=row.key, nodes=row.nodes,
        by=BY[type(step)],
        launches=calls(step),
        grids=grids,
        bytes=step_bytes(step),
        plans=[PlanRow(device=t.device, math=t.math, plan=plan) for t, plan in plans(step, tunings)],
    )  # fmt: skip


def step_text(step: Step) -> str:
    """The step and its sizes in one line."""
    match step:
        case Rounded(product):
            copied = f", {len(step.launches)} rounded before" if step.launches else ""
            return f"{step_text(product)}{copied}"
        case Gemm(m, n, k):
            count = "x".join(str(b.count) for b in step.batches)
            posts = ("+bias" if step.bias else "") + ("+relu" if step.relu else "")
            layout = "".join("n" if x.column == 1 else "t" for x in (step.a, step.b, step.c))
            return f"Matmul {count + ' x ' if count else ''}{m}x{k}x{n}{told_arithmetic(step.factors)}{posts} ({layout})"
        case Generated(operator):
            return operator.describe()
    return step.describe()


def step_bytes(step: Step) -> int:
    """Bytes that are read and written at least; what a batch has in common counts once."""
    match step:
        case Rounded(product):
            return step_bytes(product)
        case Gemm(m, n, k):
            a, b, c = (prod(x.count for x in step.batches if getattr(x, name)) for name in "abc")
            return ITEM * (m * k * a + k * n * b + m * n * c + (n if step.bias else 0))
        case Generated(operator):
            return moved(operator)
    return moved(step)


def plans(step: Step, tunings: Sequence[Tuning]) -> Iterator[tuple[Tuning, str]]:
    """The algorithm that was chosen for a library's step on each card where it has run."""
    step = step.inner if isinstance(step, Rounded) else step
    if not isinstance(step, (Gemm, Conv)):
        return
    for tuning in tunings:
        choice = tuning.choices.get(step_key(step))
        if isinstance(choice, bytes):
            yield tuning, f"algorithm {choice.hex()[:16]}"
        elif choice is not None:
            yield tuning, f"engine {choice.engine}" + "".join(f" {name}={value}" for name, value in choice.knobs)
