"""Random models through import, search, and execution, against ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from math import inf
from random import Random

import numpy as np
import onnx
import pytest
from onnx import defs

from einnet.errors import BackendError, UsageError
from einnet.graph.onnx.importer import load
from einnet.graph.operators.registry import OPERATORS
from einnet.graph.passes.prepare import prepare
from einnet.graph.split import Subprogram, pieces
from einnet.instantiate.kernels import OpaqueCall, Plan
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.program import Executable
from einnet.runtime.onnx.model import export
from einnet.runtime.onnx.node_writer import LEAST_OPSET
from einnet.runtime.ort import Session
from einnet.search.choosing.candidate import Candidate
from einnet.search.choosing.making import candidates
from einnet.search.forms import Form
from einnet.search.space import Options
from tests.drawn import plan_of_any
from tests.models.random_graphs import OF_TRUTH, halved, random_graph, rounded
from tests.models.random_graphs import OPERATORS as PLAIN
from tests.models.random_nodes import OPSETS

LARGEST = np.finfo(np.float32).max
"""What the reference takes for infinity in a maximum over padding."""


def plan_of(model: onnx.ModelProto, rng: Random, depth: int, cost: CpuCost) -> Plan:
    """A plan of the model with any candidate of each subprogram that the machine has kernels for, drawn at random."""

    def draw(forms: Sequence[Form]) -> Candidate:
        return rng.choice([c for c in candidates(forms, cost.estimates) if max(cost.costs(c.build.kernels), default=0.0) < inf])

    return plan_of_any(prepare(load(model)), Options(max_depth=depth, states=20, intensity=0.0), draw)


@cache
def cost() -> CpuCost:
    """Estimates of kernels, for all models."""
    return CpuCost(1, measure=False)


def opset(model: onnx.ModelProto) -> int:
    return int(model.opset_import[0].version)


def written(plan: Plan, model: onnx.ModelProto) -> bool:
    """The plan can be an ONNX model: nodes that are taken over are not older than those that are written."""
    return opset(model) >= LEAST_OPSET or not any(isinstance(k, OpaqueCall) for k in plan.kernels)


def as_onnx(plan: Plan, model: onnx.ModelProto) -> bytes:
    return bytes(export(plan, max(opset(model), LEAST_OPSET)).SerializeToString())


def agree(seed: int, native: bool, kind: str = "") -> str:
    """What is wrong with the random model of that seed, or with the same one on float16 or with roundings inside, or with one that has conditions
    ("truth"); empty if nothing is."""
    model, dtype, tolerance = random_graph(seed, operators=OF_TRUTH if kind == "truth" else PLAIN), np.float32, 1e-3
    if kind == "float16":
        model, dtype, tolerance = halved(model), np.float16, 2e-3
    if kind == "rounded":
        model = rounded(model, seed)
    try:
        reference = Session(model.SerializeToString(), 1)
        numbers = np.random.default_rng(seed)
        inputs = {a.name: numbers.standard_normal(a.shape).astype(dtype) for a in reference.inputs}
        wanted = reference(inputs)
    except (BackendError, UsageError):
        return ""  # the standard allows it, the reference does not run it
    try:
        plan = plan_of(model, Random(seed), seed % 3, cost())
        got = (Executable(plan, 1) if native or not written(plan, model) else Session(as_onnx(plan, model), 1))(inputs)
    except Exception as error:  # any is a finding
        return f"seed {seed}: {type(error).__name__}: {error}".split("\n")[0]
    for name, y in wanted.items():
        assert got[name].dtype == y.dtype
        x, y = (np.clip(v.astype(np.float32), -LARGEST, LARGEST) for v in (got[name], y))
        scale = np.abs(y[np.isfinite(y)]).max(initial=1e-3)
        if x.shape != y.shape or not np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"seed {seed}: output {name} differs: {' '.join(n.op_type for n in model.graph.node)}"
    return ""


ELSEWHERE = (
    "ArgMax", "ArgMin", "Asinh", "ConvInteger", "DFT", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear", "STFT",
)  # fmt: skip
"""Operators of quantised tensors, which these graphs do not have, and transforms: tests/graph/test_operators_{quantised,fourier,recurrences}.py.
Which of nearly equal elements is the best is decided by a rounding: tests/graph/test_operators_pointwise.py."""


def test_every_operator_with_an_expression_is_drawn_with_every_attribute() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for operators, seeds in ((PLAIN, 3000), (OF_TRUTH, 400)):
        for seed in range(seeds):
            for node in random_graph(seed, operators=operators).graph.node:
                seen.update([(node.op_type, ""), *((node.op_type, a.name) for a in node.attribute)])
    drawn = [op for op in OPERATORS if op not in ELSEWHERE]
    wanted = {(op, "") for op in drawn}
    for op in drawn:
        for version in set(OPSETS):
            with suppress(defs.SchemaError):
                wanted |= {(op, name) for name in defs.get_schema(op, version).attributes}
    assert sorted(wanted - seen.keys()) == []


@pytest.mark.parametrize("seed", [*range(60), 85])
def test_a_piece_reads_what_stands_before_it(seed: int) -> None:
    """Nothing inside a piece is used outside, also where a chain is cut: of seed 85 a copy of the input is read by both sides of a cut."""
    program = prepare(load(random_graph(seed)))
    known = {t.name for t in program.inputs} | set(program.weights)
    for piece in pieces(program):
        assert set(piece.inputs) <= known
        known |= {piece.output.name} if isinstance(piece, Subprogram) else {t.name for t in piece.outputs}


@pytest.mark.parametrize("block", range(4))
def test_as_standard_onnx(block: int) -> None:
    assert [p for seed in range(40 * block, 40 * block + 16) if (p := agree(seed, native=False))] == []


def test_native() -> None:
    # infinities (a constant beyond float32, 0 times one, one minus itself), and a weight whose blocks hold a zero
    found_wrong = (20_463, 71_845, 72_177, 900_197)
    assert [p for seed in (*range(10_000, 10_012), *found_wrong) if (p := agree(seed, native=True))] == []


def test_with_conditions_inside() -> None:
    assert [p for seed in range(24) if (p := agree(seed, native=seed % 3 > 0, kind="truth"))] == []


def test_on_float16() -> None:
    """Rounded where a value leaves the model, which the reference does too, and beside that where it only moves elements."""
    assert [p for seed in range(300, 310) if (p := agree(seed, native=seed % 4 == 0, kind="float16"))] == []


def test_with_casts_and_quantisation_inside() -> None:
    assert [p for seed in range(400, 408) if (p := agree(seed, native=seed == 402, kind="rounded"))] == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "first", "native"), [("truth", 0, 3), ("float16", 300, 4), ("rounded", 400, 8)])
def test_many_of_each_kind(kind: str, first: int, native: int) -> None:
    assert [p for seed in range(first, first + 120) if (p := agree(seed, native=seed % native == 0, kind=kind))] == []


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_two_thousand(block: int) -> None:
    start = 20_000 + 110 * block
    assert [p for seed in range(start, start + 110) if (p := agree(seed, native=seed % 10 == 0))] == []
