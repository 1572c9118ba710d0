"""Programs that are verified, timed and rounded on inputs that a user gives: one set or several, all inputs of a model or some."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import einnet
from einnet.cli import main
from einnet.compile.run import Run
from einnet.compile.targets.cpu.rounded_products import ALONE_SHARE, FLOAT32_SHARE, further_inputs, inputs_like, with_room
from einnet.errors import UsageError
from einnet.evidence.audit import audit
from einnet.evidence.comparison import verify
from einnet.evidence.comparison.draws import MOVED, Draws, as_draws, random_values, taken
from einnet.evidence.comparison.verify import MORE_DRAWS, Trial, both, compare_outputs
from einnet.evidence.report.schema import Verification
from einnet.graph.onnx.dynamic import shapes_of
from einnet.graph.onnx.importer import load
from einnet.search.settings import Limits, Settings

ROWS, WIDTH, TABLE = 3, 8, 16
RNG = np.random.default_rng(0)


def looked_up(batch: int | str = "batch", first: str = "Identity") -> onnx.ModelProto:
    """A function of x times weights, and rows of a table at places."""
    nodes = [
        helper.make_node(first, ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["h"]),
        helper.make_node("Gather", ["table", "at"], ["e"], axis=0),
        helper.make_node("Add", ["h", "e"], ["y"]),
    ]
    weights = {"w": RNG.standard_normal((WIDTH, 4)), "table": RNG.standard_normal((TABLE, 4))}
    inputs = [("x", TensorProto.FLOAT, [batch, WIDTH]), ("at", TensorProto.INT64, [batch])]
    graph = helper.make_graph(
        nodes, "looked_up", [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def several(count: int | None = 5) -> dict[str, np.ndarray[Any, Any]]:
    """So many sets of inputs, or one, that random ones would hardly be: positive numbers, and places all over the table."""
    lead = () if count is None else (count,)
    return {"x": RNG.random((*lead, ROWS, WIDTH)).astype(np.float32) + 1, "at": RNG.integers(2, TABLE, (*lead, ROWS))}


def trial_of(inputs: Mapping[str, np.ndarray[Any, Any]], model: onnx.ModelProto | None = None, **arguments: Any) -> Trial:
    model = model or looked_up()
    settings = Settings(threads=1, inputs=inputs, shapes={"x": (ROWS, WIDTH), "at": (ROWS,)}, **arguments)
    return Run(model, load(model, shapes=settings.shapes), settings, 0.0).trial


class Off:
    """A program that gives what ONNX Runtime does, and errs by a number where a draw is."""

    plan = type("Empty", (), {"kernels": (), "buffers": ()})()

    def __init__(self, trial: Trial, errors: Mapping[int, float]) -> None:
        self.wanted = [(trial.inputs, trial.expected), *trial.further]
        self.errors, self.seen = errors, 0

    def __call__(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        draw, self.seen = self.seen, self.seen + 1
        given, y = self.wanted[draw][0], self.wanted[draw][1]["y"]
        assert all(np.array_equal(inputs[name], x) for name, x in given.items())
        return {"y": y + np.float32(self.errors.get(draw, 0.0)) * np.abs(y).max()}

    def release(self) -> None:
        """Nothing is held."""


def off(trial: Trial, errors: Mapping[int, float]) -> Any:
    """It stands for a program."""
    return Off(trial, errors)


def test_the_first_draws_are_those_given_and_others_are_like_them() -> None:
    given = as_draws(several(2), [("x", (ROWS, WIDTH), "f32"), ("at", (ROWS,), "i64")], "m")
    given[1]["x"][0, 0] = 0.0
    draws = Draws(given[0], 0, given)
    assert all(np.array_equal(draws.of(n)[name], given[n][name]) for n in (0, 1) for name in ("x", "at"))
    for n in (2, 3, 4, 5, 9):
        base, found = given[n % 2], draws.of(n)
        assert np.array_equal(found["at"], base["at"]) and found["x"].dtype == np.float32
        assert np.array_equal(np.sign(found["x"]), np.sign(base["x"])) and not np.array_equal(found["x"], base["x"])
        assert np.max(np.abs(found["x"] - base["x"]) / np.maximum(base["x"], 1)) < 6 * MOVED
    every = [*inputs_like(draws)[:4], *further_inputs(draws)]
    assert len({d["x"].tobytes() for d in every}) == len(every), "no two of them round alike"


def test_inputs_that_were_not_given_are_random() -> None:
    trial = trial_of({"at": several()["at"]})
    assert trial.inputs["x"].min() < 0 and trial.inputs["at"].min() >= 2
    assert not np.array_equal(trial.draws.of(1)["x"], trial.inputs["x"]) and not np.array_equal(trial.draws.of(1)["at"], trial.inputs["at"])


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"z": np.zeros((3, 8))}, "the inputs of m are at, x; an array is given for 'z'"),
        ({"x": np.zeros((3, 9), np.float32)}, r"'x' is f32\[3,8\], or several of them in one array; the array has shape \[3, 9\]"),
        ({"x": np.zeros(8, np.float32)}, r"the array has shape \[8\]"),
        ({"x": np.zeros((1, 1, 3, 8), np.float32)}, r"the array has shape \[1, 1, 3, 8\]"),
        ({"at": np.zeros(3)}, "'at' has elements of type i64; those of the array are float64"),
        ({"x": np.zeros((0, 3, 8), np.float32)}, "x has 0"),
        ({"x": np.zeros((2, 3, 8)), "at": np.zeros((3, 3), np.int64)}, "x has 2, at has 3"),
        ({"x": np.zeros((2, 3, 8)), "at": np.zeros(3, np.int64)}, "x has 2, at has one without that dimension"),
    ],
)
def test_arrays_that_are_no_inputs_are_refused(arrays: dict[str, np.ndarray[Any, Any]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        as_draws(arrays, [("x", (3, 8), "f32"), ("at", (3,), "i64")], "m")


def test_arrays_take_the_types_of_the_inputs() -> None:
    (one,) = as_draws({"x": np.ones((3, 8)), "at": np.ones(3, np.int32)}, [("x", (3, 8), "f32"), ("at", (-1,), "i64")], "m")
    assert one["x"].dtype == np.float32 and one["at"].dtype == np.int64
    assert as_draws({}, [("x", (3, 8), "f32")], "m") == []


def test_arrays_tell_the_sizes_that_a_model_leaves_open() -> None:
    assert shapes_of(looked_up(), several()) == shapes_of(looked_up(), several(None)) == {"x": (ROWS, WIDTH), "at": (ROWS,)}
    assert shapes_of(looked_up(ROWS), several()) == {} and shapes_of(looked_up(), {"x": np.zeros(3)}) == {}
    model = looked_up()
    model.graph.input[1].type.tensor_type.ClearField("shape")
    assert shapes_of(model, several(None))["at"] == (ROWS,)
    model.graph.initializer.append(numpy_helper.from_array(np.arange(ROWS), "at"))
    assert "at" not in shapes_of(model, several(None)), "what has a default is a weight"


def test_a_program_is_compared_on_all_draws_of_a_budget() -> None:
    trial = trial_of(several(), max_error=0.1)
    assert len(trial.further) == MORE_DRAWS and np.array_equal(trial.further[1][0]["at"], trial.draws.given[2]["at"])
    found = trial.verify(off(trial, {0: 0.01, 2: 0.06}), 0.1)
    assert found.passed and found.compared_on == 1 + MORE_DRAWS and found.max_rel == pytest.approx(0.06, rel=1e-3)
    assert found.outputs["y"].max_rel == found.max_rel
    assert not trial.verify(off(trial, {3: 0.11}), 0.1).passed


def test_without_a_budget_one_draw_and_those_given_are_enough() -> None:
    assert [len(trial_of(several(n)).further) for n in (None, 1, 3, 9)] == [0, 0, 2, MORE_DRAWS]
    assert trial_of({}).further == [] and len(trial_of({}, max_error=1e-3).further) == MORE_DRAWS


def test_slow_models_have_fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MORE_SHARE", 0.0)
    trial = trial_of(several(), max_error=0.1)
    assert trial.further == [] and trial.verify(off(trial, {}), 0.1).compared_on == 1


def test_where_onnx_runtime_is_wrong_it_gives_no_further_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "evaluator_of_the_standard", lambda *_: (lambda inputs: {"y": np.zeros((ROWS, 4), np.float32)}, ("y",)))
    trial = trial_of(several(), max_error=0.1)
    assert trial.further == [] and not trial.expected["y"].any()


def test_draws_for_which_there_is_no_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "fits", lambda nbytes: False)
    assert trial_of(several(), max_error=0.1).further == []


def test_the_greatest_error_of_each_output_counts() -> None:
    wanted = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    one = compare_outputs({"a": wanted["a"] + np.float32(0.5), "b": wanted["b"]}, wanted, 1.0, own={"b": 0.1})
    other = compare_outputs({"a": wanted["a"], "b": wanted["b"] + np.float32(0.09)}, wanted, 1.0, own={"b": 0.1})
    for found in (both(one, other), both(other, one)):
        assert found.outputs["a"].max_rel == 0.5 and found.outputs["b"].max_rel == pytest.approx(0.09, rel=1e-5)
        assert found.max_rel == other.max_rel and found.tolerance == pytest.approx(0.1), "b is nearer to its limit"
        assert found.max_abs == 0.5 and found.passed and found.compared_on == 2
    wrong = compare_outputs({"a": wanted["a"] + np.float32(2), "b": wanted["b"]}, wanted, 1.0)
    assert not both(one, wrong).passed and not both(wrong, one).passed


def every(found: Verification) -> Verification:
    """The same on as many draws as there may be."""
    return reduce(both, [found] * (1 + MORE_DRAWS))


def test_several_draws_leave_more_of_a_budget_to_float32() -> None:
    wanted = {"y": np.ones(2, np.float32)}
    error = (FLOAT32_SHARE + ALONE_SHARE) / 2
    one = compare_outputs({"y": wanted["y"] + np.float32(error)}, wanted, 1.0)
    assert ALONE_SHARE < FLOAT32_SHARE < 1 and not with_room(one, Limits(1.0)).passed and with_room(every(one), Limits(1.0)).passed
    assert not with_room(both(one, one), Limits(1.0)).passed, "two draws are hardly more than one"
    far = compare_outputs({"y": wanted["y"] + np.float32((1 + FLOAT32_SHARE) / 2)}, wanted, 1.0)
    assert not with_room(every(far), Limits(1.0)).passed


def test_what_a_model_is_not_defined_for_is_in_no_draw() -> None:
    trial = trial_of({"at": several()["at"]}, looked_up(first="Log"), max_error=0.1)
    assert len(trial.further) == MORE_DRAWS and all(trial.draws.of(n)["x"].min() >= 0 for n in range(9))


def test_given_inputs_are_run_as_they_are() -> None:
    model = looked_up(first="Log")
    trial = trial_of({"x": -several()["x"], "at": several()["at"]}, model, max_error=0.1)
    assert trial.inputs["x"].max() < 0 and np.isnan(trial.own["y"]).all()

    def run(values: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        return {"y": np.where(values["x"] < 0, np.nan, 0 * values["x"]) + values["z"]}

    adapted, found = taken(run, {"x": -np.ones(3), "z": np.ones(3)}, {"z"})
    assert np.array_equal(found["y"], np.ones(3)) and np.array_equal(adapted({"x": -np.ones(3), "z": -np.ones(3)})["z"], -np.ones(3))
    with pytest.raises(UsageError):
        trial_of({"at": np.full((2, ROWS), TABLE)})  # beyond the table
    beyond = several(3)
    beyond["at"][2] = TABLE
    with pytest.raises(UsageError):
        trial_of(beyond)


def test_a_program_is_made_and_checked_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, path = several(), tmp_path / "m.onnx"
    onnx.save(looked_up(), path)
    result = einnet.optimize(path, inputs=arrays, max_error=1e-3, time_budget=10, threads=1)
    assert result.report["settings"]["inputs"] == ["at", "x"] and result.report["verification"]["compared_on"] >= 1
    got = result(**{name: x[3] for name, x in arrays.items()})
    assert got["y"].shape == (ROWS, 4)
    stored = einnet.load(result.save(tmp_path / "m.einnet"))
    verdict = audit(path, stored, inputs=arrays)
    assert verdict["passed"] and verdict["verification"]["draws"][-2:] == ["given 4", "given 5"]
    own = stored.tried

    def wrong(inputs: Mapping[str, np.ndarray[Any, Any]]) -> Any:
        outputs, on = own(inputs)
        return ({"y": 1.1 * outputs["y"]} if np.array_equal(inputs["at"], arrays["at"][3]) else outputs), on

    monkeypatch.setattr(stored, "tried", wrong)
    verdict = audit(path, stored, inputs=arrays)
    assert not verdict["passed"] and any("given 4" in problem for problem in verdict["verification"]["problems"])


def test_a_written_model_is_compared_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from einnet.compile.export import onnx_file

    seen: list[Mapping[str, np.ndarray[Any, Any]]] = []
    monkeypatch.setattr(onnx_file, "compared", lambda got, wanted, made: compare_outputs(got, wanted, 1e-4))
    found = onnx_file.on_inputs
    monkeypatch.setattr(onnx_file, "on_inputs", lambda *args: [seen.append(found(*args)[0]), found(*args)][1])
    arrays = several(None)
    einnet.optimize(looked_up(), inputs=arrays, time_budget=5, threads=1, whole="never").save(tmp_path / "out.onnx")
    assert seen and all(np.array_equal(seen[0][name], x) for name, x in arrays.items())


def test_a_model_that_is_kept_whole_is_run_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places of a table that random ones, 0 and 1, would not reach."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("NonZero", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
            [helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])],
        ),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=9,
    )  # fmt: skip
    from einnet.runtime.whole import Whole

    seen: list[np.ndarray[Any, Any]] = []
    run = Whole.__call__
    monkeypatch.setattr(Whole, "__call__", lambda self, inputs: [seen.append(inputs["x"]), run(self, inputs)][1])
    einnet.optimize(model, inputs={"x": np.full((4, 2), 7, np.float32)}, time_budget=5, threads=1)
    assert seen[0].shape == (4, 2) and seen[0].min() == 7


def test_inputs_do_not_go_with_a_range_of_sizes() -> None:
    with pytest.raises(UsageError, match="one size"):
        einnet.optimize(looked_up(), inputs=several(), dynamic="batch=1..4")


def test_the_command_takes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(looked_up(), tmp_path / "m.onnx")
    arrays = several()
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [word for name in arrays for word in ("--input", f"{name}={tmp_path / name}.npy")]
    out = str(tmp_path / "m.einnet")
    assert main(["optimize", str(tmp_path / "m.onnx"), *given, "--time-budget", "5", "--threads", "1", "-o", out, "--quiet"]) == 0
    assert main(["verify", str(tmp_path / "m.onnx"), out, *given]) == 0
    assert "given 5" in capsys.readouterr().out
    for wrong, told in (([*given, *given[:2]], "--input x is given twice"), (["--input", f"x={tmp_path / 'm.onnx'}"], "m.onnx: not a .npy file")):
        assert main(["optimize", str(tmp_path / "m.onnx"), *wrong]) == 2
        assert told in capsys.readouterr().err


def test_random_values_are_what_they_were() -> None:
    """A draw of a seed is the one of the next number below it."""
    kinds = [("x", (4,), "f32")]
    assert np.array_equal(Draws(random_values(kinds, 3), 3).of(2)["x"], random_values(kinds, 5)["x"])
