"""Nothing passes that was not compared, nothing wrong is written, and a program is known by the model that it was made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import einnet
from einnet.cli import main
from einnet.compile.targets.cuda.target import CudaOptimization
from einnet.errors import ArtifactError, ModelError, UsageError
from einnet.evidence.audit import audit
from einnet.evidence.comparison.draws import random_values, where_defined
from einnet.evidence.comparison.verdicts import model_digest, not_compared
from einnet.evidence.comparison.verify import compare_outputs, magnitudes
from einnet.evidence.report.assemble import build_report
from einnet.graph.onnx.importer import load
from einnet.graph.onnx.mapped import serialised_in_pieces
from einnet.graph.onnx.read import is_model, serialised
from einnet.graph.passes.prepare import prepare
from einnet.records import changed
from einnet.runtime.onnx.model import export
from einnet.runtime.ort import Session
from einnet.runtime.timing import Timing
from einnet.search.choosing.making import candidates
from einnet.search.space import Options
from tests.drawn import plan_of_any
from tests.models import two_layers

SHORT = {"time_budget": 1, "max_depth": 1, "threads": 1}


def value(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(nodes, inputs, outputs, constants=None, opset=18) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_a_reference_without_a_number_passes_nothing() -> None:
    nan = np.full((2, 3), np.nan, np.float32)
    found = compare_outputs({"y": nan}, {"y": nan}, 1e-4)
    assert found.passed is False
    assert "y" in found.not_compared
    some = nan.copy()
    some[0, 0] = 1
    assert compare_outputs({"y": some}, {"y": some}, 1e-4).passed
    assert compare_outputs({"y": nan[:0]}, {"y": nan[:0]}, 1e-4).passed
    assert not compare_outputs({"y": some + 1}, {"y": some}, 1e-4).passed


def test_rounding_is_no_error_of_an_output_that_cancels_on_some_inputs() -> None:
    """Its magnitude on other inputs says what rounding is: a hundredth more of it is an error, as it is of what does not cancel."""
    none, one = np.zeros(3, np.float32), np.full(3, 8, np.float32)
    usual = magnitudes({"y": none}, {"y": one})
    assert usual == {"y": 8.0}
    for share, passed in ((0.99, True), (1.01, False)):
        off = np.float32(share * 1e-4 * 8)
        assert compare_outputs({"y": none + off}, {"y": none}, 1e-4, usual).passed == passed
        assert not compare_outputs({"y": none + off}, {"y": none}, 1e-4).passed
    small = one / 1000
    assert not compare_outputs({"y": small + np.float32(4e-4)}, {"y": small}, 1e-4, usual).passed
    count = np.zeros(3, np.int64)
    assert not compare_outputs({"y": count + 1}, {"y": count}, 1e-4, {"y": 1e9}).passed
    assert not compare_outputs({"y": none + np.float32(np.inf)}, {"y": none}, 1e-4, usual).passed


def test_inputs_without_an_axis_are_drawn_as_arrays(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "s"], ["m"]), helper.make_node("Exp", ["m"], ["y"])]
    numbers = model(nodes, [value("x"), value("s")], [value("y")])
    result = einnet.optimize(numbers, force=0, **SHORT)  # no program of ours is left to times
    assert audit(numbers, einnet.load(result.save(tmp_path / "p.einnet")))["passed"]


def test_an_input_without_an_axis_is_an_array_beside_what_depends_on_no_input(tmp_path: Path) -> None:
    """Where something is settled, the inputs are moved by a rounding each: of an array without an axis numpy makes a number."""
    nodes = [
        helper.make_node("Mul", ["x", "t"], ["b"]), helper.make_node("Add", ["x", "x"], ["c"]), helper.make_node("Sub", ["b", "c"], ["y"]),
        helper.make_node("Mul", ["x", "s"], ["z"]),
    ]  # fmt: skip
    settled = model(nodes, [value("x", 4, 8), value("s")], [value("y", 4, 8), value("z", 4, 8)], {"t": np.full((), 2.0, np.float32)})
    result = einnet.optimize(settled, force=0, **SHORT)
    assert audit(settled, einnet.load(result.save(tmp_path / "p.einnet")))["passed"]


def test_places_in_a_table_of_two_rows_are_drawn(tmp_path: Path) -> None:
    """Models of language take the kind of each token's sentence."""
    rng = np.random.default_rng(0)
    tables = {"words": rng.standard_normal((50, 8)).astype(np.float32), "kinds": rng.standard_normal((2, 8)).astype(np.float32)}
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["a"]), helper.make_node("Gather", ["kinds", "types"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]  # fmt: skip
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, (1, 16)) for name in ("ids", "types")]
    language = model(nodes, given, [value("y", 1, 16, 8)], tables)
    result = einnet.optimize(language, force=0, **SHORT)
    assert audit(language, einnet.load(result.save(tmp_path / "p.einnet")))["passed"]


@pytest.mark.parametrize("derive", [False, True])
def test_an_output_that_is_listed_twice_is_one(derive: bool, tmp_path: Path) -> None:
    """torch's exporter lists what a module returns twice two times."""
    wide = np.random.default_rng(0).standard_normal((4, 3, 5, 5)).astype(np.float32)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]), helper.make_node("Relu", ["y"], ["z"])]
    outputs = [value("y", 1, 3, 13, 13), value("z", 1, 3, 13, 13), value("y", 1, 3, 13, 13)]
    twice = model(nodes, [value("x", 1, 4, 5, 5)], outputs, {"w": wide})
    result = einnet.optimize(twice, force=1, derive=derive, **SHORT)
    assert list(result(np.ones((1, 4, 5, 5), np.float32))) == ["y", "z"]
    assert audit(twice, einnet.load(result.save(tmp_path / "p.einnet")))["passed"]
    result.save(tmp_path / "p.onnx")  # which compares it with the model
    assert [o.name for o in Session(tmp_path / "p.onnx", 1).outputs] == ["y", "z"]


def test_outputs_without_a_type_have_that_of_their_nodes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("ArgMax", ["y"], ["z"])]
    untyped = model(nodes, [value("x", 3, 4)], [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="z")])
    result = einnet.optimize(untyped, force=0, **SHORT)
    found = result(np.ones((3, 4), np.float32))
    assert (found["y"].dtype, found["z"].dtype, found["z"].shape) == (np.float32, np.int64, (1, 4))
    assert audit(untyped, einnet.load(result.save(tmp_path / "p.einnet")))["passed"]
    assert result.save(tmp_path / "p.onnx").exists()


LOSSES = {
    "a logarithm": ([helper.make_node("Log", ["x"], ["l"])], lambda x: (x > 0).all() and (x > 1).any()),
    "of a probability": (
        [helper.make_node("Sub", ["one", "x"], ["o"]), helper.make_node("Log", ["o"], ["a"]), helper.make_node("Log", ["x"], ["b"]),
         helper.make_node("Add", ["a", "b"], ["l"])], lambda x: ((x > 0) & (x < 1)).all(),
    ),
    "of anything": ([helper.make_node("Exp", ["x"], ["l"])], lambda x: (x < 0).any()),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_inputs_are_such_that_a_model_gives_numbers(name: str, tmp_path: Path) -> None:
    """A sum over logarithms of standard normal numbers is NaN, which tells nothing."""
    nodes, fits = LOSSES[name]
    added = [*nodes, helper.make_node("ReduceSum", ["l"], ["y"], keepdims=0)]
    loss = model(added, [value("x", 16, 16)], [value("y")], {"one": np.ones((), np.float32)})
    result = einnet.optimize(loss, force=0, **SHORT)
    assert result.report["verification"]["passed"]
    seen: list[np.ndarray] = []
    session = Session(loss.SerializeToString(), 1)

    def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        seen.append(given["x"])
        return session(given)

    found, outputs = where_defined(run, random_values([("x", (16, 16), "f32")], 0))
    assert fits(found["x"]) and np.isfinite(outputs["y"]) and found["x"].dtype == np.float32
    assert len(seen) == {"a logarithm": 2, "of a probability": 3, "of anything": 1}[name]
    assert audit(loss, einnet.load(result.save(tmp_path / "p.einnet")))["passed"]
    assert result.save(tmp_path / "p.onnx").exists()


def test_places_are_0_where_a_model_takes_no_others(tmp_path: Path) -> None:
    """Rows are written from a place on, as into a cache of fixed size: only from the first one on all of them have room."""
    nodes = [
        helper.make_node("Add", ["at", "rows"], ["places"]), helper.make_node("Unsqueeze", ["places", "last"], ["each"]),
        helper.make_node("MatMul", ["x", "w"], ["new"]), helper.make_node("ScatterND", ["table", "each", "new"], ["whole"]),
        helper.make_node("Tanh", ["whole"], ["y"]),
    ]  # fmt: skip
    held = {"rows": np.arange(6), "last": np.array([1]), "w": np.ones((8, 8), np.float32)}
    at = helper.make_tensor_value_info("at", onnx.TensorProto.INT64, [1])
    cache = model(nodes, [value("table", 6, 8), at, value("x", 6, 8)], [value("y", 6, 8)], held)
    given = {"table": np.zeros((6, 8), np.float32), "at": np.array([1]), "x": np.ones((6, 8), np.float32)}
    session = Session(cache.SerializeToString(), 1)
    found, outputs = where_defined(session, given)
    assert found["at"] == 0 and found["x"] is given["x"] and np.isfinite(outputs["y"]).all()
    with pytest.raises(UsageError, match="cannot run"):
        where_defined(lambda values: session({**values, "at": np.array([7])}), given)
    for seed in range(4):
        assert einnet.optimize(cache, seed=seed, max_error=1e-2, **SHORT).report["verification"]["passed"]


def test_integers_that_are_divided_by_are_not_zero():
    def divided(values):
        if not values["n"].all():
            raise UsageError("division by zero")
        return {"y": values["m"] // values["n"]}

    found, outputs = where_defined(divided, {"m": np.array([4, 5]), "n": np.array([1, 0])})
    assert found["n"].tolist() == [1, 1] and outputs["y"].tolist() == [1, 1]


def test_a_model_whose_results_are_nan_is_kept_whole_and_not_compared(tmp_path: Path) -> None:
    roots = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Sqrt", ["n"], ["y"])]
    result = einnet.optimize(model(roots, [value("x", 2, 3)], [value("y", 2, 3)]), **SHORT)
    assert result.report["verification"]["passed"] is None
    assert "NaN in every element" in result.report["kept_whole"]
    assert result.report["totals"]["speedup"] is None
    assert einnet.load(result.save(tmp_path / "p.einnet")).report["verification"]["not_compared"]


def test_what_the_original_runs_is_not_compared_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(two_layers(), tmp_path / "m.onnx")
    out = tmp_path / "out.onnx"
    asked = ["--target", "onnx", "--no-derive", "--time-budget", "1", "--threads", "1"]
    assert main(["optimize", str(tmp_path / "m.onnx"), *asked, "-o", str(out)]) == 0
    assert "verification not compared (the original model is what runs)" in capsys.readouterr().out
    assert out.exists()


def test_a_program_that_failed_is_not_written(tmp_path: Path) -> None:
    result = einnet.optimize(two_layers(), **SHORT)
    result.record = changed(result.record, verification=changed(result.record.verification, passed=False, max_rel=0.5))
    for name in ("p.einnet", "p.onnx"):
        with pytest.raises(ArtifactError, match="not written: the program failed its verification"):
            result.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_onnx_model_that_gives_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = einnet.optimize(two_layers(), **SHORT)
    for weight in result.model.graph.initializer:
        other = np.array(numpy_helper.to_array(weight) * np.float32(1.01))
        broken = onnx.ModelProto()
        broken.CopyFrom(result.model)
        next(w for w in broken.graph.initializer if w.name == weight.name).CopyFrom(numpy_helper.from_array(other, weight.name))
        break
    monkeypatch.setattr("einnet.compile.export.onnx_file.to_onnx", lambda _: broken)
    with pytest.raises(ArtifactError, match="failed its verification"):
        result.save(tmp_path / "p.onnx")
    assert list(tmp_path.iterdir()) == []


def reshaped(allowzero: int) -> onnx.ModelProto:
    """A model that ONNX Runtime takes and cannot run: 32 elements in a shape of none."""
    node = helper.make_node("Reshape", ["x", "s"], ["r"], allowzero=allowzero)
    extra = [helper.make_node("NonZero", ["r"], ["y"])]
    found = model([node, *extra], [value("x", 4, 8)], [], {"s": np.array([0, 32] if allowzero else [5, 7], np.int64)})
    found.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, (2, None)))
    return found


@pytest.mark.parametrize("allowzero", [0, 1])
def test_a_model_that_onnx_runtime_cannot_run_is_no_success(allowzero: int, tmp_path: Path) -> None:
    onnx.save(reshaped(allowzero), tmp_path / "m.onnx")
    with pytest.raises((ModelError, UsageError)):
        einnet.optimize(reshaped(allowzero), **SHORT)
    for name in ("o.onnx", "o.einnet"):
        assert main(["optimize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / name), "--time-budget", "1", "--threads", "1"]) == 2
        assert not (tmp_path / name).exists()


def test_a_program_knows_the_model_that_it_was_made_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(two_layers(), tmp_path / "m.onnx")
    onnx.save(two_layers(seed=1), tmp_path / "other.onnx")
    noted = two_layers()
    noted.doc_string, noted.producer_version = "a note", "9"
    stored = einnet.load(einnet.optimize(tmp_path / "m.onnx", **SHORT).save(tmp_path / "p.einnet"))
    assert audit(noted, stored)["passed"]
    assert main(["verify", str(tmp_path / "other.onnx"), str(tmp_path / "p.einnet")]) == 1
    out = capsys.readouterr().out
    assert "p.einnet was made from another model: " in out and out.startswith("FAILED\n")


def test_the_digest_is_of_what_a_model_computes(tmp_path: Path) -> None:
    base = two_layers()
    onnx.save(base, tmp_path / "m.onnx")
    onnx.save(base, tmp_path / "apart.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    assert model_digest(tmp_path / "m.onnx") == model_digest(two_layers()) == model_digest(tmp_path / "apart.onnx")
    for change in (lambda m: m.graph.node.pop(), lambda m: m.graph.initializer.pop(), lambda m: setattr(m.opset_import[0], "version", 17)):
        changed = two_layers()
        change(changed)
        assert model_digest(changed) != model_digest(two_layers())


def test_a_digest_leaves_the_model_as_it_is() -> None:
    noted = two_layers()
    noted.doc_string = "a note"
    before = noted.SerializeToString()
    assert model_digest(noted) == model_digest(two_layers())
    assert noted.SerializeToString() == before


@pytest.mark.parametrize("functions", [False, True])
def test_a_model_in_pieces_is_the_model(functions: bool) -> None:
    model = two_layers()
    model.ir_version, model.producer_name, model.graph.doc_string = 8, "somebody", "a note"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((40, 50), np.float32), "more"))
    if functions:
        inner = onnx.helper.make_node("Relu", ["x"], ["y"])
        model.functions.append(onnx.helper.make_function("own", "f", ["x"], ["y"], [inner], [onnx.helper.make_opsetid("", 18)]))
        onnx.helper.set_model_props(model, {"a": "b"})
    whole = model.SerializeToString(deterministic=True)
    assert b"".join(serialised_in_pieces(model, {})) == whole
    empty = onnx.ModelProto(graph=onnx.GraphProto(name="empty"))
    assert b"".join(serialised_in_pieces(empty, {})) == onnx.ModelProto(graph=onnx.GraphProto(name="empty")).SerializeToString(deterministic=True)


def test_a_file_of_which_the_fields_are_ordered_otherwise_is_the_same_model(tmp_path: Path) -> None:
    """What a program keeps of a file are its bytes; of a model in memory, those that the library writes."""
    model = two_layers()
    head, rest = onnx.ModelProto(ir_version=model.ir_version), onnx.ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("ir_version")
    (tmp_path / "m.onnx").write_bytes(rest.SerializeToString() + head.SerializeToString())
    data = serialised(tmp_path / "m.onnx")
    assert data is not None and data != serialised(model)
    assert is_model(data, model) and is_model(model.SerializeToString(), tmp_path / "m.onnx")
    other = two_layers()
    other.graph.node.pop()
    assert not is_model(data, other)
    assert not is_model(b"no model at all", model)


def test_weights_that_stand_apart_are_in_what_a_program_keeps(tmp_path: Path) -> None:
    model = two_layers()
    onnx.save(model, tmp_path / "apart.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    data = serialised(tmp_path / "apart.onnx")
    assert data is not None and len(data) > (tmp_path / "apart.onnx").stat().st_size
    onnx.save(two_layers(), tmp_path / "m.textproto")
    assert serialised(tmp_path / "m.textproto") == two_layers().SerializeToString()


def test_the_function_takes_cuda_as_the_command_does(tmp_path: Path) -> None:
    result = einnet.optimize(two_layers(), backend="cuda", time_budget=0.2)
    assert isinstance(result, CudaOptimization)
    assert result.report["device"] == "NVIDIA H100 80GB HBM3" and result.report["math"] == "fp32"
    assert einnet.optimize(two_layers(), backend="cuda", math="tf32", derive=False, time_budget=0.2).report["math"] == "tf32"
    assert result.report["verification"]["passed"]
    assert result.save(tmp_path / "p.einnet").exists()
    with pytest.raises(UsageError, match="profile describes a CUDA device"):
        einnet.optimize(two_layers(), profile="p.json", **SHORT)
    with pytest.raises(UsageError, match="math is about products on a CUDA device"):
        einnet.optimize(two_layers(), math="tf32", **SHORT)
    with pytest.raises(UsageError, match="backend 'tpu' is not one of cpu, cuda"):
        einnet.optimize(two_layers(), backend="tpu")


def test_a_time_that_was_taken_once_is_no_ratio() -> None:
    result = einnet.optimize(two_layers(), derive=False, **SHORT)
    t = result.timed.totals
    times = {name: Timing(getattr(t, f"{name}_ms") / 1e3, 0.0, 3) for name in ("original", "optimized", "onnxruntime")}
    given = (result.model, result.outcome.program, result.outcome, result.settings)
    rest = (result.record.verification, result.certificate, (), {}, 1.0)
    assert build_report(*given, {**times, "once": "out of memory"}, *rest).totals.speedup is None
    assert build_report(*given, {**times, "once": ""}, *rest).totals.speedup == pytest.approx(t.onnxruntime_ms / t.optimized_ms)


def test_not_compared_is_neither() -> None:
    assert not_compared(1e-4, "why").passed is None


def own_operators(given: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model written anew from its expressions."""
    plan = plan_of_any(prepare(load(given)), Options(max_depth=0, states=1), lambda forms: candidates(forms, lambda k: [1.0] * len(k))[0])
    return export(plan, opset)


def the_same(made: onnx.ModelProto, given: onnx.ModelProto) -> None:
    onnx.checker.check_model(made, full_check=True)
    rng = np.random.default_rng(0)
    inputs = {v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32) for v in given.graph.input}
    got, wanted = Session(made.SerializeToString(), 1)(inputs), Session(given.SerializeToString(), 1)(inputs)
    assert list(got) == list(wanted)
    for name, y in wanted.items():
        assert got[name].shape == y.shape
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 18])
def test_an_input_that_is_an_output_is_one_value(opset: int) -> None:
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    given = model(nodes, [value("x", 4, 8)], [value("x", 4, 8), value("y", 4, 8)], {"w": weight}, opset)
    the_same(own_operators(given, opset), given)


@pytest.mark.parametrize("opset", [14, 18])
def test_a_tensor_without_elements_changes_its_shape(opset: int) -> None:
    """By an opaque Reshape with allowzero, beside something that is written: ONNX Runtime joins Reshapes and forgets allowzero."""
    nodes = [helper.make_node("Reshape", ["e", "s"], ["y"], allowzero=1), helper.make_node("MatMul", ["x", "w"], ["z"])]
    constants = {"s": np.array([4, 0], np.int64), "w": np.ones((8, 3), np.float32)}
    given = model(nodes, [value("e", 0, 4), value("x", 4, 8)], [value("y", 4, 0), value("z", 4, 3)], constants, opset)
    the_same(own_operators(given, opset), given)
