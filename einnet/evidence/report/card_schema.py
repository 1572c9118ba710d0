"""The report of a program for a card as a record."""

from __future__ import annotations

from typing import Union

from einnet.evidence.report.schema import Asked, CertificateRow, KernelTime, Report, SubprogramRow, Verification
from einnet.records import Record, added


class StepTime(KernelTime):
    """A step of a program for a card, and the subprogram that it is of ("" for what a program pass made)."""

    key: str
    nodes: list[str]


class CudaTotals(Record):
    """What a program for a card was reckoned to take, its launches, and how many steps nobody has measured."""

    original_predicted_ms: float
    optimized_predicted_ms: float
    launches: int
    unmeasured: int


class OnDevice(Record):
    """Bytes that a program takes on a card."""

    arena: int
    constants: int


class CudaReport(Record):
    """The report of a program for a card: `profile` says whether times are "measured" ones or an "estimate"."""

    model: str
    digest: str | None = added(None)
    backend: str
    device: str
    profile: str
    math: str
    versions: dict[str, str]
    settings: Asked
    runs: str
    subprograms: list[SubprogramRow]
    changed: int
    totals: CudaTotals
    kernels: list[StepTime]
    memory: OnDevice
    certificate: CertificateRow
    verification: Verification
    assumes_finite: list[str] | None = None
    notes: list[str]
    states: int
    seconds: float | None = None


AnyReport = Union[Report, CudaReport]
