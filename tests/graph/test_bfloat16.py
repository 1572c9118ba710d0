"""Models that carry bfloat16: models of float32 of the same numbers, rounded where they cast."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import einnet
from benchmarks.models import build as model_of
from einnet.cli import main
from einnet.graph.interpret import interpret
from einnet.graph.onnx.bfloat16 import carries, in_float32
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.read import in_memory, runnable
from einnet.graph.program import Opaque
from tests.graph.cases import node, reference, run_opaque, values
from tests.graph.networks import network
from tests.graph.typed_models import in_type, rounded
from tests.models import random_inputs

BF16, F32 = TensorProto.BFLOAT16, TensorProto.FLOAT
SHORT = np.dtype(ml_dtypes.bfloat16)
MODELS = {
    "resnet18": {"size": 32}, "transformer": {}, "mlp": {"size": 32, "classes": 8}, "depthwise": {"size": 32}, "fsrcnn": {"size": 8},
    "longformer": {"sequence": 26, "window": 3, "dilation": 2, "heads": 2, "hidden": 16}, "dcgan": {},
}  # fmt: skip


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[int]]], outputs: dict[str, int], held: dict[str, np.ndarray]
) -> onnx.ModelProto:  # fmt: skip
    """A model of typed inputs and outputs."""
    ends = [[helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()]]  # fmt: skip
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(a, n) for n, a in held.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("seed", range(12))
def test_a_network_of_bfloat16_is_that_of_its_numbers(seed: int) -> None:
    """Against ONNX Runtime on weights that were rounded before: nothing else is."""
    single, inputs = network(seed)
    given = in_type(single, BF16)
    assert carries(given)
    program = load(given)
    assert {n.origin[0].split()[0] for n in program.nodes if isinstance(n, Opaque)} <= {"TopK"}
    found, wanted = interpret(program, inputs, run_opaque), reference(rounded(single, BF16), inputs)
    for name, y in wanted.items():
        np.testing.assert_allclose(found[name], y, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(y).max(initial=0))))


def test_casts_round_and_nothing_else_does() -> None:
    x = (1 + np.arange(64, dtype=np.float32) / 1024).reshape(8, 8)
    nodes = [node("Cast", ["x"], ["a"], to=BF16), node("Mul", ["a", "w"], ["b"]), node("Cast", ["b"], ["y"], to=F32),
             node("Cast", ["y"], ["c"], to=BF16), node("Identity", ["c"], ["z"])]  # fmt: skip
    given = model(nodes, {"x": (F32, [8, 8])}, {"y": F32, "z": BF16}, {"w": np.full((), 1.0078125, SHORT)})
    program = load(given)
    assert not [n for n in program.nodes if isinstance(n, Opaque)]
    found = interpret(program, {"x": x})
    y = x.astype(SHORT).astype(np.float64) * 1.0078125
    np.testing.assert_array_equal(found["y"], y)
    np.testing.assert_array_equal(found["z"], y.astype(np.float32).astype(SHORT).astype(np.float64))
    by_onnxruntime = reference(in_memory(given), {"x": x})
    np.testing.assert_array_equal(by_onnxruntime["y"], y)
    np.testing.assert_array_equal(by_onnxruntime["z"], found["z"])


def test_casts_like_another_of_integers_and_inside_of_branches() -> None:
    """A cast takes its type from an input, from what inference finds, and in a branch from outside."""
    inner = helper.make_graph([node("CastLike", ["x", "s"], ["r"])], "then", [], [helper.make_tensor_value_info("r", BF16, [6])])
    other = helper.make_graph([node("Add", ["s", "s"], ["q"])], "else", [], [helper.make_tensor_value_info("q", BF16, [6])])
    nodes = [node("CastLike", ["x", "s"], ["a"]), node("Cast", ["i"], ["b"], to=BF16), node("Neg", ["b"], ["n"]), node("CastLike", ["x", "n"], ["d"]),
             node("Add", ["a", "n"], ["e"]), node("Add", ["e", "d"], ["f"]), node("If", ["t"], ["c"], then_branch=inner, else_branch=other),
             node("Add", ["f", "c"], ["y"])]  # fmt: skip
    ends = {"x": (F32, [6]), "s": (BF16, [6]), "i": (TensorProto.INT64, [6])}
    given = model(nodes, ends, {"y": BF16}, {"t": np.array(True)})
    x, i = values((6,), 1, -300, 300), np.array([1, 257, 259, -3, 1 << 20, (1 << 23) + 3])
    short = x.astype(SHORT).astype(np.float32)
    wanted = ((short - i.astype(np.float32).astype(SHORT).astype(np.float32)) + short) + short
    inputs = {"x": x, "s": np.zeros(6, np.float32), "i": i}
    np.testing.assert_allclose(interpret(load(given), inputs, run_opaque)["y"], wanted, rtol=1e-6)
    np.testing.assert_allclose(reference(in_memory(given), inputs)["y"], wanted, rtol=1e-6)


def test_constants_that_nodes_make() -> None:
    fill = helper.make_tensor("v", BF16, [1], [1.5])
    five = numpy_helper.from_array(np.array([2.5], SHORT))
    nodes = [node("ConstantOfShape", ["n"], ["a"], value=fill), node("Constant", [], ["k"], value=five),
             node("EyeLike", ["x"], ["e"], dtype=BF16), node("Mul", ["a", "k"], ["b"]), node("Add", ["b", "e"], ["c"]),
             node("Mul", ["c", "x"])]  # fmt: skip
    given = model(nodes, {"x": (BF16, [3, 3])}, {"y": BF16}, {"n": np.array([3, 3])})
    x = values((3, 3), 2)
    np.testing.assert_allclose(interpret(load(given), {"x": x}, run_opaque)["y"], (3.75 + np.eye(3)) * x, rtol=1e-6)


def test_a_model_without_bfloat16_stays_as_it_is(tmp_path: Path) -> None:
    single, _ = network(0)
    assert in_float32(single) is single and in_memory(single) is single
    onnx.save(single, path := tmp_path / "m.onnx")
    assert runnable(path) == str(path)
    made = in_float32(in_type(single, BF16))
    assert in_float32(made) is made, "what was made is left alone"


def test_weights_in_a_file_beside_the_model(tmp_path: Path) -> None:
    single = model_of("mlp", size=32, classes=8, seed=0)
    onnx.save(in_type(single, BF16), path := tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    inputs = random_inputs(single, 1)
    (wanted,) = reference(rounded(single, BF16), inputs).values()
    (found,) = interpret(load(path), inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    (again,) = reference(onnx.load_model_from_string(runnable(path)), inputs).values()
    np.testing.assert_array_equal(again, wanted)


@pytest.mark.parametrize("name", MODELS)
def test_every_node_of_a_network_is_an_expression(name: str) -> None:
    program = load(in_type(model_of(name, seed=0, **MODELS[name]), BF16))
    assert not [n.origin for n in program.nodes if isinstance(n, Opaque)]


def test_a_program_of_bfloat16(tmp_path: Path) -> None:
    """It is made, stored and verified like any other, and takes float32."""
    single = model_of("mlp", size=32, classes=8, seed=0)
    onnx.save(in_type(single, BF16), path := tmp_path / "m.onnx")
    made = einnet.optimize(path, time_budget=2, threads=1)
    made.save(tmp_path / "m.einnet")
    inputs = random_inputs(single, 3)
    (found,) = einnet.load(tmp_path / "m.einnet")(inputs).values()
    (wanted,) = reference(rounded(single, BF16), inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert main(["verify", str(path), str(tmp_path / "m.einnet")]) == 0
