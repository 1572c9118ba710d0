"""Models that no static program stands for are kept: sequences, strings, shapes that depend on data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import einnet
from einnet.cli import main
from einnet.compile.targets.whole.target import run_once
from einnet.errors import ModelError, UsageError
from einnet.runtime.whole import Whole
from einnet.search.settings import Settings

FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sequences() -> onnx.ModelProto:
    kind = helper.make_sequence_type_proto(FLOATS)
    nodes = [helper.make_node("SequenceInsert", ["s", "x"], ["t"])]
    ends = [helper.make_value_info("s", kind), helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    return model(nodes, ends, [helper.make_value_info("t", kind)])


def strings() -> onnx.ModelProto:
    end = [helper.make_tensor_value_info(n, TensorProto.STRING, [2]) for n in ("a", "b")]
    return model([helper.make_node("Identity", ["a"], ["b"])], end[:1], end[1:])


def data_dependent() -> onnx.ModelProto:
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]), helper.make_tensor_value_info("y", TensorProto.INT64, [1, "n"])
    return model([helper.make_node("NonZero", ["x"], ["y"])], [x], [y])


def probabilities() -> onnx.ModelProto:
    """A classifier as scikit-learn's exporter writes it: a map from class to probability for each row."""
    x, label = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]), helper.make_tensor_value_info("label", TensorProto.INT64, [2])
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    nodes = [helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0), helper.make_node("Softmax", ["x"], ["p"], axis=1)]
    nodes.append(helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[4, 5, 6]))
    made = model(nodes, [x], [label, helper.make_value_info("maps", helper.make_sequence_type_proto(kind))])
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return made


def declared_otherwise() -> onnx.ModelProto:
    """ONNX Runtime takes no notice of the sizes that a model declares for what depends on data."""
    kinds = {"x": (TensorProto.FLOAT, [4]), "n": (TensorProto.INT64, [1, 4]), "y": (TensorProto.INT64, [4])}
    x, n, y = (helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items())
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["n"])]
    nodes.append(helper.make_node("ReduceMax", ["n"], ["y"], axes=[0], keepdims=0))
    found = model(nodes, [x], [y])
    found.graph.value_info.append(n)
    return found


@pytest.mark.parametrize(
    ("made", "inputs"),
    [
        (sequences, {"s": [np.ones(2, np.float32)], "x": np.zeros(2, np.float32)}),
        (strings, {"a": np.array(["p", "q"], dtype=object)}),
        (data_dependent, {"x": np.array([0, 2, 0, 3], np.float32)}),
        (declared_otherwise, {"x": np.array([0, 2, 0, 3], np.float32)}),
        (probabilities, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}),
    ],
)
def test_kept_and_run(made, inputs, tmp_path: Path):
    result = einnet.optimize(made(), threads=1)
    assert result.report["kept_whole"]
    assert result.derivations == []
    expected = result(inputs)
    loaded = einnet.load(result.save(tmp_path / "m.einnet"))
    for name, value in loaded(inputs).items():
        assert all(np.array_equal(a, b) for a, b in zip(value, expected[name], strict=True))
    written = onnx.load(result.save(tmp_path / "m.onnx"))
    assert written.graph == made().graph
    with pytest.raises(UsageError, match="is missing"):
        loaded({})


def test_commands(tmp_path: Path, capsys):
    onnx.save(data_dependent(), tmp_path / "m.onnx")
    out = tmp_path / "m.einnet"
    assert main(["optimize", str(tmp_path / "m.onnx"), "-o", str(out), "--threads", "1"]) == 0
    assert "kept whole, ONNX Runtime runs it" in capsys.readouterr().out
    np.save(tmp_path / "x.npy", np.array([0, 1, 1, 0], np.float32))
    assert main(["run", str(out), "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", str(tmp_path / "y")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y" / "y.npy"), [[1, 2]])
    assert main(["explain", str(out)]) == 0
    assert "kept whole" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "m.onnx"), str(out)]) == 0


def test_run_writes_texts_as_an_array_and_what_is_no_array_as_json(tmp_path: Path, capsys):
    for made, array in ((strings(), np.array(["p", "qu"])), (probabilities(), np.zeros((2, 3), np.float32))):
        name = made.graph.input[0].name
        einnet.optimize(made, threads=1).save(tmp_path / "m.einnet")
        np.save(tmp_path / "x.npy", array)
        assert main(["run", str(tmp_path / "m.einnet"), "--input", f"{name}={tmp_path / 'x.npy'}", "--output-dir", str(tmp_path)]) == 0
    assert np.load(tmp_path / "b.npy").tolist() == ["p", "qu"]
    maps = json.loads((tmp_path / "maps.json").read_text())
    assert [[*one] for one in maps] == [["4", "5", "6"]] * 2 and all(p == pytest.approx(1 / 3) for one in maps for p in one.values())
    assert f"maps: list -> {tmp_path / 'maps.json'}" in capsys.readouterr().out


def test_what_onnx_runtime_does_not_take_either(tmp_path: Path):
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Nothing", ["n"], ["y"])]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]), helper.make_tensor_value_info("y", TensorProto.INT64, [1, "n"])
    with pytest.raises(ModelError, match="Nothing"):
        einnet.optimize(model(nodes, [x], [y]), threads=1)


def free(inner: int) -> Whole:
    """x[n, m] times a weight of `inner` rows, n and m as the caller has them."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in (("x", ["n", "m"]), ("y", ["n", 3]))]
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], ends[:1], ends[1:])
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((inner, 3), np.float32), "w"))
    return Whole(made.SerializeToString(), 1, "free")


def test_what_has_no_sizes_is_run_at_drawn_ones() -> None:
    assert run_once(free(2), Settings(threads=1)) is None
    assert run_once(free(8), Settings(threads=1)) is None
    assert "takes none of those that were drawn" in str(run_once(free(7), Settings(threads=1)))
    assert run_once(free(7), Settings(threads=1, shapes={"x": (2, 7)})) is None
    with pytest.raises(UsageError):
        run_once(free(7), Settings(threads=1, shapes={"x": (2, 6)}))
    assert "no tensor of a type" in str(run_once(Whole(strings().SerializeToString(), 1, "strings"), Settings(threads=1)))
