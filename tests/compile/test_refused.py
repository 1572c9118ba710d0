"""What a vendor library refuses ends no run: other kernels run, and a second run knows of it as the first did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import einnet
from einnet.compile.targets.cpu import contest as decide
from einnet.compile.targets.cpu import (
    finishing,  # noqa: F401  (it has its own name of what a test exchanges in `programs`, if it was imported before)
    programs,
)
from einnet.compile.targets.cpu.acceptance import InPlace
from einnet.errors import BackendError, CertificateError
from einnet.evidence import sound
from einnet.evidence.comparison.verify import Trial
from einnet.evidence.report.schema import Verification
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Conv, Kernel, Matmul, Post, View, dense_view
from einnet.records import changed
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu import dnnl, measure
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.timing import Comparison
from einnet.search.choosing.choose import choose
from einnet.search.outcome import Outcome, Result, is_constant
from einnet.search.recall import choice_from, choice_json
from einnet.search.space import Options, Space
from tests.filled import filled

Shapes = dict[str, tuple[int, ...]]
ARGUMENTS = {"max_depth": 1, "time_budget": 2, "threads": 1}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    """A database of its own, and no time spent on comparing programs."""

    def compared(_: Trial, programs: Sequence[str], __: float) -> dict[str, object]:
        rounds = Comparison(dict.fromkeys(("onnxruntime", *programs), (1.0,) * 5), (1.0,) * 5)
        return {**rounds.timings, "noise": rounds.noise, "rounds": rounds, "once": False}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(Trial, "compare", compared)
        patch.setattr(decide, "weighed", lambda *_: InPlace())
        yield


def model(nodes: Sequence[onnx.NodeProto], inputs: Shapes, outputs: Shapes, weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    def infos(shapes: Shapes) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    constants = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "small", infos(inputs), infos(outputs), constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def conv(name: str = "Conv", inputs: Sequence[str] = ("x", "w"), **attributes: object) -> onnx.NodeProto:
    return helper.make_node(name, list(inputs), ["y"], **attributes)


NOT_CONSTANT = {
    "an input": model([conv(pads=[1, 1, 1, 1])], {"x": (1, 8, 9, 9), "w": (16, 8, 3, 3)}, {"y": (1, 16, 9, 9)}),
    "modulated": model(
        [helper.make_node("Mul", ["W", "s"], ["w"]), conv(pads=[1, 1, 1, 1])],
        {"x": (1, 8, 9, 9), "s": (1, 8, 1, 1)}, {"y": (1, 16, 9, 9)}, {"W": values(16, 8, 3, 3)},
    ),
    "an image of its own": model([conv(inputs=("x", "x"), pads=[1, 1, 1, 1])], {"x": (2, 8, 5, 5)}, {"y": (2, 2, 3, 3)}),
    "transposed": model(
        [conv("ConvTranspose", pads=[1, 1, 1, 1], strides=[2, 2])], {"x": (1, 8, 5, 5), "w": (8, 6, 4, 4)}, {"y": (1, 6, 10, 10)}
    ),
    "in groups": model([conv(group=4)], {"x": (1, 8, 9, 9), "w": (8, 2, 3, 3)}, {"y": (1, 8, 7, 7)}),
    "quantized": model(
        [helper.make_node("QuantizeLinear", ["k", "scale", "zero"], ["q"]),
         helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"]), conv(pads=[1, 1, 1, 1])],
        {"x": (1, 8, 9, 9), "k": (16, 8, 3, 3)}, {"y": (1, 16, 9, 9)}, {"scale": np.float32(0.05), "zero": np.int8(0)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_CONSTANT)
def test_weights_of_a_convolution_that_are_not_constant(name: str) -> None:
    for derive in (False, True, True):  # the last run recalls what the one before has found
        result = einnet.optimize(NOT_CONSTANT[name], derive=derive, **ARGUMENTS)
        assert result.report["verification"]["passed"]


def test_whoever_knows_says_which_weights_are_constant() -> None:
    x, w, y = dense_view("t0", (1, 4, 5, 5)), dense_view("t1", (1, 4, 4, 3, 3)), dense_view("y", (1, 4, 5, 5))
    kernel = Conv(x, w, y, (1, 1), (1, 1), (1, 1), (1, 1))
    assert measure.constant_buffers(kernel, is_constant) == frozenset()
    assert measure.constant_buffers(kernel, lambda name: name == "t1") == {"t1"}


NO_MATRIX = Matmul(dense_view("a", (2, 3)), dense_view("b", (3, 4)), View("c", (2, 4), (3, 1)))
"""A product whose result's rows overlap: no library takes it."""


def test_what_is_refused_is_known_however_little_time_there_is(tmp_path: Path) -> None:
    cost = CpuCost(1, ProfileDatabase(tmp_path / "p.sqlite"))
    assert cost.measured([NO_MATRIX], until=0.0) == [inf]
    again = CpuCost(1, ProfileDatabase(tmp_path / "p.sqlite"), measure=False)
    assert again.estimates([NO_MATRIX]) == [inf]


def test_times_are_those_of_the_instructions_that_the_library_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = CpuCost(1, ProfileDatabase(tmp_path / "p.sqlite"))
    for name in dnnl.LIMITS:
        monkeypatch.delenv(name, raising=False)
    before = cost.describe(NO_MATRIX), cost.place()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "all")
    assert (cost.describe(NO_MATRIX), cost.place()) == before
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    assert cost.describe(NO_MATRIX) != before[0]
    assert cost.place() != before[1]


MASKED = parse(
    "A : f32[6,20,8]\nB : f32[6,8,20]\nM : f32[6,1,20]\n"
    "L[b<6,m<20,n<20] {L[b<6,m<20,n<20] Σ[k<8] A[b,m,k]*B[b,k,n]}[b,m,n] + M[b,0,n]"
)


def low(kernels: Sequence[Kernel]) -> list[float]:
    """Predictions by which the vendor's kernels are the best there are."""
    return [1e-6 if isinstance(k, Matmul) else 1e-3 for k in kernels]


def test_a_refusal_is_remembered_with_the_choice() -> None:
    """No time to measure anything: the vendor's kernels are refused at once, and what remains is not measured. A second run must know it, too."""

    def measured(kernels: Sequence[Kernel], _: float) -> list[float | None]:
        return [inf if isinstance(k, Matmul) else None for k in kernels]

    forms = Space(Options(max_depth=0)).forms(MASKED)
    first = choose(MASKED, forms, low, measured, most=0)
    assert not any(isinstance(k, Matmul) for k in first.best.kernels)
    second = choice_from(json.loads(json.dumps(choice_json(first, first.candidates))), MASKED, low)
    assert second is not None
    assert second.best.kernels == first.best.kernels
    assert second.original.kernels == first.original.kernels


def test_a_kernel_that_is_refused_rules_out_all_that_hold_it() -> None:
    """One of two originals that share a refused kernel was never tried: it is as hopeless."""

    def measured(kernels: Sequence[Kernel], _: float) -> list[float | None]:
        return [inf if isinstance(k, Matmul) and not k.post else None for k in kernels]

    forms = Space(Options(max_depth=0)).forms(MASKED)
    found = choose(MASKED, forms, low, measured, most=0)
    assert all(not isinstance(k, Matmul) or k.post for k in found.original.kernels)
    assert any(c.refused for c in found.candidates)


DENSE = model(
    [helper.make_node("MatMul", ["x", "A"], ["p"]), helper.make_node("Relu", ["p"], ["y"])], {"x": (4, 16)}, {"y": (4, 8)}, {"A": values(16, 8)}
)


def refusing(*_: object, **__: object) -> None:
    raise Refused("the library has none")


@pytest.mark.parametrize("missing", [None, "nothing is installed"])
def test_a_program_with_refused_kernels_runs_and_says_so(missing: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from einnet.runtime.cpu import dnnl_kernels, fallback
    from einnet.runtime.cpu.binding import asked
    from einnet.runtime.cpu.program import Executable
    from tests.runtime.plans import expected_two_layers, two_layers

    def prepare(kernel: Matmul, constants: object = (), reference: bool = False) -> object:
        return dnnl_kernels.prepare(kernel, constants, reference) if reference else refusing()

    monkeypatch.setattr(asked, "prepare", prepare)
    monkeypatch.setattr(fallback, "missing", lambda kernel: missing)
    plan = two_layers()
    with pytest.raises(Refused):
        Executable(plan, 1, strict=True)
    bound = Executable(plan, 1)
    assert len(bound.notes) == 2
    assert all(("reference code" if missing else "ONNX Runtime") in note for note in bound.notes)
    x = values(4, 32)
    np.testing.assert_allclose(bound.run(x)[0], expected_two_layers(plan, x), rtol=1e-4, atol=1e-4)


def test_the_reference_code_does_what_the_fast_code_is_refused_for() -> None:
    """Two operands of post-operations: the library's gemm reads past its operands. Its reference code is right, whatever comes before it."""
    from einnet.runtime.cpu.dnnl_kernels import prepare
    from einnet.runtime.cpu.measure import single
    from einnet.runtime.cpu.program import Executable
    from tests.runtime.reference import compute

    x, w, y = dense_view("x", (3, 5, 7)), dense_view("w", (3, 7, 6)), dense_view("y", (3, 5, 6))
    posts = (Post("add", dense_view("u", (1, 5, 6))), Post("mul", dense_view("v", (3, 1, 6))), Post("relu"))
    kernel = Matmul(x, w, y, posts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("einnet.runtime.cpu.fallback.missing", lambda _: "nothing is installed")
        patch.setattr("einnet.runtime.cpu.binding.asked.prepare", lambda k, c, reference=False: prepare(k, c, reference) if reference else refusing())
        program = Executable(single(kernel, frozenset()), 1)
    given = {name: values(view.shape[0]) for name, view in program.plan.inputs}
    np.testing.assert_allclose(program(given)["y"].reshape(3, 5, 6), compute(kernel, given | {"y": np.zeros(90, np.float32)}), rtol=1e-4, atol=1e-4)


def test_what_cannot_be_compiled_is_run_by_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise BackendError("no code for it")

    monkeypatch.setattr(programs, "built", none)
    result = einnet.optimize(DENSE, fresh=True, **ARGUMENTS)
    assert result.report["runs"] == "whole model"
    assert any("cannot be compiled" in note for note in result.report["notes"])
    assert result.report["verification"]["passed"]
    x = values(4, 16)
    np.testing.assert_allclose(result(x)["y"], np.maximum(x @ values(16, 8), 0), rtol=1e-4, atol=1e-5)


def test_a_program_that_is_wrong_gives_way_to_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Trial.verify

    def strict(self: Trial, executable: object, tolerance: float) -> Verification:
        found = honest(self, executable, tolerance)
        return found if len(executable.plan.kernels) == 1 and "whole" in str(executable.plan.kernels[0]) else changed(found, passed=False)

    monkeypatch.setattr(Trial, "verify", strict)
    result = einnet.optimize(DENSE, **ARGUMENTS)
    assert result.report["runs"] == "whole model"
    assert result.report["verification"]["passed"]
    assert any("agrees" in note for note in result.report["notes"])


def test_what_is_not_proven_runs_as_the_model_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the checker fails."""
    for error in (CertificateError("step 1 does not hold"), RecursionError("too deep"), KeyError("k")):

        def unproven(derivation: object, error: Exception = error) -> tuple[object, ...]:
            if derivation.steps:
                raise error
            return ()

        monkeypatch.setattr(sound, "by_forms", unproven)
        result = einnet.optimize(NOT_CONSTANT["in groups"], **ARGUMENTS)
        assert not any(r.candidate.form.steps for r in result.outcome.results)
        assert any("not proven" in note for note in result.report["notes"])
        assert result.report["verification"]["passed"]


def ten_parts() -> Outcome:
    """An outcome of ten subprograms, all of them changed."""
    return Outcome(Mock(), tuple(Result(Mock(key=f"p{n}"), {}, Mock()) for n in range(10)))


class Runs:
    """Programs that are the keys of what was changed, some of which compute something else."""

    def __init__(self, wrong: set[str]) -> None:
        self.wrong, self.count = wrong, 0

    def verify(self, outcome: Outcome, program: frozenset[str]) -> Verification:
        self.count += 1
        assert program in (frozenset(), frozenset(outcome.changed)), "what is verified is the program of the outcome"
        return filled(Verification, {"passed": not program & self.wrong})


def program(outcome: Outcome) -> frozenset[str]:
    return frozenset(outcome.changed)


@pytest.mark.parametrize("wrong", [{"p3"}, {"p0", "p9"}, {f"p{n}" for n in range(10)}])
def test_only_the_parts_at_fault_are_given_up(wrong: set[str]) -> None:
    runs, before = Runs(wrong), ten_parts()
    programs = {"optimized": program(before), "original": frozenset()}
    outcome, found, verified = sound.agreeing(before, programs, runs.verify, program, inf)
    assert outcome.kept == wrong and not before.kept
    assert found.get("optimized", frozenset()) == program(outcome)
    assert verified.keys() == found.keys()
    assert any("failed verification" in note for note in outcome.notes)
    assert runs.count < 24


def test_without_time_all_that_failed_together_is_given_up() -> None:
    before = ten_parts()
    outcome, found, _ = sound.agreeing(before, {"optimized": program(before), "original": frozenset()}, Runs({"p3"}).verify, program, 0.0)
    assert found.keys() == {"original"}
    assert len(outcome.kept) == 10
