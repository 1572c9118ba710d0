"""One NaN, one infinity in the input of every case of every operator: what comes out is what ONNX Runtime gives, or is listed with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from einnet.graph.interpret import interpret
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.registry import tables_for
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.program import Executable
from einnet.runtime.ort import Session
from einnet.search.choosing.making import candidates
from einnet.search.space import Options
from tests.drawn import plan_of_any
from tests.graph.cases import build, node, run_opaque
from tests.graph.collected import Case, collected

SPECIAL = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}
Arrays = Mapping[str, np.ndarray]

DIFFERENT = {
    "MaxPool": ("NaN",), "GlobalMaxPool": ("NaN",), "ReduceMax": ("NaN",), "ReduceMin": ("NaN",),
    "Clip": ("inf", "-inf"), "ThresholdedRelu": ("NaN",), "Pow": ("-inf",), "Resize": ("inf", "-inf"), "LayerNormalization": ("inf", "-inf"),
    "DFT": ("inf", "-inf"), "STFT": ("inf", "-inf"), "ArgMax": ("NaN",), "ArgMin": ("NaN",),
}  # fmt: skip
"""Operators by what they are given; docs/finite.md says for each what is different and why."""


def alike(got: np.ndarray, wanted: np.ndarray) -> bool:
    if wanted.dtype.kind != "f":
        return np.array_equal(got, wanted)
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
    return got.shape == wanted.shape and np.allclose(got, wanted, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)


def differences(case: Case, ours: Callable[[Arrays], Arrays]) -> Iterator[str]:
    """Special values under which a case differs, each put into the middle of one input and of the next."""
    session = Session(case.model.SerializeToString(), 1)
    for kind, value in SPECIAL.items():
        for name in (n for n, a in case.inputs.items() if a.dtype == np.float32 and a.size):
            given = {n: a.copy() for n, a in case.inputs.items()}
            given[name].reshape(-1)[given[name].size // 2] = value
            with np.errstate(all="ignore"):
                wanted, got = session(given), ours(given)
            if not all(alike(np.asarray(got[n]), y) for n, y in wanted.items()):
                yield kind


def unexpected(case: Case, ours: Callable[[Arrays], Arrays]) -> list[str]:
    known = {kind for op in case.operators.split("+") for kind in DIFFERENT.get(op, ())}
    return [f"{case.operators} ({case.name}): {kind}" for kind in differences(case, ours) if kind not in known]


def interpreted(case: Case) -> Callable[[Arrays], Arrays]:
    program = load(case.model)
    return lambda given: interpret(program, given, run_opaque, dtype="float32")


def compiled(case: Case) -> Callable[[Arrays], Arrays]:
    """The model's own operators as kernels."""
    cost = CpuCost(1, measure=False)
    tables = tables_for("cpu", finite=False)
    plan = plan_of_any(prepare(load(case.model)), Options(max_depth=0, states=1, tables=tables), lambda forms: candidates(forms, cost.estimates)[0])
    program = Executable(plan, 1)
    return lambda given: program(dict(given))


def test_the_cases_are_those_of_all_operator_tests() -> None:
    assert len(collected()) > 500
    assert len({c.operators for c in collected()}) > 80


@pytest.mark.parametrize("block", range(4))
def test_expressions(block: int) -> None:
    assert [text for case in collected()[block::4] for text in unexpected(case, interpreted(case))] == []


FIRST = {c.operators: c for c in reversed(collected())}


@pytest.mark.parametrize("operator", ["LeakyRelu", "Elu", "Max", "Min", "Softmax", "ReduceLogSumExp", "ReduceMin", "MaxPool", "PRelu", "Softplus"])
def test_kernels(operator: str) -> None:
    """Whose values depend on an order, or on a limit."""
    assert unexpected(FIRST[operator], compiled(FIRST[operator])) == []


@pytest.mark.slow
def test_kernels_of_every_operator() -> None:
    assert [text for case in FIRST.values() for text in unexpected(case, compiled(case))] == []


def test_what_is_different_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "finite.md").read_text()
    rows = {row.split("|")[1].strip(): row.split("|")[2] for row in page.splitlines() if row.startswith("| ")}
    for operator, kinds in DIFFERENT.items():
        assert all(kind.lstrip("-") in rows[operator] for kind in kinds), operator
    found = {(c.operators, kind) for c in collected() if c.operators in DIFFERENT for kind in differences(c, interpreted(c))}
    assert {(operator, kind) for operator, kinds in DIFFERENT.items() for kind in kinds} <= found, "what is listed is different"


@pytest.mark.parametrize(("operator", "gates", "activations"), [
    ("LSTM", 4, None), ("LSTM peepholes", 4, None), ("GRU", 3, None), ("GRU", 3, ["HardSigmoid", "Tanh"]), ("RNN", 1, ["Relu"]),
    ("RNN", 1, ["HardSigmoid"]),
])  # fmt: skip
def test_a_recurrence_keeps_nan_with_a_bias_and_without(operator: str, gates: int, activations: list[str] | None) -> None:
    """ONNX Runtime does without one alone; what is computed here is what its definition says."""
    operator, _, peepholes = operator.partition(" ")
    times, size, rng = 4, 3, np.random.default_rng(0)
    shapes = {"W": (1, gates * size, 2), "R": (1, gates * size, size), "B": (1, 2 * gates * size), "P": (1, 3 * size)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    x = rng.normal(size=(times, 1, 2)).astype(np.float32)
    x[1, 0, 0] = np.nan
    lost = []
    attributes = {"activations": activations} if activations else {}
    for bias in ("", "B"):
        given = ("x", "W", "R", bias, "", "", "", "P") if peepholes else ("x", "W", "R", bias)
        constants = {n: w for n, w in weights.items() if n in given}
        model = build([node(operator, given, hidden_size=size, **attributes)], {"x": x}, constants=constants)
        ours = np.asarray(interpret(load(model), {"x": x}, run_opaque, dtype="float32")["y"])
        assert np.isnan(ours).sum(axis=(1, 2, 3)).tolist() == [0, size, size, size]
        lost.append(not np.isnan(Session(model.SerializeToString(), 1)({"x": x})["y"]).all(axis=(1, 2, 3))[1:].all())
    assert lost == [operator == "RNN", True], "docs/finite.md says so"
