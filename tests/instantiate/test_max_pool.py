"""Max-pooling as a vendor operator: what is matched, what the library computes of it, and what stands for it where that is not wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import einnet
from einnet.evidence.examine import proven, told_kernels, told_lifting
from einnet.evidence.running import OnProcessor
from einnet.expr.nodes import Scope, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.build import build
from einnet.instantiate.chunks import Digit, Undivided, cut_kernel
from einnet.instantiate.epilogue_kernels import keeping_nan, nan_lost
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Plan, View, dense_view
from einnet.instantiate.matching.types import Match
from einnet.instantiate.operators.max_pool import MAX_POOL, MaxPool
from einnet.instantiate.registry import TABLES, tables_for
from einnet.runtime.cpu.program import Executable
from einnet.runtime.serial import kernel_json, read_kernel
from einnet.search.choosing.choose import choose
from einnet.search.choosing.making import candidates
from einnet.search.space import Options, Space
from tests.drawn import plan_of_any

MATCHED = {
    "L[c<5,h<4,w<3] max[r<3,s<2] A[c,2*h+r-1,3*w+s]|-inf": ("A : f32[5,8,8]", (3, 2), (2, 3), (1, 1), (1, 0)),
    "L[h<4,w<3,c<5] max[r<3,s<2] A[2*h+r-1,2*w+2*s,c]|-inf": ("A : f32[8,7,5]", (3, 2), (2, 2), (1, 2), (1, 0)),
    "L[n<2,h<4,c<5] max[r<3] A[n,2*h+r-1,c]|-inf": ("A : f32[2,8,5]", (3,), (2,), (1,), (1,)),
    "L[n<2,c<3,d<2,h<2,w<2] max[q<2,r<2,s<2] A[n,c,2*d+q,2*h+r,2*w+s]": ("A : f32[2,3,4,4,4]", (2, 2, 2), (2, 2, 2), (1, 1, 1), (0, 0, 0)),
    "L[c<5,h<3] max[r<2] A[c,2*h+r]": ("A : f32[5,7]", (2,), (2,), (1,), (0,)),
    "L[1<=c<5,h<3] max[r<2] A[c,h+r+1]": ("A : f32[5,6]", (2,), (1,), (1,), (0,)),
}  # fmt: skip

REFUSED = {
    "L[c<5,h<4] Σ[r<3] A[c,2*h+r]": "no maximum",
    "L[c<5,h<4] max[r<3] 2*A[c,2*h+r]": "no maximum",
    "L[c<5,h<4] max[r<3] A[c,2*h+r-1]": "counts in the maximum",
    "L[h<4] max[r<3] A[h+r,r]": "two dimensions",
    "L[h<4] max[r<3] A[r,8-h-r]|-inf": "two dimensions",
    "L[c<5,h<4] max[r<3] A[c,8-h-r]": "no window",
    "L[c<5,h<2,g<2] max[r<3] A[c,2*h+g+r]": "no window",
    "L[c<5,h<9] max[r<2] A[c,h+r-3]|-inf": "reads nothing",
    "L[c<9] max[r<9] A[c,r]": "no window moves",
    "L[c<9,h<9] max[r<2] A[c,h+r-2]|-inf": "reads nothing",
    "L[c<9,h<10] max[r<2] A[c,h+r]|-inf": "reads nothing",
    "L[c<9,h<4] max[r<2] A[c-1,h+r]|-inf": "outside its box",
    "L[a<2,b<2,c<2,h<4] max[r<2] {L[c<2,b<2,h<9,a<2] A[c+b,h+a]}[c,b,h+r,a]": "no batch and channels",
    "L[c<5,h<4,x<2] max[r<2] A[c,h+r]": "stands nowhere",
}


def matched(text: str, declared: str) -> tuple[Scope, MaxPool]:
    scope = parse(f"{declared}\n{text}")
    found = MAX_POOL.match(scope)
    assert isinstance(found, Match), found
    assert isinstance(found.kernel, MaxPool)
    return scope, found.kernel


@pytest.mark.parametrize("text", MATCHED)
def test_attributes_and_values(text: str) -> None:
    """The kernel has the window of the expression, and the library computes just its values."""
    declared, *wanted = MATCHED[text]
    scope, kernel = matched(text, declared)
    assert [kernel.taps, kernel.strides, kernel.dilations, kernel.pads] == wanted
    x = np.random.default_rng(0).standard_normal(tensors(scope)["A"].shape).astype(np.float32)
    (y,) = run([kernel.map_views(lambda v: replace(v, buffer={"0": "A", "out": "y"}[v.buffer]))], x, scope.shape)
    np.testing.assert_array_equal(y, evaluate(scope, {"A": x}))


def run(kernels: Sequence[Kernel], x: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray]:
    size = int(np.prod(shape))
    ends = (("x", dense_view("A", x.shape)),), (("y", dense_view("y", shape)),)
    plan = Plan((Buffer("A", x.size, "f32", "input"), Buffer("y", size, "f32", "output")), tuple(kernels), *ends)
    program = Executable(plan, 1)
    slow = [k for k in kernels if isinstance(k, MaxPool) and (max(k.dilations) > 1 or np.prod(k.x.shape) < x.size)]
    assert ["numpy runs it" in note for note in program.notes] == [True for _ in slow], "oneDNN has fast code for dense data and taps"
    return program.run(x)


@pytest.mark.parametrize(("text", "why"), REFUSED.items(), ids=REFUSED.values())
def test_what_is_no_pooling(text: str, why: str) -> None:
    found = MAX_POOL.match(parse(f"A : f32[9,9]\n{text}"))
    assert isinstance(found, list) and any(why in m.why for m in found), found


def test_stored_and_read() -> None:
    for text, (declared, *_) in MATCHED.items():
        kernel = matched(text, declared)[1]
        value = kernel_json(kernel, lambda model: "")
        assert read_kernel(value, lambda n: b"") == kernel and value["kind"] == "max_pool"
        with pytest.raises(ValueError, match="expected integers"):
            read_kernel({**value, "taps": [2.0]}, lambda n: b"")


def test_only_the_processor_has_it() -> None:
    assert MAX_POOL in TABLES and MAX_POOL in tables_for("cpu")
    assert MAX_POOL not in tables_for("cuda") and {t.name for t in tables_for("cuda")} == {t.name for t in TABLES} - {"MaxPool", "Softmax"}


def test_a_batch_is_divided_and_a_window_is_not() -> None:
    kernel = matched("L[n<4,h<4,c<5] max[r<3] A[n,2*h+r-1,c]|-inf", "A : f32[4,8,5]")[1]
    cut = cut_kernel(kernel, {"out": Digit(20, 4)}, {}, 2)
    assert isinstance(cut.kernel, MaxPool) and cut.kernel.y.shape[0] == cut.kernel.x.shape[0] == 2
    assert set(cut.steps.values()) == {40, 80}
    with pytest.raises(Undivided):
        cut_kernel(kernel, {"out": Digit(5, 4)}, {}, 2)


def test_nan_is_lost_and_kept_where_that_is_asked_for() -> None:
    scope, kernel = matched("L[c<5,h<4] max[r<2] A[c,2*h+r]", "A : f32[5,8]")
    kernel = kernel.map_views(lambda v: replace(v, buffer={"0": "A", "out": "y"}[v.buffer]))
    (kept,) = keeping_nan(kernel)
    assert nan_lost(kernel) and isinstance(kept, EOperator)
    x = np.zeros((5, 8), np.float32)
    x[1, 2:4], x[2, 3], x[3, 4:6] = np.nan, np.inf, -np.inf
    np.testing.assert_array_equal(run([kept], x, scope.shape)[0], evaluate(scope, {"A": x}))


SCOPE = "L[h<8,w<8,c<16] max[r<3,s<3] A[2*h+r-1,2*w+s-1,c]|-inf"


@pytest.mark.parametrize("faster", [True, False])
def test_it_is_chosen_only_where_it_is_faster(faster: bool) -> None:
    """Both ways are the model's own; which of them runs is what was measured."""
    scope = parse(f"A : f32[16,16,16]\n{SCOPE}")
    forms = Space(Options(max_depth=0)).forms(scope)
    seconds = {True: 1.0 if faster else 3.0, False: 2.0}

    def measure(kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [seconds[isinstance(k, MaxPool)] for k in kernels]

    choice = choose(scope, forms, lambda kernels: [1e-9 for _ in kernels], measure, until=inf)
    assert [isinstance(k, MaxPool) for k in choice.best.build.kernels] == [faster]
    assert choice.best.original


def test_what_reads_it_is_no_post_of_it() -> None:
    scope = parse(f"A : f32[16,16,16]\nL[h<8,w<8,c<16] relu({{{SCOPE}}}[h,w,c])")
    (inner,) = [s for s in (scope.body.args[0].base,) if isinstance(s, Scope)]  # type: ignore[union-attr]
    found = MAX_POOL.match(inner)
    assert isinstance(found, Match)
    pool, rest = build(scope, {inner: found}, "out").kernels
    assert isinstance(pool, MaxPool) and isinstance(rest, EOperator) and pool.y.buffer == rest.operands[0][1].buffer


def pooled() -> onnx.ModelProto:
    """Two poolings, the second of which leaves data unread."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["a"], ["y"], kernel_shape=[3, 2], strides=[2, 2]),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (2, 16, 17, 17)), ("y", (2, 16, 4, 4)))]
    graph = helper.make_graph(nodes, "pooled", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def moved(kernel: MaxPool) -> list[MaxPool]:
    """Other kernels: another window, another step, another place."""
    more = [replace(kernel, taps=tuple(n - 1 for n in kernel.taps)), replace(kernel, strides=tuple(n - 1 for n in kernel.strides))]
    if any(kernel.pads):
        more.append(replace(kernel, pads=tuple(0 for _ in kernel.pads)))
    return [*more, kernel.with_result(View(kernel.y.buffer, kernel.y.shape, kernel.y.strides[::-1], 0))]


def test_a_program_with_it_is_lifted_proven_and_run_on_integers(tmp_path: Path) -> None:
    """Plans of forms with the operator are the model; changed ones are not, whatever is changed."""
    model = pooled()
    program = prepare(load(model))
    options, ones = Options(max_depth=0), lambda kernels: [1.0] * len(kernels)
    plan = plan_of_any(
        program, options, lambda forms: max(candidates(forms, ones), key=lambda c: sum(isinstance(k, MaxPool) for k in c.build.kernels))
    )
    places = [n for n, k in enumerate(plan.kernels) if isinstance(k, MaxPool)]
    assert len(places) == 2
    found = proven(program, plan, [])
    assert told_lifting(program, found)["problems"] == []
    told = told_kernels(plan, OnProcessor(Executable(plan, 1)), places)
    assert told["problems"] == [] and told["vendor"] == told["exact"] == 2
    for n in places:
        for other in moved(plan.kernels[n]):
            changed = replace(plan, kernels=(*plan.kernels[:n], other, *plan.kernels[n + 1 :]))
            assert told_lifting(program, proven(program, changed, []))["problems"], other
    made = einnet.optimize(model, threads=1, time_budget=5, max_depth=0)
    x = np.random.default_rng(0).standard_normal((2, 16, 17, 17)).astype(np.float32)
    np.testing.assert_array_equal(einnet.load(made.save(tmp_path / "p.einnet"))(x=x)["y"], made(x=x)["y"])
