"""The report of a program for many sizes as a record."""

from __future__ import annotations

from einnet.evidence.report.schema import Head, Report, Verification
from einnet.records import Record, renamed


class Range(Record):
    """The dimension of a program for many sizes, and the size at which it was searched; `problem` says why each was searched by itself."""

    name: str
    lowest: int
    highest: int
    representative: int
    problem: str | None
    shapes: dict[str, list[int]]


class SizeRow(Record):
    """One size: measured, with its own report, or run as the measured size that it `follows`."""

    follows: int | None
    verification: Verification
    proven_nodes: int
    problem: str | None
    kernels: int
    report: Report | None


class RangedDerivation(Record):
    """A derivation: its start, how many steps, their worst class, the sizes at which it runs, and by what proof it holds there."""

    start: str = renamed("from")
    steps: int
    kind: str
    sizes: str
    holds: str | None = None


class GuardRow(Record):
    """A form that did not come over to a size, how often, and why."""

    size: int
    why: str
    rules: list[str]
    times: int


class Guards(Record):
    """How many forms did not come over to a size, and the first reasons."""

    count: int
    told: list[GuardRow]


class RangedReport(Head):
    """The report of a program for many sizes; `seconds` are those of each part of the run."""

    dynamic: Range
    sizes: dict[str, SizeRow]
    derivations: list[RangedDerivation]
    guards: Guards
    seconds: dict[str, float]
    total_s: float
    notes: list[str]
