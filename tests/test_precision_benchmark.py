"""The benchmark of programs within an error: rows, what is missing, a run that goes on where it ended, and a table that follows from the rows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import numpy as np
import onnx
import pytest

import einnet
from benchmarks.contest import compare
from benchmarks.contest.compare import Place, difference
from benchmarks.contest.engines import engine
from benchmarks.contest.programs import Search
from benchmarks.contest.worker import Engine, EngineError
from benchmarks.models import build
from benchmarks.precision import __main__ as precision
from benchmarks.precision import making
from benchmarks.precision.__main__ import main, parsed, rows_of
from benchmarks.precision.cases import BYTES, MODELS, Case, chosen, like
from benchmarks.precision.making import Maker
from benchmarks.precision.quantised import in_bytes
from benchmarks.precision.table import against, cells, markdown, row
from einnet.evidence.report.schema import Verification
from einnet.graph.onnx.importer import load
from einnet.graph.passes.integers.as_bytes import keeps_bytes
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.kernels.arithmetics import F32
from tests.models import random_inputs, two_layers

Arrays = Mapping[str, np.ndarray]
SHORT = ["--time-budget", "2", "--threads", "1", "--draws", "2", "--rounds", "1", "--seconds", "0.01", "--patience", "0.1"]


def doubled(path: Path, threads: int) -> Callable[[Arrays], list[np.ndarray]]:
    """An engine that is off by an eighth on inputs that are mostly negative, and right on others."""
    del path, threads
    return lambda inputs: [inputs["x"] * (1.125 if inputs["x"].sum() < 0 else 1.0)]


def failing(path: Path, threads: int) -> Callable[[Arrays], list[np.ndarray]]:
    raise EngineError("it opens nothing")


def same(path: Path, threads: int) -> Callable[[Arrays], list[np.ndarray]]:
    del path, threads
    return lambda inputs: [inputs["x"]]


def program(monkeypatch: pytest.MonkeyPatch, kinds: Mapping[str, str]) -> None:
    """Our programs are these functions of this module, by their names; the reference gives its input."""

    def found(maker: Maker, name: str, search: Search) -> tuple[Engine, dict[str, object]]:
        assert search.max_error == (None if name == "einnet_f32" else float(name))
        if name not in kinds:
            raise EngineError("it has none")
        return Engine(name, f"{__name__}:{kinds[name]}", maker.model), {"runs": "derived"}

    monkeypatch.setattr(Maker, "optimized", found)


def identity() -> onnx.ModelProto:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


class Within:
    """An engine in this process, in place of one in a process of its own."""

    def __init__(self, kind: str, path: Path, threads: int, cpus: object, limit: int = 0) -> None:
        del cpus, limit
        self.run = engine(kind)(path, threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None: ...
    def ready(self) -> None: ...
    def memory(self, inputs: Arrays) -> int:
        return len(inputs)

    def time(self, inputs: Arrays, seconds: float) -> tuple[list[float], float]:
        return [1.0 * len(inputs)], seconds


def test_the_error_of_a_row_is_the_greatest_of_fresh_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is right on the inputs that are timed, and not on others, is not within its budget."""
    monkeypatch.setattr(compare, "Worker", Within)
    monkeypatch.setattr(compare, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(precision, "Worker", Within)
    program(monkeypatch, {"einnet_f32": "same", "0.1": "doubled", "0.2": "doubled"})
    options = parsed([*SHORT, "--errors", "0.1", "0.2", "0.3"])

    def draw(seed: int) -> dict[str, np.ndarray]:
        return {"x": np.array([3, 2, 1, 4], np.float32) * (-1 if seed == 2 else 1)}

    narrow, wide, absent = rows_of("m", identity(), draw, Place(1, (0,)), options, {})
    assert (narrow["error"]["einnet"], narrow["within"]) == (0.125, False)
    assert (wide["error"]["einnet"], wide["within"]) == (0.125, True)
    assert (narrow["error"]["einnet_f32"], narrow["error"]["onnxruntime"]) == (0, 0)
    assert {"onnxruntime", "einnet_f32", "einnet"} == narrow["ms"].keys() != absent["ms"].keys()
    assert absent["missing"]["einnet"] == "it has none" and not absent["within"]
    assert wide["missing"] == {c: f"{p} is not installed" for c, p in
                               (("openvino_f32", "openvino"), ("openvino_default", "openvino"), ("torch_bf16", "torch"))}  # fmt: skip


def test_another_engines_own_error_is_a_budget_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that errs no more than what it is compared with; where that computes in float32, or fails, there is no such row."""
    monkeypatch.setattr(compare, "Worker", Within)
    monkeypatch.setattr(compare, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(precision, "Worker", Within)
    monkeypatch.setattr(precision, "likely", lambda settings: [F32] if (settings.max_error or 0) > 1e-3 else [])
    program(monkeypatch, {"einnet_f32": "same", "0.1": "same", "0.12": "doubled"})

    def draw(seed: int) -> dict[str, np.ndarray]:
        return {"x": np.array([3, 2, 1, 4], np.float32) * (-1 if seed == 2 else 1)}

    def rows(kind: str, *more: str) -> list[dict[str, object]]:
        monkeypatch.setattr(precision, "OTHERS", {"openvino_default": ("openvino", f"{__name__}:{kind}")})
        options = parsed([*SHORT, "--errors", "0.1", *more])
        return rows_of("m", identity(), draw, Place(1, (0,)), options, {"openvino": "1"})

    first, own = rows("doubled")
    assert (first["max_error"], own["max_error"], own["like"], "like" in first) == (0.1, 0.12, "openvino_default", False), "0.125 in two digits"
    assert (own["error"]["einnet"], own["error"]["openvino_default"]) == (0.125, 0.125) and not own["within"]
    assert len(rows("same")) == len(rows("doubled", "--no-matched")) == len(rows("failing")) == 1
    monkeypatch.setattr(precision, "OTHERS", dict.fromkeys(("openvino_default", "openvino_f32"), ("openvino", f"{__name__}:doubled")))
    assert len(rows_of("m", identity(), draw, Place(1, (0,)), parsed([*SHORT, "--errors", "0.1"]), {"openvino": "1"})) == 1, "no more than in float32"
    told = markdown({"machine": {"cpu": "c", "arithmetics": []}, "threads": 1, "models": [first, own]})
    assert "| m | 0.12 (OpenVINO's) |" in told and "The error of OpenVINO as it comes: 1.00x" in told and "Error 0.1: 1.00x" in told


@pytest.mark.parametrize(("verified", "ran"), [(4e-6, ["0.3", "0.2", "einnet_f32", "0.002"]), (6e-6, ["0.3", "0.2", "einnet_f32", "0.002", "9e-06"])])
def test_budgets_that_allow_the_same_share_a_program(monkeypatch: pytest.MonkeyPatch, verified: float, ran: list[str]) -> None:
    """None rounds at 9e-6, and two budgets that round are two questions; a program that errs by more is no answer."""
    asked = []

    def found(maker: Maker, name: str, search: Search) -> tuple[Engine, dict[str, object]]:
        asked.append(name)
        return Engine(name, "k", maker.model / name), {"verification": {"max_rel": verified}}

    monkeypatch.setattr(Maker, "optimized", found)
    monkeypatch.setattr(precision, "likely", lambda settings: [F32] if (settings.max_error or 0) > 1e-2 else [])
    options = parsed([*SHORT, "--errors", "9e-6", "2e-3", "0.2", "0.3"])
    engines, reports, missing = precision.programs(Path("m"), Place(1, (0,)), options, options.errors)
    assert asked == ran and not missing and engines.keys() == reports.keys() == {"einnet_f32", "9e-06", "0.002", "0.2", "0.3"}
    assert engines["9e-06"] == Engine("9e-06", "k", Path("m") / ("einnet_f32" if len(ran) == 4 else "9e-06"))
    assert precision.longest(options) == (1 + 4 * precision.LATER) * 2 + 5 * precision.FINISHING_S + 0.1 + precision.BESIDE_S


@pytest.mark.parametrize(("error", "runs", "asked"), [(1e-6, True, 4), (3e-5, True, 4), (1e-6, False, 3), (1e-4, True, 3)])
def test_where_rounding_hardly_shows_a_narrow_budget_is_a_question_too(monkeypatch: pytest.MonkeyPatch, error: float, runs: bool, asked: int) -> None:
    names = []

    def found(maker: Maker, name: str, search: Search) -> tuple[Engine, dict[str, object]]:
        names.append(name)
        told = {"error": error, "products": [{"runs": runs}]} if search.max_error else None
        return Engine(name, "k", maker.model / name), {"verification": {"max_rel": 1e-7}, "precision": told}

    monkeypatch.setattr(Maker, "optimized", found)
    monkeypatch.setattr(precision, "likely", lambda settings: [F32] if (settings.max_error or 0) > 1e-2 else [])
    precision.programs(Path("m"), Place(1, (0,)), parsed(SHORT), [9e-6, 0.2, 0.3])
    assert names == ["0.3", "0.2", "einnet_f32", "9e-06"][:asked]


def test_an_engine_is_loaded_once_for_all_that_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers is loaded for what is wanted, the reference for its times, and again; all others, and a program of two budgets, once."""
    loads: list[str] = []

    class Counted(Within):
        def __init__(self, kind: str, path: Path, threads: int, cpus: object, limit: int = 0) -> None:
            loads.append(kind.split(":")[-1])
            super().__init__(kind, path, threads, cpus, limit)

    monkeypatch.setattr(compare, "Worker", Counted)
    monkeypatch.setattr(compare, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(precision, "Worker", Counted)
    monkeypatch.setattr(precision, "likely", lambda settings: [])

    def found(maker: Maker, name: str, search: Search) -> tuple[Engine, dict[str, object]]:
        return Engine(name, f"{__name__}:same", maker.model.with_name(name)), {"verification": {"max_rel": 0.0}}

    monkeypatch.setattr(Maker, "optimized", found)
    options = parsed([*SHORT, "--errors", "9e-6", "1e-6"])
    rows = rows_of("m", identity(), lambda seed: {"x": np.full(4, seed + 1, np.float32)}, Place(1, (0,)), options, {})
    assert [loads.count(kind) for kind in ("same", "onnxruntime_whole", "onnxruntime")] == [1, 1, 2]
    assert all(r["ms"]["einnet"] == r["ms"]["einnet_f32"] == 1.0 and r["error"]["einnet"] == 0.0 and r["within"] for r in rows)


def test_where_onnx_runtime_runs_the_whole_model_its_times_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second measurement of the same would count as a difference."""
    loads: list[str] = []

    class Counted(Within):
        def __init__(self, kind: str, path: Path, threads: int, cpus: object, limit: int = 0) -> None:
            loads.append(kind)
            super().__init__(kind, path, threads, cpus, limit)

    monkeypatch.setattr(compare, "Worker", Counted)
    monkeypatch.setattr(compare, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(precision, "Worker", Counted)

    def found(maker: Maker, name: str, search: Search) -> tuple[Engine, dict[str, object]]:
        return Engine(name, f"{__name__}:doubled", maker.model), {"runs": precision.WHOLE, "verification": {"max_rel": 0.0}}

    monkeypatch.setattr(Maker, "optimized", found)
    options = parsed([*SHORT, "--errors", "0.2"])
    (one,) = rows_of("m", identity(), lambda seed: {"x": np.full(4, -1, np.float32)}, Place(1, (0,)), options, {})
    assert loads == [precision.ANSWERS, "onnxruntime", "onnxruntime"]
    assert one["ms"]["einnet"] == one["ms"]["einnet_f32"] == one["ms"]["onnxruntime"] and one["error"]["einnet"] == 0 and one["within"]


def test_a_model_that_nobody_can_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, {})
    (found,) = rows_of("m", onnx.ModelProto(), lambda seed: {}, Place(1, (0,)), parsed([*SHORT, "--errors", "0.1"]), {})
    assert found["missing"]["onnxruntime"] and not found["within"] and not found["ms"]


def test_a_budget_reaches_the_optimization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "cache"))
    onnx.save(model := two_layers(), tmp_path / "two.onnx")
    with Maker(tmp_path / "two.onnx", Place(1, (0,))) as maker:
        ours, report = maker.optimized("0.1", Search(1, "reassociation", 0, max_error=0.1))
        process = maker.process.pid
        _, plain = maker.optimized("einnet_f32", Search(1, "reassociation", 0))
        assert maker.process.pid == process, "one process makes both"
        with pytest.raises(EngineError, match=r"took more than 0 s with a budget of 1 s"):
            maker.optimized("late", Search(1, "reassociation", 0, limit=0.0))
        with pytest.raises(EngineError, match="max_error must be between 0 and 1"):
            maker.optimized("wrong", Search(1, "reassociation", 0, max_error=2.0))
        assert maker.process.pid not in (None, process), "what is late is ended, and the next search has a process"
    assert maker.process is None
    assert report["settings"]["max_error"] == report["verification"]["tolerance"] == 0.1
    assert plain.get("precision") is None and "max_error" not in plain["settings"]
    assert report.get("precision") is None or report["precision"]["max_error"] == 0.1
    inputs = random_inputs(model, 0)
    (got,), (wanted,) = (precision.answers(e, [inputs], Place(1, (0,))) for e in (ours, Engine("r", "onnxruntime", tmp_path / "two.onnx")))
    assert difference(got, wanted) <= 0.1


def test_answers_are_sums_of_whole_integers() -> None:
    """At both ends of both types, where pairs of products leave 16 bits."""
    rng = np.random.default_rng(0)
    w = rng.choice([-128, 127], (64, 8)).astype(np.int8)
    constants = {"s": np.array(1, np.float32), "z": np.array(0, np.uint8), "zw": np.array(0, np.int8), "w": w}
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        onnx.helper.make_node("DequantizeLinear", ["w", "s", "zw"], ["v"]), onnx.helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]  # fmt: skip
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", [16, 64]), ("y", [16, 8])))
    held = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], held), opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    draw = rng.choice([0, 255], (16, 64)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes.onnx"
        onnx.save(model, path)
        (got,) = engine(precision.ANSWERS)(path, 1)({"x": draw})
    assert np.array_equal(got, draw.astype(np.int64) @ w.astype(np.int64))


def test_errors_are_counted_from_the_answers_and_not_from_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "Worker", Within)
    monkeypatch.setattr(compare, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(precision, "Worker", Within)
    monkeypatch.setattr(precision, "ANSWERS", f"{__name__}:doubled")
    program(monkeypatch, {"einnet_f32": "doubled", "0.1": "same"})
    place, options = Place(1, (0,)), parsed([*SHORT, "--errors", "0.1"])
    (found,) = rows_of("m", identity(), lambda seed: {"x": np.array([-3, -2, -1, -4], np.float32)}, place, options, {})
    assert found["error"] == {"onnxruntime": pytest.approx(1 / 9), "einnet": pytest.approx(1 / 9), "einnet_f32": 0}


def test_a_whole_model_of_bytes_is_timed_by_itself(tmp_path: Path) -> None:
    ours = {name: Engine(name, "einnet", tmp_path / name) for name in ("a", "b")}
    reports = {"a": {"runs": "whole model"}, "b": {"runs": "derived"}}
    assert precision.timed_as(ours, reports, shared=True) == {"a": "onnxruntime", "b": "b"}
    assert precision.timed_as(ours, reports, shared=False) == {"a": "a", "b": "b"}


def test_what_onnx_runtime_runs_as_a_whole_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not compared, and nothing is wrong with it; a program that was compared and is wrong is not stored."""
    asked: list[dict[str, object]] = []
    saved: list[Path] = []

    def optimize(model: Path, **arguments: object) -> SimpleNamespace:
        asked.append(arguments)
        report = {"subprograms": [], "runs": "whole model"}
        return SimpleNamespace(record=SimpleNamespace(verification=verification), report=report, save=saved.append)

    monkeypatch.setattr(einnet, "optimize", optimize)
    search = asdict(Search(3, "reassociation", 1, 9.0, 0.1))
    verification = Verification(max_abs=0.0, max_rel=0.0, tolerance=0.1, outputs={}, passed=None, not_compared="ONNX Runtime runs the model itself")
    assert making.made(tmp_path / "m.onnx", "0.1", search, 2)["runs"] == "whole model" and saved == [tmp_path / "0.1.einnet"]
    assert asked == [{"threads": 2, "time_budget": 3, "allow": "reassociation", "seed": 1, "max_error": 0.1}]
    verification = Verification(max_abs=1.0, max_rel=1.0, tolerance=0.1, outputs={}, passed=False)
    with pytest.raises(EngineError, match="does not pass"):
        making.made(tmp_path / "m.onnx", "0.1", search, 2)
    assert len(saved) == 1


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    models, ran, engines = {n: two_layers() for n in "abc"}, [], {"openvino": "1"}
    apart = {"0.01": 4e-3, "0.1": 4e-3}

    def measured(name: str, model: object, draw: object, place: object, options: object, others: object) -> list[dict[str, object]]:
        ran.append(name)
        return [row(name, float(e), {}, apart, None, None, {}) for e in apart]

    monkeypatch.setattr(precision, "rows_of", measured)
    monkeypatch.setattr(precision, "chosen", lambda options: [Case(n, lambda n=n: (models[n], dict)) for n in models])
    monkeypatch.setattr(precision, "installed", lambda: dict(engines))
    out = tmp_path / "results" / "precision.json"
    arguments = ["--errors", "0.01", "0.1", "-o", str(out)]
    assert main([*arguments, "--seconds-left", "9"]) == 1
    assert "3 models are left" in capsys.readouterr().err and not ran
    assert main(arguments) == 0 and ran == ["a", "b", "c"]
    assert main([*arguments, "--seconds-left", "9"]) == 0 and len(ran) == 3, "nothing is measured twice"
    assert main(["--errors", "0.1", "-o", str(out)]) == 0 and len(ran) == 3
    models["b"].doc_string = "another"
    assert main(arguments) == 0 and ran[3:] == ["b"], "a changed model is measured anew"
    engines["openvino"] = "2"
    apart["0.01"] = 2e-2
    assert main([*arguments, "--seconds-left", "9"]) == 1 and ran[4:] == [], "other engines are another question, for which there is no time"
    assert {r["within"] for r in json.loads(out.read_text())["models"]} == {True}
    assert main(arguments) == 1 and ran[4:] == ["a", "b", "c"], "an error beyond its budget is a fault"
    assert main(arguments) == 1 and len(ran) == 7, "it stays one that is told, without being measured again"
    assert main([*arguments, "--again"]) == 1 and len(ran) == 10
    data = json.loads(out.read_text())
    assert [(r["name"], r["max_error"], r["within"]) for r in data["models"]] == [(n, e, e > 0.02) for n in "abc" for e in (0.01, 0.1)]
    assert data["machine"]["engines"] == {"openvino": "2"} and "| a | 0.01 |" in out.with_suffix(".md").read_text()


def test_what_runs(tmp_path: Path) -> None:
    assert [c.name for c in chosen(parsed([]))] == list(MODELS)
    assert [c.name for c in chosen(parsed(["--int8"]))] == list(BYTES)
    onnx.save(model := two_layers(), tmp_path / "edsr.onnx")
    np.savez(tmp_path / "edsr.npz", **random_inputs(model, 0))
    (*_, zoo) = chosen(parsed(["--zoo", str(tmp_path)]))
    assert zoo.name == "zoo/edsr"
    made, draw = zoo.made()
    assert made == model and {n: x.shape for n, x in draw(1).items()} == {n: x.shape for n, x in random_inputs(model, 0).items()}
    (named,) = chosen(parsed([str(tmp_path / "edsr.onnx")]))
    assert named.name == "edsr" and named.made()[0] == model
    assert {n: x.shape for n, x in named.made()[1](1).items()} == {n: x.shape for n, x in random_inputs(model, 0).items()}
    onnx.save(model, tmp_path / "other.onnx")
    np.savez(tmp_path / "alone.npz", **random_inputs(model, 0))
    onnx.save(model, tmp_path / "alone.onnx")
    names = [c.name for c in chosen(parsed(["--zoo", str(tmp_path)]))]
    assert names == [*MODELS, "zoo/edsr", "zoo/alone"], "a model without inputs is none of the zoo"


@pytest.mark.parametrize("name", ["unet2d", "nowhere/small.onnx"])
def test_a_name_of_nothing_is_told_before_anything_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "rows_of", lambda *_: pytest.fail("measured"))
    with pytest.raises(SystemExit, match=f"{name}: there is no such file"):
        precision.main(["small", name])


def test_draws_are_of_the_kind_of_the_inputs() -> None:
    inputs = {"x": np.random.default_rng(0).normal(5, 2, 4000).astype(np.float32), "ids": np.arange(9), "mask": np.ones(9, bool)}
    first, again, other = like(inputs, 1), like(inputs, 1), like(inputs, 2)
    assert all(np.array_equal(first[n], again[n]) for n in inputs) and not np.array_equal(first["x"], other["x"])
    assert abs(first["x"].mean() - 5) < 0.2 and abs(first["x"].std() - 2) < 0.2 and first["x"].dtype == np.float32
    assert sorted(first["ids"]) == list(range(9)) and first["mask"].all()


def test_models_of_bytes() -> None:
    model = build("mlp", size=32, classes=8)
    assert keeps_bytes(prepare(load(in_bytes(model, partial(random_inputs, model), 0)), in_bytes=True))


def test_models_of_bytes_of_the_zoo(tmp_path: Path) -> None:
    onnx.save(model := build("mlp", size=32, classes=8), tmp_path / "bert.onnx")
    np.savez(tmp_path / "bert.npz", **random_inputs(model, 0))
    onnx.save(model, tmp_path / "edsr.onnx")
    (*usual, zoo) = chosen(parsed(["--int8", "--zoo", str(tmp_path)]))
    assert [c.name for c in usual] == list(BYTES) and zoo.name == "zoo/bert"
    made, draw = zoo.made()
    assert keeps_bytes(prepare(load(made), in_bytes=True)) and draw(0).keys() == random_inputs(model, 0).keys()


def test_other_engines_answer_as_many_draws_as_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours answer all of them; a process is begun while the one before it answers, and once."""
    asked: dict[str, int] = {}
    begun: list[str] = []

    class Counted(Within):
        def __init__(self, kind: str, path: Path, threads: int, cpus: object, limit: int = 0) -> None:
            super().__init__(f"{__name__}:same", path, threads, cpus, limit)
            plain, self.kind = self.run, kind
            begun.append(kind)

            def run(inputs: Arrays) -> list[np.ndarray]:
                asked[kind] = asked.get(kind, 0) + 1
                return plain(inputs)

            self.run = run

    monkeypatch.setattr(compare, "Worker", Counted)
    monkeypatch.setattr(compare, "SETTLE_SECONDS", 0.0)
    x = {"x": np.ones(4, np.float32)}
    fresh = [({"x": np.full(4, n, np.float32)}, [np.full(4, 2 * n, np.float32)]) for n in range(1, 9)]
    engines = [Engine("onnxruntime", "onnxruntime", Path("m")), Engine("ours", compare.PROGRAM, Path("p"))]
    found = compare.compare(engines, x, [x["x"]], Place(1, (0,)), compare.Effort(1, 0.0, 0.0, 1, 0.0), 1.0, fresh)
    assert {name: found[name].get("draws") for name in found} == {"onnxruntime": 1, "ours": 8, compare.AGAIN: None}
    assert found["ours"]["worst"] == found["onnxruntime"]["worst"] == 0.5
    assert asked == {"onnxruntime": 1 + 1 + 1, compare.PROGRAM: 1 + 8} and begun == ["onnxruntime", compare.PROGRAM, "onnxruntime"]


def test_the_figures_of_a_row() -> None:
    results = {n: {"median_ms": t} for n, t in (("onnxruntime", 4.0), ("openvino_default", 3.0), ("einnet_f32", 2.5), ("0.01", 2.0))}
    products = [{"runs": True, "bound": 0.02}, {"runs": True, "bound": None}, {"runs": False, "bound": 0.5}]
    apart = {"einnet_f32": 1e-6, "0.01": 4e-3, "openvino_default": None}
    found = row("m", 0.01, results, apart, {"precision": {"products": products}, "runs": "derived"}, 0.02, {"0.001": "no", "torch_bf16": "no torch"})
    assert found["ms"] == {"onnxruntime": 4.0, "openvino_default": 3.0, "einnet_f32": 2.5, "einnet": 2.0}
    assert found["error"] == {"einnet_f32": 1e-6, "einnet": 4e-3}
    assert (found["bound"], found["rounded"], found["products"], found["missing"]) == (0.02, 2, 3, {"torch_bf16": "no torch"})
    assert against(found) == 1.5
    assert cells(found)[:2] == ["m", "0.01"]
    assert cells(found)[-5:] == ["1.50x", "2 of 3", "0.02", "2.0%", "yes"]
    slow = {**found, "ms": {"openvino_default": 1.0, "einnet": 2.0}, "name": "n", "error": {"einnet": 4e-3, "openvino_default": 3e-3}}
    text = markdown({"machine": {"cpu": "a processor", "arithmetics": ["avx512_bf16"]}, "threads": 2, "models": [found, slow]})
    assert "Error 0.01: 0.87x of OpenVINO's default in the geometric mean of 2 models, least 0.50x; our error is no larger in 1." in text
    assert "Instructions for other arithmetics: avx512_bf16." in text
    assert "- m, torch_bf16: no torch" in text
    assert against({**found, "ms": {"einnet": 2.0}}) is None
    assert against(found, "onnxruntime") == 2.0 and "2.00x of ONNX Runtime, 1 models, least 2.00x." in text
    assert (parsed([]).time_budget, parsed(["--int8"]).time_budget, parsed(["--time-budget", "3"]).time_budget) == (30, 60, 3)


def test_a_program_that_is_missing_is_told() -> None:
    found = row("m", 0.01, {}, {}, None, None, {"0.01": "einnet optimize ended with status 2"})
    assert (found["ms"], found["runs"], found["missing"]) == ({}, None, {"einnet": "einnet optimize ended with status 2"})
    assert (cells(found)[2:9], cells(found)[-1], found["within"]) == (["–"] * 7, "NO", False)
