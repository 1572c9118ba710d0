"""The reports as records: what `--json` writes, what a stored program carries, and what the pages show. Times are in ms where the name says so,
sizes in bytes; None stands for what was not measured."""

from __future__ import annotations

from typing import Any, Union

from einnet.records import Record, added, renamed

Json = Any


class OutputError(Record):
    """One output beside ONNX Runtime's: the greatest difference, the greatest |y|, and their ratio."""

    max_abs: float
    scale: float
    max_rel: float


class Verification(Record):
    """How a program compares with the model; `passed` is None where nothing was compared, and `not_compared` says why."""

    max_abs: float
    max_rel: float
    tolerance: float
    outputs: dict[str, OutputError]
    passed: bool | None
    not_compared: str | None = None
    bound: float | None = None
    lifting: Json | None = None
    on: str | None = None
    generated: str | None = None
    seconds: float | None = None


class StepRow(Record):
    """One step of a derivation."""

    rule: str
    parameters: str
    kind: str


class KernelTime(Record):
    """A kernel of a candidate, alone; for a card also what was reckoned for it, and whether that is estimated."""

    kernel: str
    ms: float | None
    predicted_ms: float | None = None
    estimated: bool | None = None


class StepTime(KernelTime):
    """A step of a program for a card, and the subprogram that it is of ("" for what a program pass made)."""

    key: str
    nodes: list[str]


class CandidateRow(Record):
    """One way to run a subprogram."""

    operators: list[str]
    kernels: list[str]
    rules: list[str]
    predicted_ms: float | None
    measured_ms: float | None
    chosen: bool = added(False)
    original: bool = added(False)


class SubprogramRow(Record):
    """One subprogram: what it is, what was considered, what runs."""

    key: str
    output: str
    nodes: list[str]
    expression: str
    tensors: list[str] | None = None
    states: int
    depth: int | None = None
    stopped_at: int | None
    forms: int
    candidates: list[CandidateRow]
    changed: bool
    kernels: list[KernelTime]
    original_kernels: list[KernelTime]
    operators: list[str]
    steps: list[StepRow]
    bound: float
    predicted_ms: float | None
    measured_ms: float | None
    original_ms: float | None
    search_s: float | None = None
    notes: list[str]
    original_predicted_ms: float | None = None
    """For a card."""


class KernelRow(Record):
    """A kernel in its place in the program, beside what was predicted: what it does in a second, and its shares of what the machine could do.

    Of an opaque node nobody knows the operations.
    """

    kernel: str
    implementation: str
    key: str | None
    nodes: list[str]
    ms: float
    spread_ms: float
    predicted_ms: float | None
    estimated: bool
    roofline_ms: float | None
    flops: int | None
    bytes: int
    gflops: float | None
    gbs: float
    share_of_peak: float | None
    share_of_bandwidth: float


class CostModelRow(Record):
    """How far predictions were from what kernels took in their places."""

    kernels: int
    estimated: int
    predicted_ms: float
    measured_ms: float
    median_error: float | None
    worst_error: float | None
    worst_kernel: str | None
    roofline_median_error: float | None
    roofline_worst_error: float | None


class CertificateRow(Record):
    """How many derivations and steps there are, steps by how they were proven, and by the class that the checker found."""

    derivations: int
    steps: int
    methods: dict[str, int]
    classes: dict[str, int] | None = None


class Totals(Record):
    """Times of whole programs, and what the making took."""

    original_ms: float | None
    onnxruntime_ms: float | None
    optimized_ms: float | None
    speedup: float | None
    speedup_over_original: float | None
    noise: float
    search_s: float
    total_s: float
    states: int


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


class OpaqueRow(Record):
    """A node that is no expression, and why."""

    nodes: list[str]
    why: str


class Asked(Record):
    """The settings that a report repeats."""

    max_depth: int
    time_budget: float
    target: str
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
    workers: int
    scheduler: str | None
    force: int | None
    channels_last: bool | None = None
    """For a card: in which order the data of the search was."""


class OnnxOut(Record):
    """The model that was written for ONNX Runtime beside the original, both run there."""

    verification: Verification
    original_ms: float
    optimized_ms: float
    speedup: float


class Head(Record):
    """What a report starts with: the model, what ran it, what was asked for."""

    model: str
    backend: str
    threads: int | None
    versions: dict[str, str]
    settings: Asked


class Report(Head):
    """The report of a program for this machine's processor. Of a model that is kept whole nothing was measured."""

    digest: str | None = added(None)
    runs: str
    kept_whole: str | None = None
    subprograms: list[SubprogramRow]
    totals: Totals
    spread_ms: dict[str, float | None]
    peak_bytes: dict[str, int | str | None] | None = None
    certificate: CertificateRow
    verification: Verification
    opaque: list[OpaqueRow] | None = None
    assumes_finite: list[str] | None = None
    kernels: list[KernelRow]
    cost_model: CostModelRow
    notes: list[str]
    own_kernels: list[KernelRow] | None = None
    onnx_out: OnnxOut | None = None


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
