"""What profiles of cards and times of kernels are as files: JSON that is checked as it is read, so that an error says where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from einnet.records import Count, NotNegative, Positive, Record, added
from einnet.runtime.cuda.profiling.laws import Laws

Sample = tuple[NotNegative, NotNegative, Count]
"""Median and spread in seconds, and how many were taken."""


@dataclass(frozen=True, slots=True)
class Card:
    """float32 operations per second outside tensor cores, bytes per second of memory and to the host, seconds of a launch and of a wait."""

    peak: Positive
    bandwidth: Positive
    host_bandwidth: Positive
    launch: Positive
    wait: Positive


class Detail(Record):
    """More of a time: cold and hot seconds of all launches of a kernel, and by which generator it was made, if by one.

    `arithmetic` names that to which a generated kernel rounds the factors of its products; None where it does not.
    """

    kind: str
    seconds: Sample
    hot: Sample
    calls: int
    generator: str | None = None
    arithmetic: str | None = None


class Arithmetic(Record):
    """What a profile holds for one arithmetic of products, by the keys of kernels."""

    laws: Laws | None = None
    seconds: Mapping[str, Positive]
    details: Mapping[str, Detail] = added({})
    failed: Mapping[str, str] = added({})


class ProfileFile(Record):
    """A profile of a card."""

    format: Literal[2]
    device: str
    kind: Literal["measured", "estimate"]
    card: Card
    versions: Mapping[str, str]
    properties: Mapping[str, Any] = added({})
    arithmetics: Mapping[str, Arithmetic]


class Head(Record):
    """The first line of a file of times: the device, its figures in each arithmetic, and what could not be made a kernel of."""

    times: Literal[1]
    device: str
    properties: Mapping[str, Any]
    versions: Mapping[str, str]
    made_by: Mapping[str, str]
    card: Mapping[str, Card]
    failed: Mapping[str, str]


class Row(Record):
    """Every further line: seconds of all launches of a kernel, with cold weights and with hot ones; or why it does not run."""

    key: str
    kind: str
    math: str
    calls: int = 0
    seconds: Sample | None = None
    hot: Sample | None = None
    failed: str | None = None
    arithmetic: str | None = None
    """Of a generated kernel that rounds its factors."""

    def __post_init__(self) -> None:
        if (self.failed is None) != (self.seconds is not None and self.hot is not None):
            raise ValueError("it has either times or a reason why there are none")
