"""The report of a program for this processor as a record, and the rows that all reports have: what `--json` writes, what a stored program carries,
and what the pages show. Times are in ms where the name says so, sizes in bytes; None stands for what was not measured."""

from __future__ import annotations

from typing import Any

from einnet.records import Record, added

Json = Any


class OutputError(Record):
    """One output beside ONNX Runtime's: the greatest difference, the greatest |y|, their ratio, and what that may be where outputs have limits of
    their own."""

    max_abs: float
    scale: float
    max_rel: float
    allowed: float | None = None


class Verification(Record):
    """How a program compares with the model; `passed` is None where nothing was compared, and `not_compared` says why.

    `max_rel` is the greatest error of an output relative to its max|y|, and `tolerance` what may be; where outputs have limits of their own, both are
    those of the output that comes nearest to its limit, or is farthest beyond it. `compared_on` is how many sets of inputs there were; each
    error is the greatest of them.
    """

    max_abs: float
    max_rel: float
    tolerance: float
    outputs: dict[str, OutputError]
    passed: bool | None
    not_compared: str | None = None
    compared_on: int = added(1)
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


class StageRow(Record):
    """What a stage of the making took, of the clock and of the processor in all threads; what other processes did for it is not there."""

    stage: str
    seconds: float
    processor_s: float


class OpaqueRow(Record):
    """A node that is no expression, and why."""

    nodes: list[str]
    why: str


class Searching(Record):
    """The settings that decide what a search can find."""

    max_depth: int
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


class Asked(Searching):
    """The settings that a report repeats."""

    time_budget: float
    target: str
    max_error: float | None = None
    """The budget of error that stood in place of the class's own limit."""
    output_errors: dict[str, float] = added({})
    """The budgets of outputs that have one of their own."""
    certified: bool = added(False)
    """Products round only where a certified bound of the outputs stays within that budget."""
    workers: int
    scheduler: str | None
    force: int | None
    channels_last: bool | None = None
    """For a card: in which order the data of the search was."""
    tables: bool = False
    """Weights were read as products of smaller tables."""
    in_bytes: bool = added(False)
    """Tensors of few integers were kept as bytes."""
    settled: bool = added(False)
    """Expressions that depend on no input are not computed."""
    inputs: list[str] = added([])
    """The inputs that were given to verify and time programs on; others were random."""


class RoundedRow(Record):
    """A product or convolution, its times in float32 and in the arithmetic in which it is fastest else, whether it rounds to that, and why or not.

    `error` is what its rounding alone does to the outputs of the program, or its part of what a group of products does; `bound` is how far its own
    result may be off, both relative to the greatest element. `reach` is the greatest absolute value of a factor on the draws, where the arithmetic
    has fewer large numbers than float32. `by` is the library's implementation in that arithmetic, where it is not what the library takes first.
    """

    place: int
    kernel: str
    arithmetic: str
    float32_ms: float | None
    ms: float | None
    runs: bool = added(False)
    why: str = added("")
    error: float | None = None
    bound: float | None = None
    reach: float | None = None
    by: str = added("")


class PrecisionRow(Record):
    """How a budget of error was spent: the greatest error of an output relative to its max|y|, on so many draws of inputs. Errors of an output that
    has a limit of its own count as if that were `max_error`."""

    max_error: float
    error: float
    float32_error: float
    draws: int
    products: list[RoundedRow]
    certified: float | None = None
    """A bound of the outputs' error for the first of the inputs, against exact values, where one was asked for and found."""


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
    precision: PrecisionRow | None = None
    onnx_out: OnnxOut | None = None
    stages: list[StageRow] | None = None
