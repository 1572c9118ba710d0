"""Whatever a model holds comes out of `optimize`, of its artifact and of its ONNX model as ONNX Runtime gives it for the original."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node as node

import einnet
from einnet.compile.export.onnx_file import exported
from einnet.errors import ModelError, UsageError
from einnet.runtime.ort import Session
from tests.compile.test_onnx_part import outcome_of
from tests.models import random_inputs, tiny

FLOAT, DOUBLE, HALF, BOOL, INT, BYTE, TEXT = (
    getattr(TensorProto, n) for n in ("FLOAT", "DOUBLE", "FLOAT16", "BOOL", "INT64", "UINT8", "STRING")
)  # fmt: skip

Values = dict[str, Any]


def value(name: str, kind: int, *shape: int | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    """A graph that reads values of the graph around it and gives "NAME.out"."""
    return helper.make_graph(nodes, name, [], [value(f"{name}.out", FLOAT, None, None)])


def body() -> onnx.GraphProto:
    """Of a loop: adds the outer value "shown" to what it carries."""
    ends = [value("again", BOOL), value("sum", FLOAT, 2, 3)]
    nodes = [node("Identity", ["go"], ["again"]), node("Add", ["carried", "shown"], ["sum"], name="in_loop")]
    return helper.make_graph(nodes, "body", [value("i", INT), value("go", BOOL), value("carried", FLOAT, 2, 3)], ends)


def everything() -> onnx.ModelProto:
    """One graph of pieces that share little: types, sizes, scopes of names, and outputs of all kinds."""
    weights = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4) / 8, "three": np.array(3, np.int64), "yes": np.array(True), "scale": np.float32(0.05),
        "point": np.uint8(7), "none": np.zeros((0, 3), np.float32), "zero": np.zeros((), np.int64), "half": np.ones(3, np.float16),
        "words": np.array(["b", "a"], dtype=object), "axes": np.array([0], np.int64),
    }  # fmt: skip
    nodes = [
        node("Relu", ["x"], ["shown"], name="shown"),
        node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Greater", ["total", "s"], ["positive"]),
        node("If", ["positive"], ["chosen"], then_branch=branch("then", node("Neg", ["shown"], ["then.out"])),
             else_branch=branch("else", node("Mul", ["shown", "s"], ["else.out"]))),
        node("Loop", ["three", "yes", "x"], ["looped"], body=body()),
        node("Twice", ["x"], ["twice"], domain="mine", name="call"),
        node("MatMul", ["twice", "w"], ["product"]),
        node("Clip", ["product", "", "s"], ["clipped"]),
        node("Add", ["d", "d"], ["doubled"]),
        node("Add", ["h", "half"], ["halved"]),
        node("Not", ["b"], ["negated"]),
        node("Mod", ["n", "three"], ["rest"]),
        node("QuantizeLinear", ["x", "scale", "point"], ["bytes"]),
        node("DequantizeLinear", ["bytes", "scale", "point"], ["back"]),
        node("Exp", ["e"], ["nothing"]),
        node("Concat", ["e", "x", "none"], ["longer"], axis=0),
        node("MatMul", ["e", "w"], ["no_rows"]),
        node("Exp", ["s"], ["scalar"]),
        node("SequenceConstruct", ["x", "shown"], ["pair"]),
        node("SequenceAt", ["pair", "zero"], ["first"]),
        node("Unique", ["words"], ["sorted", "", "place"]),
        node("Cast", ["rest"], ["text"], to=TEXT),
        node("Cast", ["text"], ["read"], to=DOUBLE),
        node("Split", ["product"], ["left", "unused"], axis=1, num_outputs=2),
        node("Identity", ["product"], ["same"]),
        node("Softplus", ["x"], ["dead"]),
    ]  # fmt: skip
    given = [value("x", FLOAT, 2, 3), value("s", FLOAT), value("e", FLOAT, 0, 3), value("d", DOUBLE, 2), value("h", HALF, 3), value("b", BOOL, 2),
             value("n", INT, 4), value("ignored", FLOAT, 5)]  # fmt: skip
    found = {
        "chosen": (FLOAT, 2, 3), "looped": (FLOAT, 2, 3), "clipped": (FLOAT, 2, 4), "doubled": (DOUBLE, 2), "halved": (HALF, 3), "negated": (BOOL, 2),
        "rest": (INT, 4), "bytes": (BYTE, 2, 3), "back": (FLOAT, 2, 3), "nothing": (FLOAT, 0, 3), "longer": (FLOAT, 2, 3), "no_rows": (FLOAT, 0, 4),
        "scalar": (FLOAT,), "first": (FLOAT, 2, 3), "place": (INT, 2), "read": (DOUBLE, 4),
        "left": (FLOAT, 2, 2), "product": (FLOAT, 2, 4), "same": (FLOAT, 2, 4),
    }  # fmt: skip
    initial = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "everything", given, [value(n, *kind) for n, kind in found.items()], initial)
    twice = helper.make_function("mine", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=[twice], ir_version=8)


def inputs() -> Values:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((2, 3)).astype(np.float32), "s": np.array(0.5, np.float32), "e": np.zeros((0, 3), np.float32),
        "d": np.array([1e-300, 2.0]), "h": np.array([1, 2, 65504], np.float16), "b": np.array([True, False]),
        "n": np.array([2**53 + 1, -7, 0, 5]), "ignored": np.ones(5, np.float32),
    }  # fmt: skip


def same(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    assert got.keys() == wanted.keys()
    for name, y in wanted.items():
        assert (got[name].shape, got[name].dtype) == (y.shape, y.dtype), name
        if y.dtype == np.float32:
            np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], y, err_msg=name)


def well_formed(path: Path) -> onnx.ModelProto:
    """What viewers and other runtimes rely on: the full check, types that agree with inference, names that are unique, domains that are imported."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    known = {v.name for v in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)}
    made = [o for n in model.graph.node for o in n.output if o]
    titles = [n.name for n in model.graph.node if n.name]
    assert len(set(made)) == len(made)
    assert len(set(titles)) == len(titles)
    assert {n.domain for n in model.graph.node} <= {o.domain for o in model.opset_import} | {""}
    assert {f.domain for f in model.functions} <= {o.domain for o in model.opset_import}
    sequences = {o for n in model.graph.node if n.op_type.startswith("Sequence") for o in n.output}
    assert set(made) <= known | sequences, "every edge has a type"
    return model


def test_everything_at_once(tmp_path: Path) -> None:
    model, given = everything(), inputs()
    wanted = Session(model.SerializeToString(), 1)(given)
    result = einnet.optimize(model, time_budget=1, max_depth=1, threads=1)
    assert result.report["verification"]["passed"]
    same(result(given), wanted)
    same(einnet.load(result.save(tmp_path / "all.einnet"))(given), wanted)
    written = well_formed(result.save(tmp_path / "all.onnx"))
    assert [v.name for v in written.graph.input] == list(given)
    assert [v.name for v in written.graph.output] == list(wanted)
    same(Session(str(tmp_path / "all.onnx"), 1)(given), wanted)


@pytest.mark.parametrize("written", [".einnet", ".onnx"])
def test_a_model_without_a_name_and_the_rank_of_its_input(written: str, tmp_path: Path) -> None:
    """ONNX Runtime takes both."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    nodes = [onnx.helper.make_node("Tanh", ["x"], ["t"]), onnx.helper.make_node("MatMul", ["t", "x"], ["y"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y]), opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    model.graph.ClearField("name")
    given = {"x": np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)}
    result = einnet.optimize(model, time_budget=1, max_depth=1, threads=1, shapes={"x": (3, 3)})
    path, wanted = result.save(tmp_path / f"a{written}"), Session(model.SerializeToString(), 1)(given)
    same(result(given), wanted)
    if written == ".einnet":
        same(einnet.load(path)(given), wanted)
    else:
        assert [d.dim_value for d in well_formed(path).graph.input[0].type.tensor_type.shape.dim] == [3, 3]
        same(Session(str(path), 1)(given), wanted)


@pytest.mark.parametrize("seed", range(3))
def test_everything_with_whatever_is_derived_of_it(seed: int, tmp_path: Path) -> None:
    model, given = everything(), inputs()
    outcome = outcome_of(model, Random(seed), 1.0)
    assert any(r.changed for r in outcome.results)
    onnx.save(exported(outcome, model), tmp_path / "all.onnx")
    written = well_formed(tmp_path / "all.onnx")
    typed = {v.name for v in (*written.graph.value_info, *written.graph.output)}
    assert {o for n in written.graph.node for o in n.output if o.startswith("einnet_")} <= typed, "viewers show shapes"
    assert {p.key.split(".")[0] for p in written.metadata_props} == {"einnet"}
    same(Session(str(tmp_path / "all.onnx"), 1)(given), Session(model.SerializeToString(), 1)(given))


def overridable() -> onnx.ModelProto:
    """An initialiser that is an input too: whoever runs the model may give another value."""
    ends = [value("x", FLOAT, 2, 3), value("w", FLOAT, 3, 4)], [value("y", FLOAT, 2, 4)]
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    graph = helper.make_graph([node("MatMul", ["x", "w"], ["y"], name="product")], "overridable", *ends, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_an_overridden_initialiser_is_never_ignored(tmp_path: Path) -> None:
    """The program has it as a constant and says so; a model in which something was derived takes no other value either."""
    model, given, other = overridable(), {"x": inputs()["x"]}, {"w": np.ones((3, 4), np.float32)}
    wanted = Session(model.SerializeToString(), 1)(given)
    result = einnet.optimize(model, time_budget=1, max_depth=0, threads=1)
    same(result(given), wanted)
    with pytest.raises(UsageError, match="'w'"):
        result({**given, **other})
    outcome = outcome_of(model, Random(0), 1.0)
    assert any(r.changed for r in outcome.results)
    for written, takes in ((exported(outcome, model), False), (onnx.load(result.save(tmp_path / "own.onnx")), True)):
        session = Session(written.SerializeToString(), 1)
        same(session(given), wanted)
        if takes:
            np.testing.assert_allclose(session({**given, **other})["y"], given["x"] @ other["w"], rtol=1e-5, atol=1e-5)
        else:
            with pytest.raises(UsageError, match="w"):
                session({**given, **other})


def test_weights_beyond_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of the format weights stand beside the model, under its name; what was given stays whole, and missing data are named."""
    monkeypatch.setattr("einnet.runtime.onnx.model.LARGEST", 100)
    model = tiny("small")
    before, given = model.SerializeToString(), random_inputs(model)
    wanted = Session(before, 1)(given)
    result = einnet.optimize(model, time_budget=1, max_depth=1, threads=1)
    path = result.save(tmp_path / "large.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data"]
    assert model.SerializeToString() == before
    same(Session(str(path), 1)(given), wanted)
    again = einnet.optimize(path, time_budget=1, max_depth=0, threads=1)
    same(einnet.load(again.save(tmp_path / "large.einnet"))(given), wanted)
    (tmp_path / "large.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"large\.onnx\.data"):
        einnet.optimize(path, time_budget=1, threads=1)


def table_beside(folder: Path, rows: int, width: int) -> Path:
    """A model with a table of rows·width floats in a file of its own, 0 but for the first rows: some of it are taken, and added up."""
    ends = [value("ids", INT, 4)], [value("taken", FLOAT, 4, width), value("total", FLOAT, 4, 2)]
    table = TensorProto(name="table", data_type=FLOAT, dims=[rows, width], data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": "table.bin", "offset": "0", "length": str(4 * rows * width)}.items():
        table.external_data.add(key=key, value=entry)
    weights = [table, numpy_helper.from_array(np.ones((width, 2), np.float32), "w")]
    nodes = [node("Gather", ["table", "ids"], ["taken"], name="rows"), node("MatMul", ["taken", "w"], ["total"], name="sum")]
    model = helper.make_model(helper.make_graph(nodes, "table", *ends, weights), opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with (folder / "table.bin").open("wb") as file:
        file.write(np.arange(8 * width, dtype=np.float32).tobytes())
        file.truncate(4 * rows * width)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("rows", [64, pytest.param((1 << 29) // 32 + 4096, marks=pytest.mark.slow)], ids=["small", "over 2 GB"])
def test_a_table_beside_the_model(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 2 GB too (11 GB of memory, 5 of disk): read, run, and written with its weights beside it again."""
    if rows == 64:
        monkeypatch.setattr("einnet.runtime.onnx.model.LARGEST", 1000)
    path, ids = table_beside(tmp_path, rows, 32), np.array([0, 7, rows - 1, 3])
    wanted = np.zeros((4, 32), np.float32)
    wanted[[0, 1, 3]] = np.arange(8 * 32, dtype=np.float32).reshape(8, 32)[[0, 7, 3]]
    result = einnet.optimize(path, time_budget=1, max_depth=1, threads=1)
    np.testing.assert_array_equal(result({"ids": ids})["taken"], wanted)
    written = result.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size >= 4 * rows * 32
    assert written.stat().st_size < 100_000
    del result
    got = Session(written, 1)({"ids": ids})
    np.testing.assert_array_equal(got["taken"], wanted)
    np.testing.assert_allclose(got["total"], wanted @ np.ones((32, 2)), rtol=1e-6)
