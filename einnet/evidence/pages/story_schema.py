"""What the pages show of a program as records: `einnet explain --json` writes them."""

from __future__ import annotations

from einnet.evidence.report.card_schema import CudaTotals, OnDevice, StepTime
from einnet.evidence.report.schema import CandidateRow, CostModelRow, KernelRow, KernelTime, PrecisionRow, Totals, Verification
from einnet.records import Record, added, renamed


class ProofRow(Record):
    """How a step was proven."""

    method: str
    details: str
    points: int


class StepStory(Record):
    """A step: the rule, where and with what it was applied, the whole expression after it, its class and its proof."""

    number: int
    rule: str
    parameters: str
    path: list[int]
    kind: str
    bound: float | None
    before: str
    after: str
    expression: str
    proof: ProofRow
    reason: str | None = None


class DerivationStory(Record):
    """A derivation, its steps numbered from 1."""

    start: str = renamed("from")
    steps: list[StepStory]
    kind: str
    bound: float
    operators: list[str]


class CandidateStory(CandidateRow):
    """A candidate, with its derivation where that was asked for."""

    derivation: DerivationStory | None = None


class Chapter(Record):
    """A distinct subprogram with the nodes of each place where it stands."""

    key: str
    changed: bool
    expression: str
    kernels: list[KernelTime]
    original_kernels: list[KernelTime]
    measured_ms: float | None
    original_ms: float | None
    states: int
    predicted_ms: float | None
    original_predicted_ms: float | None = None
    nodes: list[list[str]]
    candidates: list[CandidateStory]
    derivation: DerivationStory | None = None


class Base(Record):
    """What is told of any program."""

    model: str
    runs: str
    verification: Verification
    notes: list[str]
    subprograms: list[Chapter]


class Story(Base):
    """A program for the processor."""

    totals: Totals
    kernels: list[KernelRow]
    cost_model: CostModelRow
    kept_whole: str | None = added(None)
    precision: PrecisionRow | None = None


class Grid(Record):
    """A launch of generated code: its blocks, and the threads of each."""

    function: str
    grid: list[int]
    block: list[int]


class PlanRow(Record):
    """The algorithm of a library that was chosen on a card."""

    device: str
    math: str
    plan: str


class CardStep(StepTime):
    """A step of a program for a card: what runs it, how often something is launched, and bytes that move at least."""

    by: str
    launches: int
    grids: list[Grid]
    bytes: int
    plans: list[PlanRow]


class CardStory(Base):
    """A program for a card."""

    totals: CudaTotals
    kernels: list[StepTime]
    device: str
    profile: str
    memory: OnDevice
    steps: list[CardStep]
