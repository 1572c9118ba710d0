"""What was measured of kernels and programs on one H100, as data: times of kernels alone and of programs with their steps.

The file holds kernels in the form of requests, by number; `alone` are seconds of products and convolutions with the largest operand cold, as
weights are in a program, `hot` those of generated kernels and convolutions with all operands where the run before left them. A program has the
time of one replay of its graph and its steps, each with its time alone and, where the card's own record of kernels tells it, in its place: what
its kernels take and 0.35 us from each to the next. Generated kernels of which another text is written since are named by `changed`: their times
count for programs, and say nothing of what such a kernel takes today.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul
from einnet.runtime.cuda.gemm import gemm
from einnet.runtime.cuda.profiling.card_files import Card
from einnet.runtime.cuda.profiling.profile import Profile
from einnet.runtime.serial import read_kernel

RECORD = Path(__file__).with_name("h100-record.json.gz")
LATER = Path(__file__).with_name("h100-batches.json.gz")
"""What was timed later: kernels, mostly of batches of 16, and the programs of another search, without the times of their steps."""


@dataclass(frozen=True)
class Measured:
    """A program that was measured: the microseconds of a replay, and its kernels, each with those that it takes alone and in its place, if known."""

    model: str
    math: str
    search: str
    us: float
    back_to_back_us: float
    steps: Sequence[tuple[Kernel, float | None, float | None]]


@dataclass(frozen=True)
class Record:
    """One card's measurements. Times are seconds by kernel, for each arithmetic; of the kernels that `changed` another text is written today."""

    card: Profile
    alone: Mapping[str, Mapping[Kernel, float]]
    hot: Mapping[str, Mapping[Kernel, float]]
    programs: Sequence[Measured]
    changed: frozenset[Kernel] = frozenset()

    def times(self, math: str) -> Iterator[tuple[Kernel, float]]:
        """Every kernel with its time as a program meets it: in its place, else with cold weights; what was only measured hot is left out.

        Generated code has no arithmetic of products, and no weights that are worth a name.
        """
        generated: dict[Kernel, float] = {}
        for kernel, t in (row for times in self.hot.values() for row in times.items()):
            if isinstance(kernel, EOperator):
                generated[kernel] = min(t, generated.get(kernel, t))
        return iter({**generated, **self.alone[math], **self.placed(math)}.items())

    def placed(self, math: str) -> dict[Kernel, float]:
        """Convolutions and generated kernels with the median of what they take in programs: with what it takes to begin one behind another."""
        found: dict[Kernel, list[float]] = {}
        for program in self.programs:
            for kernel, _, us in program.steps:
                known = isinstance(kernel, EOperator) and kernel not in self.changed or isinstance(kernel, Conv) and program.math == math
                if known and us is not None:
                    found.setdefault(kernel, []).append(us * 1e-6)
        return {k: median(times) for k, times in found.items()}


Times = dict[str, dict[Kernel, float]]


def read(path: Path = RECORD, *, later: Path | None = LATER) -> Record:
    """The record, with what was timed later."""
    value, alone, hot, programs, changed = _opened(path)
    if later is not None and later != path:
        _, *more, more_programs, more_changed = _opened(later)
        programs, changed = programs + more_programs, changed | more_changed
        for kept, times in zip((alone, hot), more, strict=True):
            for math, found in times.items():
                kept[math] = {**kept.get(math, {}), **found}
    card = Profile(value["device"], Card(**value["card"]), True, value["versions"], properties=value["properties"])
    return Record(card, alone, hot, programs, changed)


def _opened(path: Path) -> tuple[dict[str, Any], Times, Times, list[Measured], frozenset[Kernel]]:
    """A file, its times of products and convolutions alone, its hot ones, its programs, and the kernels that are written otherwise today."""
    value: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    kernels = [read_kernel(k, lambda n: b"") for k in value["kernels"]]
    changed = set(value.get("changed", ()))
    alone, hot = (
        {math: {kernels[n]: us * 1e-6 for n, us in found if n not in changed} for math, found in value[name].items()} for name in ("alone", "hot")
    )
    programs = [
        Measured(p["model"], p["math"], p["search"], p["us"], p["back_to_back_us"], [(kernels[n], us, placed) for n, us, placed in p["steps"]])
        for p in value["programs"]
    ]
    return value, alone, hot, programs, frozenset(kernels[n] for n in changed)


def lasting(kernel: Kernel) -> bool:
    """The time of the kernel says what it takes today: it was measured as it is run.

    Products whose batches have no common stride were run call by call then, each for one batch dimension.
    """
    return not isinstance(kernel, Matmul) or not gemm(kernel).scattered


def one_call(kernel: Kernel) -> tuple[Kernel, int]:
    """The kernel as a call of a library ran it when it was measured, and how often it was called: each for the innermost batch dimension."""
    if lasting(kernel):
        return kernel, 1
    assert isinstance(kernel, Matmul)
    step = gemm(kernel)
    return replace(step, batches=step.batches[-1:]).kernel, prod(b.count for b in step.batches[:-1])


def kind(kernel: Kernel) -> str:
    """The law that prices the kernel."""
    if isinstance(kernel, Conv):
        return "transposed" if kernel.transposed else "convolutions"
    return "products" if isinstance(kernel, Matmul) else "generated"


