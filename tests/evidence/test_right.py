"""Which evaluator decides: ONNX Runtime, and that of the standard where a processor makes ONNX Runtime cut sums of bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import einnet
from einnet.api.load import load_told
from einnet.cli.artifacts import verdict_lines
from einnet.evidence.audit import audit
from einnet.evidence.comparison import right
from einnet.evidence.comparison.right import evaluator_of_the_standard
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.standard import cut_short, cuts
from einnet.graph.passes.prepare import prepare
from einnet.runtime.machine import cpu_features

AVX2 = frozenset({"avx", "avx2"})


def product(op: str = "QLinearMatMul", *, weights: str = "int8", largest: int = 127, known: bool = True, then: str = "") -> onnx.ModelProto:
    """Unsigned bytes times bytes that are all nearly as large as they may be, as numbers."""
    rng = np.random.default_rng(0)
    w = rng.integers(largest - 8, largest + 1, (32, 8)).astype(weights)
    held: dict[str, np.ndarray] = {"s": np.array(2.0**-4, np.float32), "z": np.array(9, np.uint8), "t": np.array(2.0**-6, np.float32)}
    held |= {"v": np.array(0, weights), "r": np.array(8.0, np.float32), "m": np.array(3, np.uint8)}
    given = [helper.make_tensor_value_info("x", TensorProto.UINT8, [6, 32])]
    if known:
        held["w"] = w
    else:
        given.append(helper.make_tensor_value_info("w", helper.np_dtype_to_tensor_dtype(w.dtype), list(w.shape)))
    if op == "QLinearMatMul":
        nodes = [helper.make_node(op, ["x", "s", "z", "w", "t", "v", "r", "m"], ["i"]), helper.make_node("DequantizeLinear", ["i", "r", "m"], ["y"])]
    else:
        nodes = [helper.make_node(op, ["x", "w", "z", "v"], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)]
    if then:
        nodes.append(helper.make_node(then, ["y"], ["u"]))
    used = {name for n in nodes for name in n.input}
    weights_held = [numpy_helper.from_array(v, name) for name, v in held.items() if name in used]
    out = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    return helper.make_model(helper.make_graph(nodes, "bytes", given, out, weights_held), opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.mark.parametrize(("model", "features", "found"), [
    (product(), AVX2, ("i",)), (product(), AVX2 | {"avx_vnni"}, ()), (product(), AVX2 | {"avx512f", "avx512_vnni"}, ()),
    (product(), AVX2 | {"avx512f"}, ("i",)), (product(), frozenset({"asimd"}), ()),
    (product(largest=64), AVX2, ()), (product(largest=65), AVX2, ("i",)), (product(largest=64, known=False), AVX2, ("i",)),
    (product(weights="uint8"), AVX2, ()), (product("MatMulInteger"), AVX2, ()), (product("MatMulInteger", known=False), AVX2, ("i",)),
])  # fmt: skip
def test_what_is_cut_by_what_the_node_is_and_what_the_processor_has(model: onnx.ModelProto, features: frozenset[str], found: tuple[str, ...]) -> None:
    assert cut_short(model, {}, features) == found


@pytest.mark.parametrize("largest", [64, 127])
def test_a_right_program_is_verified_on_any_processor(largest: int, tmp_path: Path) -> None:
    """Where ONNX Runtime cuts the sums the program is held against the standard, and the table says so; else against ONNX Runtime."""
    path = tmp_path / "bytes.onnx"
    onnx.save(product(largest=largest, then="Tanh"), path)
    program = prepare(load(path))
    wrong = evaluator_of_the_standard(path, program)
    assert (wrong is not None) == (largest > 64 and cuts(cpu_features()))
    found = einnet.optimize(path, time_budget=20, threads=1, force=0)
    assert found.report["verification"]["passed"]
    found.save(tmp_path / "out.einnet")
    verdict = audit(path, load_told(tmp_path / "out.einnet"))
    assert verdict["passed"]
    assert not right.is_whole(load_told(tmp_path / "out.einnet").plan)
    assert ("beside the evaluator of the standard" in "\n".join(verdict_lines(verdict))) == (wrong is not None)


def test_the_standard_counts_as_the_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs are the integers' own, whatever this processor has; a program in which ONNX Runtime runs such a node is wrong as that is."""
    monkeypatch.setattr(right, "cpu_features", lambda: AVX2)
    model = product()
    program = prepare(load(model))
    found = evaluator_of_the_standard(model, program)
    assert found is not None and found[1] == ("i",)
    x = np.random.default_rng(1).integers(0, 256, (6, 32)).astype(np.uint8)
    w = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "w")).astype(np.int64)
    total = (x.astype(np.int64) - 9) @ w * 2.0**-10
    assert np.array_equal(found[0]({"x": x})["y"], (np.clip(np.rint(total / 8) + 3, 0, 255) - 3).astype(np.float32) * 8)
    large = product("MatMulInteger", known=False)
    assert evaluator_of_the_standard(large, prepare(load(large))) is not None
