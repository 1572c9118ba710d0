"""The report as data: what `--json` writes, what a stored program carries, and what the pages show. Times are in ms where the name says so, sizes in
bytes; None stands for what was not measured."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class OutputError(TypedDict):
    """One output beside ONNX Runtime's: the greatest difference, the greatest |y|, and their ratio."""

    max_abs: float
    scale: float
    max_rel: float


class Verification(TypedDict):
    """How a program compares with the model; `passed` is None where nothing was compared, and `not_compared` says why."""

    max_abs: float
    max_rel: float
    tolerance: float
    outputs: dict[str, OutputError]
    passed: bool | None
    not_compared: NotRequired[str]
    bound: NotRequired[float]
    lifting: NotRequired[dict[str, Any]]
    on: NotRequired[str]
    generated: NotRequired[str]
    seconds: NotRequired[float]


class StepRow(TypedDict):
    """One step of a derivation."""

    rule: str
    parameters: str
    kind: str


class KernelTime(TypedDict):
    """A kernel of a candidate, alone."""

    kernel: str
    ms: float | None


class CandidateRow(TypedDict):
    """One way to run a subprogram."""

    operators: list[str]
    kernels: list[str]
    rules: list[str]
    predicted_ms: float | None
    measured_ms: float | None
    chosen: NotRequired[bool]
    original: NotRequired[bool]


class SubprogramRow(TypedDict):
    """One subprogram: what it is, what was considered, what runs."""

    key: str
    output: str
    nodes: list[str]
    expression: str
    tensors: list[str]
    states: int
    depth: int
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
    search_s: float
    notes: list[str]


class Rates(TypedDict):
    """What a kernel does in a second, and its shares of what the machine could do."""

    flops: int | None
    bytes: int
    gflops: float | None
    gbs: float
    share_of_peak: float | None
    share_of_bandwidth: float


class KernelRow(Rates):
    """A kernel in its place in the program, beside what was predicted."""

    kernel: str
    implementation: str
    key: str | None
    nodes: list[str]
    ms: float
    spread_ms: float
    predicted_ms: float | None
    estimated: bool
    roofline_ms: float | None


class CostModelRow(TypedDict):
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


class CertificateRow(TypedDict):
    """How many derivations and steps there are, steps by how they were proven, and by the class that the checker found."""

    derivations: int
    steps: int
    methods: dict[str, int]
    classes: NotRequired[dict[str, int]]


class Totals(TypedDict):
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


class OpaqueRow(TypedDict):
    """A node that is no expression, and why."""

    nodes: list[str]
    why: str


class Head(TypedDict):
    """What every report starts with: the model, what ran it, what was asked for."""

    model: str
    backend: str
    threads: int | None
    versions: dict[str, str]
    settings: dict[str, Any]


class Report(Head):
    """The report of a program for this machine's processor. Of a model that is kept whole nothing was measured."""

    digest: str | None
    runs: str
    subprograms: list[SubprogramRow]
    totals: Totals
    spread_ms: dict[str, float] | dict[str, None]
    certificate: CertificateRow
    verification: Verification
    kernels: list[KernelRow]
    cost_model: CostModelRow
    notes: list[str]
    peak_bytes: NotRequired[dict[str, int | str | None]]
    opaque: NotRequired[list[OpaqueRow]]
    assumes_finite: NotRequired[list[str]]
    kept_whole: NotRequired[str]
    own_kernels: NotRequired[list[KernelRow]]
    onnx_out: NotRequired[dict[str, Any]]
