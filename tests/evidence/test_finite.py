"""What is true for finite numbers only is told, and excluded where that is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import einnet
from einnet.cli import main
from einnet.errors import UsageError
from einnet.evidence.comparison.finite import LATE, Until, _tried, assumptions, reaches_further, settle
from einnet.expr.notation.text import parse
from einnet.instantiate.epilogue_kernels import keeping_nan, nan_lost
from einnet.runtime.cpu.program import Executable
from einnet.runtime.ort import Session
from einnet.search.work import flops
from tests.compile.test_onnx_part import outcome_of
from tests.models import two_layers

CONV = "A : f32[6,4]\nK : weight f32[3,4]\n"


@pytest.mark.parametrize(
    ("before", "after", "further"),
    [
        ("L[h<4] Σ[c<4] A[h,c]*K[0,c]", "L[h<4] {L[t<6] Σ[c<4] A[t,c]*K[0,c]}[h]", False),
        ("L[h<4] Σ[c<4] A[h,c]*K[0,c]", "L[h<4] Σ[r<6] select(r-h==0, {L[t<6] Σ[c<4] A[t,c]*K[0,c]}[r], 0)", False),
        ("L[h<4] A[h,0]*2", "L[h<4] A[h,0]*3 - A[h,0]", True),
        ("L[h<4] A[h,0]", "L[h<4] A[h,0] + A[h+1,0] - A[h+1,0]", True),
        ("L[h<4] A[h,0]", "L[h<4] A[h,0] + 0*A[5,3]", True),
        ("L[h<4,f<3] Σ[c<4] A[h,c]*K[f,c]", "L[h<4,f<3] Σ[c<4,t<6] A[t,c]*{L[t<6,h<4,f<3,c<4] select(t-h==0, K[f,c], 0)}[t,h,f,c]", True),
        ("L[h<4] relu(A[h,0])", "L[h<4] max(A[h,0],0)", False),
    ],
)
def test_where_nan_and_infinities_come_out(before: str, after: str, further: bool) -> None:
    assert bool(reaches_further(parse(CONV + before), parse(CONV + after))) == further


def test_an_expression_of_much_work_is_not_tried() -> None:
    large = parse("A : f32[2000,2000]\nB : f32[2000,2000]\nL[m<2000,n<2000] Σ[k<2000] A[m,k]*B[k,n]")
    assert reaches_further(large, large, 1e9) == "too much work to try with NaN"


def test_a_recurrence_counts_as_what_evaluating_it_takes() -> None:
    """As generated code it is a walk; as it is written, and evaluated, a sum of all that was before for each element."""
    walk = parse("A : f32[20000]\nL[t<20000] Σ[s<20000] select(t-s>=0, A[s], 0)")
    assert flops(walk) < 1e6
    assert reaches_further(walk, walk, 2e8) == "too much work to try with NaN"


def test_a_trial_ends_when_its_time_is_over_and_that_is_not_remembered() -> None:
    before, after = (parse(f"A : f32[7,11]\nL[h<7] Σ[c<11] {body}") for body in ("A[h,c]*3", "A[h,c]+2*A[h,c]"))
    assert reaches_further(before, after, until=Until(0.0)) == LATE
    assert reaches_further(before, after) == ""
    assert reaches_further(before, after, until=Until(0.0)) == "", "what was found in time is found for all who ask"


def test_what_could_not_be_tried_in_time_is_not_settled_on() -> None:
    outcome = outcome_of(layers(), Random(3), 0.0)
    _tried.cache_clear()
    for r in outcome.results:
        assert settle(r.choice, Until(0.0)).best is r.choice.original


def layers() -> onnx.ModelProto:
    """A product with a relu, and one with a clip of a product."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((16, 32)).astype(np.float32), "v": rng.standard_normal((32, 8)).astype(np.float32)}
    weights |= {"lo": np.array(-0.5, np.float32), "hi": np.array(0.5, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]), helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Clip", ["c", "lo", "hi"], ["y"]),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (8, 16)), ("b", (8, 32)), ("y", (8, 8)))]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], [numpy_helper.from_array(a, n) for n, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def given(row: int, value: float) -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    x[row, 3] = value
    return {"x": x}


def test_vendor_kernels_keep_nan_where_that_is_asked_for(tmp_path: Path) -> None:
    model = layers()
    result = einnet.optimize(model, strict_nan=True, derive=False, time_budget=2, threads=1)
    assert result.report["assumes_finite"] == []
    assert result.report["settings"]["strict_nan"] is True
    stored = einnet.load(result.save(tmp_path / "p.einnet"))
    session = Session(model.SerializeToString(), 1)
    for value in (np.nan, np.inf, -np.inf, 0.0):
        wanted = session(given(5, value))
        for run in (result, stored):
            for name, y in run(given(5, value)).items():
                np.testing.assert_allclose(y, wanted[name], rtol=1e-4, atol=1e-4)


def test_what_a_vendor_kernel_makes_of_nan_is_told() -> None:
    """The fused form is not what runs wherever ONNX Runtime is faster: the outcome is asked."""
    outcome = outcome_of(layers(), Random(0), 0.0)
    fused = [k for k in outcome.plan().kernels if nan_lost(k)]
    assert fused
    assert f"relu, clip and maxima inside of {len(fused)} vendor kernels make a number of NaN" in assumptions(outcome)
    outcome = replace(outcome, strict_nan=True)
    plan, owners = outcome.assemble()
    assert len(plan.kernels) == len(owners)
    assert not any(map(nan_lost, plan.kernels))
    assert not [line for line in assumptions(outcome) if "vendor" in line]
    wanted = Session(layers().SerializeToString(), 1)(given(2, np.nan))
    got = Executable(plan, 1)(given(2, np.nan))
    for name, y in wanted.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-4, atol=1e-4)
    for kernel in fused:
        first, *rest = keeping_nan(kernel)
        assert not nan_lost(first) and rest


def test_a_candidate_that_is_for_finite_numbers_is_not_settled_on() -> None:
    outcome = outcome_of(layers(), Random(0), 0.0)
    (choice, *_) = [r.choice for r in outcome.results]
    settled = settle(choice)
    assert settled.best is choice.original or not reaches_further(choice.expression, settled.best.form.tree)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(two_layers(), tmp_path / "m.onnx")
    arguments = ["optimize", str(tmp_path / "m.onnx"), "--time-budget", "1", "--threads", "1", "--no-derive"]
    assert main([*arguments, "--strict-nan"]) == 0
    assert "assumes finite inputs" not in capsys.readouterr().out
    with pytest.raises(UsageError, match="range of sizes"):
        einnet.optimize(two_layers(), dynamic="batch=1..2", strict_nan=True)
