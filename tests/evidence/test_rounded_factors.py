"""Products with weights of few bits, of which ONNX Runtime by default rounds the other factor: what programs are compared with does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import einnet
from einnet.api.load import load_told
from einnet.compile.ranges.audit_ranged import audit_ranged
from einnet.compile.ranges.served import RangedProgram
from einnet.compile.ranges.target import optimize_dynamic
from einnet.evidence.audit import audit
from einnet.evidence.comparison.draws import random_values
from einnet.evidence.comparison.right import References
from einnet.evidence.comparison.verify import Trial
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.rounded_factors import rounds_factors
from einnet.instantiate.kernels import Buffer, OpaqueCall, Plan, dense_view
from einnet.runtime.ort import Session
from einnet.search.settings import Settings

K, N = 64, 32
NUMBERS = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"], axis=1)
PRODUCT = helper.make_node("MatMul", ["x", "v"], ["y"])


def made(*nodes: NodeProto, kind: int = TensorProto.UINT8, rows: int | str = 4, functions: tuple[onnx.FunctionProto, ...] = ()) -> onnx.ModelProto:
    """A model of these nodes over x, weights w of few bits, their scales s and zero points z."""
    rng = np.random.default_rng(0)
    few = 16 if kind == TensorProto.UINT4 else 256
    held = [helper.make_tensor("w", kind, (K, N), rng.integers(0, few, K * N).tolist()), helper.make_tensor("z", kind, (N,), [few // 2] * N)]
    held.append(numpy_helper.from_array(rng.uniform(0.001, 0.01, N).astype(np.float32), "s"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name, size in (("x", K), ("y", N))]
    graph = helper.make_graph(nodes, "few bits", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid("own", 1)] if functions else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def in_a_body() -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info("y1", TensorProto.FLOAT, [4, N])]
    inner = [helper.make_node("MatMul", ["x", "v"], ["y1"])]
    bodies = {name: helper.make_graph(inner, name, [], ends) for name in ("then_branch", "else_branch")}
    some = [helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0), helper.make_node("Cast", ["t"], ["b"], to=TensorProto.BOOL)]
    return made(NUMBERS, *some, helper.make_node("If", ["b"], ["y"], **bodies))


def in_a_function() -> onnx.ModelProto:
    opset = [helper.make_opsetid("", 21)]
    own = helper.make_function("own", "product", ["x", "w", "s", "z"], ["y"], [NUMBERS, PRODUCT], opset)
    return made(helper.make_node("product", ["x", "w", "s", "z"], ["y"], domain="own"), functions=(own,))


@pytest.mark.parametrize(("model", "found"), [
    (made(NUMBERS, PRODUCT), True), (made(NUMBERS, PRODUCT, kind=TensorProto.UINT4), True), (in_a_body(), True), (in_a_function(), True),
    (made(NUMBERS, helper.make_node("Gemm", ["x", "v"], ["y"])), True),
    (made(NUMBERS, helper.make_node("Identity", ["v"], ["i"]), helper.make_node("MatMul", ["x", "i"], ["y"])), True),
    (made(NUMBERS, helper.make_node("ReduceSum", ["v"], ["i"]), helper.make_node("MatMul", ["x", "u"], ["y"])), False),
    (made(helper.make_node("Cast", ["w"], ["v"], to=TensorProto.FLOAT), PRODUCT), False),
    (made(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "r", "p"]), helper.make_node("DequantizeLinear", ["q", "r", "p"], ["v"]),
          helper.make_node("Cast", ["w"], ["u"], to=TensorProto.FLOAT), helper.make_node("MatMul", ["v", "u"], ["y"])), False),
])  # fmt: skip
def test_what_is_found_where_the_second_factor_is_a_weight_of_few_bits(model: onnx.ModelProto, found: bool) -> None:
    assert rounds_factors(model) == found


def reference(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], np.ndarray]:
    x = random_values([("x", (4, K), "f32")], 0)
    return x, Session(model.SerializeToString(), 1, as_written=True)(x)["y"]


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.UINT4])
def test_what_is_compared_with_is_exact_and_what_is_told_is_the_error(kind: int) -> None:
    model = made(NUMBERS, PRODUCT, kind=kind)
    x, wanted = reference(model)
    trial = Trial(model, load(model), Settings(threads=1), x)
    assert np.abs(trial.expected["y"] - wanted).max() <= 1e-5 * np.abs(wanted).max()
    apart = float(np.abs(trial.own["y"].astype(np.float64) - trial.expected["y"]).max() / np.abs(trial.expected["y"]).max())
    assert trial.rounding == pytest.approx(apart, abs=1e-6)


@pytest.mark.parametrize("force", [0, None])
def test_a_right_program_is_verified_and_so_is_what_onnx_runtime_runs(force: int | None, tmp_path: Path) -> None:
    path = tmp_path / "few.onnx"
    onnx.save(made(NUMBERS, PRODUCT), path)
    found = einnet.optimize(path, time_budget=10, threads=1, force=force)
    assert found.report["verification"]["passed"]
    assert not any("no program of ours agrees" in note for note in found.report["notes"])
    found.save(tmp_path / "few.einnet")
    verdict = audit(path, load_told(tmp_path / "few.einnet"))
    assert verdict["passed"], verdict
    x, wanted = reference(onnx.load(path))
    rounded = Session(path, 1, rounds=True)(x)["y"]
    error = np.abs(rounded - wanted).max() / np.abs(wanted).max()
    assert any("rounds to bytes" in note for note in found.report["notes"]) == (error > 1e-4)


def test_a_range_of_sizes(tmp_path: Path) -> None:
    path = tmp_path / "few.onnx"
    onnx.save(made(NUMBERS, PRODUCT, rows="b"), path)
    optimize_dynamic(path, "b=2..3", time_budget=10, threads=1).save(tmp_path / "few.einnet")
    program = load_told(tmp_path / "few.einnet")
    assert isinstance(program, RangedProgram)
    assert audit_ranged(path, program)["passed"]


def test_what_onnx_runtime_runs_as_a_whole_is_compared_with_what_its_users_have() -> None:
    model = made(NUMBERS, PRODUCT)
    data, x = model.SerializeToString(), random_values([("x", (4, K), "f32")], 0)
    own = outputs_plan(data)
    found = References(data, 1, "the model", rounds_factors(model))
    assert np.array_equal(found.of(own)(x)["y"], Session(data, 1, rounds=True)(x)["y"])
    assert found.of(Plan((), (), (), ())) is found.session


def outputs_plan(data: bytes) -> Plan:
    """ONNX Runtime with the whole model."""
    views = [dense_view("x", (4, K)), dense_view("y", (4, N))]
    call = OpaqueCall(data, (views[0],), (views[1],), "the model")
    return Plan((Buffer("x", 4 * K, "f32", "input"), Buffer("y", 4 * N, "f32", "output")), (call,), (("x", views[0]),), (("y", views[1]),))


def test_a_model_that_is_written_for_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "few.onnx"
    onnx.save(made(NUMBERS, PRODUCT), path)
    einnet.optimize(path, target="onnx", time_budget=5, threads=1).save(tmp_path / "few.einnet")
    assert audit(path, load_told(tmp_path / "few.einnet"))["passed"]
