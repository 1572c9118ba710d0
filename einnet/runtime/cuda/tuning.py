"""Which algorithm of a library each step runs, chosen by time on a device: plain data that a program carries to the next run there."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar, Union

from einnet.instantiate.kernels import Conv
from einnet.instantiate.kernels.arithmetics import F32
from einnet.records import Record
from einnet.runtime.cuda.convolutions import Plan
from einnet.runtime.cuda.driver import Call, Driver
from einnet.runtime.cuda.program import Gemm
from einnet.runtime.serial import canonical, kernel_json

ROUNDS = 5
REPEATS = 10
"""Launches in one graph, so that a short kernel is not hidden by what a launch costs."""

Choice = Union[bytes, Plan]
Chosen = TypeVar("Chosen", bytes, Plan)


@dataclass(frozen=True)
class Tuning:
    """Choices by step, for one device, one arithmetic and these versions; on others they mean nothing."""

    device: str = ""
    math: str = "fp32"
    versions: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)

    def holds_for(self, device: str, math: str, versions: Mapping[str, str]) -> bool:
        return (self.device, self.math, dict(self.versions)) == (device, math, dict(versions))


def step_key(step: Gemm | Conv) -> str:
    """The step as a short text: equal steps on other buffers are other steps, since their addresses decide what is aligned."""
    value = {"gemm": _told(step)} if isinstance(step, Gemm) else kernel_json(step, lambda model: "")
    return hashlib.blake2b(canonical(value).encode(), digest_size=16).hexdigest()


def _told(step: Gemm) -> dict[str, Any]:
    """All of a product; float32, which older programs do not name, is left out."""
    return {name: value for name, value in asdict(step).items() if (name, value) != ("arithmetic", F32.name)}


def fastest(driver: Driver, proposals: Sequence[Chosen], bind: Callable[[Chosen], Sequence[Call]]) -> Chosen:
    """The proposal whose calls take least time; one alone is not timed."""
    if len(proposals) == 1:
        return proposals[0]
    graphs = []
    for proposal in proposals:
        calls = list(bind(proposal))
        for call in calls:  # once before it is captured: libraries set themselves up in their first call
            call()
        driver.wait()
        graphs.append(driver.capture(calls * REPEATS))
    times: list[list[float]] = [[] for _ in graphs]
    for n in range(ROUNDS + 1):
        for taken, graph in zip(times, graphs, strict=True):
            seconds = driver.seconds(graph)
            if n:
                taken.append(seconds)
    medians = [statistics.median(t) for t in times]
    return proposals[medians.index(min(medians))]


class TuningFile(Record):
    """A tuning as it stands in a program: an algorithm of cuBLASLt as hexadecimal digits, of cuDNN as a plan."""

    device: str
    math: str
    versions: dict[str, str]
    choices: dict[str, str | Plan]


def tuning_file(tuning: Tuning) -> TuningFile:
    """The tuning as it is stored."""
    choices = {key: choice.hex() if isinstance(choice, bytes) else choice for key, choice in tuning.choices.items()}
    return TuningFile(device=tuning.device, math=tuning.math, versions=dict(tuning.versions), choices=choices)


def read_tuning(stored: TuningFile) -> Tuning:
    """The inverse. Raises ValueError for digits that are none."""
    choices = {key: bytes.fromhex(choice) if isinstance(choice, str) else choice for key, choice in stored.choices.items()}
    return Tuning(stored.device, stored.math, stored.versions, choices)
