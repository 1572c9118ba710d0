"""What is found for the sizes of a range."""

from __future__ import annotations

from dataclasses import dataclass

from einnet.evidence.report.schema import Report, Verification
from einnet.runtime.pool import Member as Stored
from einnet.search.forms import Form


@dataclass
class AtOneSize:
    """What was found for one size: the plan with its code, the report where it was measured, and how its numbers compare."""

    size: int
    stored: Stored
    verification: Verification
    follows: int | None = None
    report: Report | None = None
    proven: int = 0
    problem: str | None = None


@dataclass
class Used:
    """A derivation and the sizes at which it runs and was proven: found at the searched size, or (`own`) at its only size."""

    form: Form
    sizes: set[int]
    own: bool = False
