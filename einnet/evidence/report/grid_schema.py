"""The report of a program for ranges of several dimensions as a record."""

from __future__ import annotations

from einnet.evidence.report.schema import Report, Searching
from einnet.records import Record


class Ranging(Record):
    """A dimension and its sizes, both ends included."""

    name: str
    lowest: int
    highest: int


class Making(Searching):
    """What a plan that is made later needs to know of the settings: those of the others, and seconds for one plan."""

    seconds: float
    threads: int
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
