"""The sizes of a range: how they are written, which of them are measured, and how long each takes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

from einnet.errors import UsageError
from einnet.graph.dimension import Dimension

MOST_SIZES = 256
"""Sizes that one artifact serves at most: each has a plan of its own."""

PART_S, MEASURING_RUNS = 0.15, 40
"""What measuring at a size takes: seconds for each distinct subprogram, most of them for compiling, and runs of the program."""

START_S, FOLLOWING_RUNS = 0.25, 3
"""What following takes, beside reading the model: seconds, and runs of the program, in ONNX Runtime too."""


def dimension_of(given: str | tuple[str, int, int], most: int | None = MOST_SIZES) -> Dimension:
    """The dimension of "batch=1..32" or ("batch", 1, 32). Raises UsageError for what is neither, an empty range and more than `most` sizes."""
    try:
        name, lowest, highest = _split(given) if isinstance(given, str) else given
    except ValueError as error:
        raise UsageError(f'{given!r} is no range of sizes: expected "batch=1..32" or ("batch", 1, 32)') from error
    if lowest < 1 or highest < lowest:
        raise UsageError(f"{name} in {lowest}..{highest} is no range of sizes: the lowest is 1 or more, and not above the highest")
    if most is not None and highest - lowest + 1 > most:
        raise UsageError(f"{name} in {lowest}..{highest} has {highest - lowest + 1} sizes; an artifact serves {most} at most")
    return Dimension(str(name), int(lowest), int(highest))


def _split(text: str) -> tuple[str, int, int]:
    match = re.fullmatch(r"(.+)=(\d+)\.\.(\d+)", text)
    if not match:
        raise ValueError(text)
    return match[1], int(match[2]), int(match[3])


def measured_sizes(dimension: Dimension) -> list[int]:
    """The ends of the range, and two between: small batches differ most from each other."""
    low, high = dimension.lowest, dimension.highest
    return sorted({low, min(3 * low, high), max(high // 2, low), high})


def distance(a: int, b: int) -> float:
    """How many doublings lie between two sizes."""
    return abs(log2(a / b))


def nearest(size: int, sizes: Iterable[int]) -> int:
    """The size that is nearest by ratio."""
    return min(sizes, key=lambda other: distance(size, other))


@dataclass(frozen=True)
class Effort:
    """What sizes take, told from one: reading the model takes `reading_s`, compiling what runs `compiling_s`, a run at size `at` `run_s` seconds.

    `parts` counts the distinct subprograms.
    """

    reading_s: float
    compiling_s: float
    run_s: float
    at: int
    parts: int

    def measuring(self, size: int) -> float:
        """Seconds to measure candidates and whole programs at a size."""
        return self.reading_s + self.compiling_s + PART_S * self.parts + MEASURING_RUNS * self.run_s * size / self.at

    def following(self, size: int) -> float:
        """Seconds to do at a size what another does, and to compare it with ONNX Runtime."""
        return self.reading_s + self.compiling_s + START_S + FOLLOWING_RUNS * self.run_s * size / self.at
