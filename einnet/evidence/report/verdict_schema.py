"""What `einnet verify` and `einnet bisect` tell, as JSON has it: mappings whose fields have names and types, written and never read back."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Derivations(TypedDict):
    """Derivations proven again: by which methods steps hold, of which classes they are."""

    derivations: int
    steps: int
    methods: dict[str, int]
    classes: dict[str, int]
    problems: list[str]


class Lifted(TypedDict):
    """Subprograms of the model, and how many of them were proven from it to the plan, in which way; `left` are those that were not looked at."""

    subprograms: int
    opaque: int
    derived: int
    proven: int
    by_derivation: int
    tested: int
    left: int
    problems: list[str]


class Constants(TypedDict):
    """Constants of the plan: how many are weights of the model, how many were computed again, how many are tables."""

    constants: int
    weights: int
    computed: int
    tables: int
    problems: list[str]


class Kernels(TypedDict):
    """Distinct kernels that were run alone, by kind: right bit for bit, or within their bound."""

    kernels: int
    distinct: int
    generated: int
    vendor: int
    exact: int
    bounded: int
    elements: int
    problems: list[str]


class Numbers(TypedDict):
    """Subprograms within their own bounds, on all draws: the greatest share of a bound, and the greatest bound of max|y|.

    Those that are `given` lie in an input and are read there; those `within` others are computed by kernels that hold the others only, and compared
    as parts of these.
    """

    draws: list[str]
    subprograms: int
    of: int
    elements: int
    share: float
    bound: float
    not_compared: list[str]
    given: list[str]
    within: list[str]
    problems: list[str]


class Outputs(TypedDict):
    """Outputs beside ONNX Runtime's; the fields that are not named here are those of `Verification`."""

    passed: bool
    outputs: NotRequired[dict[str, dict[str, Any]]]
    tolerance: NotRequired[float]
    bound: NotRequired[float]
    on: NotRequired[str]
    statistics: NotRequired[dict[str, dict[str, Any]]]
    subprograms: NotRequired[Numbers]
    draws: NotRequired[list[str]]
    ties: NotRequired[float]
    standard: NotRequired[list[str]]
    special: NotRequired[dict[str, list[str]]]
    problems: NotRequired[list[str]]


class Evidence(TypedDict, total=False):
    """What is known of a plan, if it was lifted."""

    lifting: Lifted
    constants: Constants
    kernels: Kernels


class Verdict(Evidence):
    """All evidence for a stored program. What ONNX Runtime runs as a whole has no kernels of its own; a model that was kept is only compared."""

    model: str
    program: str
    certificate: Derivations
    verification: Outputs
    trusted: NotRequired[list[str]]
    passed: bool


class Assured(Lifted):
    """The same of a program that is being made; `own` are problems of the model's own operators, `kernels` how many ran alone."""

    own: list[str]
    kernels: int


class Moved(TypedDict):
    """A derived subprogram, and how much it moves the result, of max|y|."""

    output: str
    nodes: list[str]
    key: str
    moved: float


class ErrorStep(TypedDict):
    """An expression along a derivation, and its error in f32, of max|y|."""

    rule: str
    parameters: str
    kind: str
    error: float


class Bisected(TypedDict):
    """Subprograms by how much they move the result, and the step of the first that adds most."""

    subprograms: list[Moved]
    steps: list[ErrorStep]
    step: int | None
    apart: int
