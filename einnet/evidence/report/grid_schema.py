"""The report of a program for ranges of several dimensions as a record."""

from __future__ import annotations

from einnet.evidence.report.schema import Report
from einnet.records import Record


class Ranging(Record):
    """A dimension and its sizes, both ends included."""

    name: str
    lowest: int
    highest: int


class Making(Record):
    """What a plan that is made later needs to know of the settings: those of the others, and seconds for one plan."""

    seconds: float
    max_depth: int
    threads: int
    cpu: str
    allow: str
    tested: bool
    finite: bool
    strict_nan: bool
    derive: bool
    converge: bool
    fingerprint: bool
    rules: list[str] | None
    seed: int
    memory_limit: int | None


class GridReport(Record):
    """Dimensions, the inputs' shapes by their names, a report for each tuple of sizes that was measured, as 8x512, and how long all of it took."""

    model: str
    dynamic: list[Ranging]
    shapes: dict[str, list[int | str]]
    making: Making
    sizes: dict[str, Report]
    total_s: float
    notes: list[str]
