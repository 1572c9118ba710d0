"""Errors by output: a limit of its own decides what rounds, what passes, and what is said of each output."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from einnet.cli import main
from einnet.compile.targets.cpu.certified import certified
from einnet.compile.targets.cpu.rounded_products import SPENT, Rounding, likely, with_room
from einnet.errors import UsageError
from einnet.evidence.audit import audit
from einnet.evidence.comparison.verify import compare_outputs
from einnet.instantiate.kernels import Buffer, Matmul, Plan, dense_view
from einnet.instantiate.kernels.arithmetics import F32
from einnet.records import changed
from einnet.runtime.cpu.program import Executable
from einnet.search.settings import Limits, Settings
from tests.compile.test_rounded_products import BF16, BOTH, Costs, Reference, arithmetics, derived_wins, needs_bf16, sure  # noqa: F401
from tests.models import two_outputs
from tests.runtime.plans import finish, rng_constants


def both_layers(first=F32, second=F32) -> Plan:
    """h = x w1 and y = h w2: what the first product errs is in both outputs, what the second one does in one."""
    constants = rng_constants({"w1": 32 * 48, "w2": 48 * 16})
    kernels = (
        Matmul(dense_view("x", (4, 32)), dense_view("w1", (32, 48)), dense_view("h", (4, 48)), (), first),
        Matmul(dense_view("h", (4, 48)), dense_view("w2", (48, 16)), dense_view("y", (4, 16)), (), second),
    )
    buffers = [Buffer("x", 4 * 32, "f32", "input"), Buffer("h", 4 * 48, "f32", "output"), Buffer("y", 4 * 16, "f32", "output")]
    outputs = {"h": dense_view("h", (4, 48)), "y": dense_view("y", (4, 16))}
    return finish(buffers, kernels, constants, {"x": dense_view("x", (4, 32))}, outputs)


def two_products() -> onnx.ModelProto:
    """The same as a model, with more rows than a call costs."""
    rng = np.random.default_rng(2)
    weights = {"w1": rng.standard_normal((32, 48)).astype(np.float32), "w2": rng.standard_normal((48, 16)).astype(np.float32)}
    nodes = [onnx.helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"), onnx.helper.make_node("MatMul", ["h", "w2"], ["y"], name="second")]
    given = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (4, 32))]
    results = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (4, n)) for name, n in (("h", 48), ("y", 16))]
    graph = onnx.helper.make_graph(nodes, "two_products", given, results, [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


class Limited(Reference):
    """What outputs have limits of their own for is verified by them."""

    def __init__(self, executable: Executable, own: dict[str, float]) -> None:
        super().__init__(executable)
        self.own = own

    def verify(self, executable: Executable, tolerance: float):
        return compare_outputs(executable(self.inputs), self.expected, tolerance, own=self.own)


@pytest.fixture(scope="module")
def program() -> Executable:
    return Executable(both_layers(), 1)


def rounded(program: Executable, error: float, own: dict[str, float], certify: bool = False) -> tuple[Executable, Rounding]:
    reference = Limited(program, own)
    settings = Settings(max_error=error, output_errors=own, certified=certify, threads=1)
    made = Rounding(settings, reference, Costs(BOTH))  # type: ignore[arg-type]
    found, verification = made.of(program, reference.verify(program, 1.0), inf)
    assert verification.passed
    return found, made


@needs_bf16
@pytest.mark.parametrize("certify", [False, True])
@pytest.mark.parametrize(
    ("error", "own", "runs"),
    [(0.3, {}, ["bf16", "bf16"]), (0.3, {"h": 1e-5}, ["f32", "bf16"]), (1e-5, {"y": 0.3}, ["f32", "bf16"]), (1e-5, {"h": 0.3}, ["f32", "f32"]),
     (0.3, {"y": 1e-5}, ["f32", "f32"]), (1e-5, {"h": 0.3, "y": 0.3}, ["bf16", "bf16"])],
)  # fmt: skip
def test_each_output_has_its_own_budget(program: Executable, error: float, own: dict[str, float], runs: list[str], certify: bool) -> None:
    found, made = rounded(program, error, own, certify)
    assert arithmetics(found) == runs
    told = made.told[found]
    assert told.max_error == error
    assert told.error <= error, "errors count in terms of the limit of outputs that have none of their own"


@needs_bf16
def test_an_output_with_the_wider_limit_counts_less(program: Executable) -> None:
    """The error that is told is that of the output that comes nearest to its limit, as a part of that, times the others' limit."""
    whole = max(p.error for p in rounded(program, 0.3, {})[1].told.values())
    wide = max(p.error for p in rounded(program, 0.03, {"h": 0.3, "y": 0.3})[1].told.values())
    assert wide == pytest.approx(whole / 10)
    x = {"x": np.random.default_rng(5).standard_normal((4, 32)).astype(np.float32)}
    plan = both_layers(BF16)
    bound = certified(plan, x, inf)
    assert certified(plan, x, inf, Limits(0.03, {"h": 0.3, "y": 0.3})) == pytest.approx(bound / 10)
    assert certified(plan, x, inf, Limits(0.03, {"h": 0.003})) > bound


@needs_bf16
def test_what_float32_errs_in_one_output_leaves_room_in_the_other(program: Executable) -> None:
    """h is off by a twentieth of its limit, which is more than y may err in all."""
    own = {"h": 0.5}
    reference = Limited(program, own)
    reference.expected = {**reference.expected, "h": reference.expected["h"] * np.float32(1 + 0.025)}
    made = Rounding(Settings(max_error=0.02, output_errors=own, threads=1), reference, Costs(BOTH))  # type: ignore[arg-type]
    found, verification = made.of(program, reference.verify(program, 0.02), inf)
    assert verification.passed and arithmetics(found) == ["bf16", "bf16"]
    assert made.told[found].float32_error == pytest.approx(0.02 / 20, rel=0.1)


def test_what_passes_and_what_is_told() -> None:
    y, z = np.ones(3, np.float32), np.full(3, 2.0, np.float32)
    wanted = {"y": y, "z": z}

    def compared(error: float, own: dict[str, float], tolerance: float = 1e-2):
        return compare_outputs({"y": y + np.float32(error), "z": z}, wanted, tolerance, own=own)

    assert compared(5e-3, {}).passed and compared(5e-3, {}).outputs["y"].allowed is None
    tight = compared(5e-3, {"y": 1e-3})
    assert not tight.passed and tight.tolerance == 1e-3 and tight.max_rel == pytest.approx(5e-3, rel=1e-3)
    assert {name: e.allowed for name, e in tight.outputs.items()} == {"y": 1e-3, "z": 1e-2}
    wide = compared(5e-2, {"y": 1e-1})
    assert wide.passed and (wide.tolerance, wide.max_rel) == (1e-1, pytest.approx(5e-2, rel=1e-3))
    assert not compared(5e-2, {"z": 1e-1}).passed
    both = compare_outputs({"y": y + np.float32(5e-4), "z": z + np.float32(6e-3)}, wanted, 1e-2, own={"y": 1e-3})
    assert both.tolerance == 1e-3 and both.max_rel == pytest.approx(5e-4, rel=1e-3), "y is nearest to its limit, z errs most"


def test_float32_leaves_room_in_each_output() -> None:
    y = np.ones(3, np.float32)
    limits = Limits(1e-2, {"y": 1e-4})

    def passed(name: str, error: float, tolerance: float = 1e-4) -> bool | None:
        got = {"y": y, "z": y} | {name: y + np.float32(error)}
        return with_room(compare_outputs(got, {"y": y, "z": y}, 1e-2, own={"y": tolerance}), limits).passed

    assert passed("y", 4e-5) and not passed("y", 6e-5)
    assert passed("z", 4e-3) and not passed("z", 6e-3)
    assert passed("y", 6e-5, tolerance=2.0**-7), "the model rounds"


def test_limits_that_nothing_can_keep_are_refused() -> None:
    for wrong in (0.0, -1.0, 1.0, float("nan")):
        with pytest.raises(UsageError, match="max_error of y must be between 0 and 1"):
            Settings(max_error=0.1, output_errors={"y": wrong})
    with pytest.raises(UsageError, match="they go with max_error"):
        Settings(output_errors={"y": 0.1})
    model = two_outputs()
    name = model.graph.output[0].name
    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        einnet.optimize(model, max_error=0.1, output_errors={name + "s": 0.1}, time_budget=2, threads=1)
    with pytest.raises(UsageError, match="max_error names an output 'QQ'; there are " + ", ".join(o.name for o in model.graph.output)):
        einnet.optimize(model, max_error=0.1, output_errors={"QQ": 0.1}, time_budget=2, threads=1)


def test_the_strictest_limit_decides_the_class_of_steps_and_the_widest_what_is_searched() -> None:
    assert Settings(max_error=1e-2, output_errors={"y": 1e-6}).allow == Settings(max_error=1e-6, output_errors={"y": 1e-2}).allow == "reassociation"
    assert Settings(max_error=1e-2, output_errors={"y": 1e-3}).allow == "precision"
    assert likely(Settings(max_error=1e-5, output_errors={"y": 1e-2})) == likely(Settings(max_error=1e-2))
    limits = Limits(1e-2, {"y": 1e-3})
    assert (limits.of("y"), limits.of("z"), limits.least, limits.most) == (1e-3, 1e-2, 1e-3, 1e-2)
    assert (limits.counted("y", 1e-3), limits.counted("z", 5e-3)) == (1e-2, 5e-3)
    assert (Limits(1e-2).least, Limits(1e-2).most) == (1e-2, 1e-2)


@needs_bf16
def test_a_model_with_a_limit_for_one_output(tmp_path: Path, derived_wins: None, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    """By the command line: what rounds, the report, what is printed, and what verifies the stored program."""
    path, out, report = tmp_path / "two.onnx", tmp_path / "p.einnet", tmp_path / "r.json"
    onnx.save(two_products(), path)
    asked = ["optimize", str(path), "--no-derive", "--threads", "1", "--time-budget", "20", "-o", str(out), "--json", str(report)]
    assert main([*asked, "--max-error", "0.1", "--max-error", "h=1e-5"]) == 0
    printed = capsys.readouterr().out
    told = json.loads(report.read_text())
    assert told["settings"]["output_errors"] == {"h": 1e-5}
    assert [p["runs"] for p in told["precision"]["products"]] == [False, True]
    assert told["verification"]["outputs"]["h"]["allowed"] == 1e-5 and told["verification"]["outputs"]["y"]["allowed"] == 0.1
    assert "  h: error " in printed and "of max|y|, allowed 1e-05" in printed
    assert told["precision"]["error"] <= SPENT * 0.1
    verdict = audit(path, einnet.load(out), seed=3)
    assert verdict["passed"], verdict
    assert verdict["verification"]["outputs"]["h"]["allowed"] == 1e-5
    assert main([*asked[:-4], "-o", str(tmp_path / "out.onnx"), "--json", str(report), "--max-error", "0.1", "--max-error", "h=1e-4"]) == 0
    beside = json.loads(report.read_text())["onnx_out"]["verification"]
    assert beside["passed"] and {name: e["allowed"] for name, e in beside["outputs"].items()} == {"h": 1e-4, "y": 0.1}


@needs_bf16
def test_a_stored_program_that_errs_more_in_an_output_than_it_may_is_found_out(tmp_path: Path, derived_wins: None) -> None:  # noqa: F811
    found = einnet.optimize(two_products(), max_error=0.1, derive=False, threads=1, time_budget=20)
    assert arithmetics(found.executable) == ["bf16", "bf16"]
    stored = einnet.load(found.save(tmp_path / "p.einnet"))
    stored.__dict__["record"] = changed(stored.record, settings=changed(stored.record.settings, output_errors={"h": 1e-5}))
    verdict = audit(two_products(), stored, seed=3)
    assert not verdict["passed"]


def test_the_command_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.onnx"
    onnx.save(two_outputs(), path)
    for given, message in (
        (["1e-2", "--max-error", "2e-2"], "--max-error is given twice"),
        (["h=1e-2", "--max-error", "h=2e-2"], "--max-error is given twice for h"),
        (["h=1e-2"], "they go with max_error"),
    ):
        assert main(["optimize", str(path), "--max-error", *given]) == 2
        assert message in capsys.readouterr().err
    assert main(["optimize", str(path), "--max-error", "h=much"]) == 2
    assert "'h=much' is no error: expected 1e-2, or output=1e-2" in capsys.readouterr().err
