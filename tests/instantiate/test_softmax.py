"""Softmax as a vendor operator: a kernel of several nested scopes, matched by its normal form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from einnet.evidence.examine import proven, told_kernels, told_lifting
from einnet.evidence.running import OnProcessor
from einnet.expr.nodes import Scope, Tensor
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.build import build
from einnet.instantiate.chunks import Digit, Undivided, cut_kernel
from einnet.instantiate.epilogue_kernels import keeping_nan
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, Plan, dense_view, loops_of
from einnet.instantiate.matching.types import Match
from einnet.instantiate.operators.softmax import SOFTMAX, Softmax, softmax
from einnet.instantiate.registry import tables_for
from einnet.runtime.cpu.program import Executable
from einnet.runtime.serial import kernel_json, read_kernel
from einnet.search.choosing.choose import choose
from einnet.search.choosing.making import candidates
from einnet.search.space import Options, Space
from tests.drawn import plan_of_any

GREATEST = "{L[i<6] max[k<9] A[i,k]}[i]"
RAISED = f"exp(A[i,j] - {GREATEST})"
ROWS = f"A : f32[6,9]\nL[i<6,j<9] {RAISED} / {{L[i<6] Σ[j<9] {RAISED}}}[i]"


def scope_of(shape: tuple[int, ...], axis: int) -> Scope:
    return softmax(Tensor("A", shape), loops_of(shape), axis)


def matched(scope: Scope) -> Match:
    found = SOFTMAX.match(scope)
    assert isinstance(found, Match), found
    return found


def run(kernels: Sequence[Kernel], x: np.ndarray) -> np.ndarray:
    buffers = Buffer("A", x.size, "f32", "input"), Buffer("out", x.size, "f32", "output")
    plan = Plan(buffers, tuple(kernels), (("x", dense_view("A", x.shape)),), (("y", dense_view("out", x.shape)),))
    program = Executable(plan, 1)
    slow = any(isinstance(k, Softmax) and k.axis < len(k.x.shape) - 1 for k in kernels)
    assert ["numpy runs it" in note for note in program.notes] == [True] * slow, "oneDNN has fast code for rows that lie dense"
    return program.run(x)[0]


@pytest.mark.parametrize(("shape", "axis"), [((6, 9), 1), ((6, 9), 0), ((2, 3, 16), 2), ((2, 5, 16), 1), ((1, 4, 1, 8), 3)])
def test_values_along_every_axis(shape: tuple[int, ...], axis: int) -> None:
    scope = scope_of(shape, axis)
    match = matched(scope)
    assert isinstance(match.kernel, Softmax) and match.kernel.axis == axis
    x = (4 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    x.reshape(-1)[1] = -inf
    (kernel,) = build(scope, {scope: match}, "out").kernels
    assert [v.buffer for v in kernel.operand_views] == ["A"], "the data are read where they stand"
    np.testing.assert_allclose(run([kernel], x), evaluate(scope, {"A": x}), rtol=2e-6, atol=1e-7)
    assert read_kernel(kernel_json(kernel, lambda model: ""), lambda n: b"") == kernel


def test_it_is_matched_however_it_is_written() -> None:
    """By its normal form, not by its text: other names, sums over another copy, a factor in place of a quotient inside."""
    assert matched(parse(ROWS)).roles == (("rows", ("i",)), ("k", ("j",)))
    other = f"L[p<6,q<9] {{L[i<6,j<9] {RAISED}}}[p,q] / {{L[i<6] Σ[s<9] {{L[i<6,j<9] {RAISED}}}[i,s]}}[p]"
    assert isinstance(matched(parse(f"A : f32[6,9]\n{other}")).kernel, Softmax)


CLOSE = {
    "the greatest of another row": ROWS.replace("max[k<9] A[i,k]", "max[k<9] A[5-i,k]"),
    "twice the exponent": ROWS.replace("exp(A[i,j] -", "exp(2*A[i,j] -"),
    "the sum without an element": ROWS.replace("Σ[j<9]", "Σ[j<8]"),
    "another divisor": ROWS + " + 1",
    "a divisor of its own": ROWS.replace("/ {L[i<6]", "/ {L[i<6,z<1]").replace("}[i]\n", "}[i,0]\n").replace(f"{RAISED}}}[i]", f"2*{RAISED}}}[i,0]"),
    "a maximum over more": "B : f32[2,2]\n" + ROWS.replace("{L[i<6] max[k<9] A[i,k]}[i]", "{L[i<6,z<2,y<2] max[k<9] A[i,k]+B[z,y]}[i,1,1]"),
    "no maximum": "A : f32[6,9]\nL[i<6,j<9] exp(A[i,j]) / {L[i<6] Σ[j<9] exp(A[i,j])}[i]",
    "a square root of it": ROWS.replace("L[i<6,j<9] exp", "L[i<6,j<9] sqrt", 1),
}


@pytest.mark.parametrize("name", CLOSE)
def test_what_only_looks_like_it(name: str) -> None:
    scope = parse(CLOSE[name])
    assert isinstance(SOFTMAX.match(scope), list), scope.text()


def test_rows_are_divided_and_what_is_summed_is_not() -> None:
    (kernel,) = build(parse(ROWS), {parse(ROWS): matched(parse(ROWS))}, "out").kernels
    assert cut_kernel(kernel, {"out": Digit(9, 6)}, {}, 3).kernel.result_views[0].shape == (2, 9)
    with pytest.raises(Undivided):
        cut_kernel(kernel, {"out": Digit(1, 9)}, {}, 3)


def test_what_is_added_to_the_scores_is_computed_before() -> None:
    """The operand is an expression: of the scores of an attention, scaled and masked."""
    x = "(A[i,{0}]*1/4 + M[{0}])"
    raised = f"exp({x.format('j')} - {{L[i<6] max[k<9] {x.format('k')}}}[i])"
    scope = parse(f"A : f32[6,9]\nM : f32[9]\nL[i<6,j<9] {raised} / {{L[i<6] Σ[j<9] {raised}}}[i]")
    match = matched(scope)
    scores, kernel = build(scope, {scope: match}, "out").kernels
    assert isinstance(scores, EOperator) and isinstance(kernel, Softmax) and kernel.x.buffer == scores.out.buffer
    assert not any(s.sums for s in scores.scope.parts)


def test_of_a_form_only_what_the_operator_reads_is_opened() -> None:
    """The maximum and the sum are inside of it; the product that it reads is not, and is a vendor operator, too."""
    product = "{L[i<6,j<9] Σ[c<4] Q[i,c]*K[j,c]}"
    scope = parse("Q : f32[6,4]\nK : f32[9,4]\n" + ROWS.partition("\n")[2].replace("A[", product + "["))
    found = candidates(Space(Options(max_depth=0, tables=tables_for("cpu"))).forms(scope), lambda kernels: [1.0] * len(kernels))
    kinds = [tuple(type(k) for k in c.build.kernels) for c in found]
    assert (Matmul, Softmax) in kinds, kinds


@pytest.mark.parametrize("faster", [True, False])
def test_it_is_chosen_only_where_it_is_faster(faster: bool) -> None:
    scope = parse(ROWS)
    seconds = {True: 1.0 if faster else 3.0, False: 2.0}

    def measure(kernels: Sequence[Kernel], until: float) -> list[float | None]:
        return [seconds[isinstance(k, Softmax)] for k in kernels]

    choice = choose(scope, Space(Options(max_depth=0)).forms(scope), lambda kernels: [1e-9 for _ in kernels], measure)
    assert [isinstance(k, Softmax) for k in choice.best.build.kernels] == [faster]


def test_nan_is_kept_where_that_is_asked_for() -> None:
    scope = parse(ROWS)
    (kernel,) = build(scope, {scope: matched(scope)}, "out").kernels
    x = np.zeros((6, 9), np.float32)
    x[2, 3], x[4] = np.nan, -inf
    (kept,) = keeping_nan(kernel)
    wanted = evaluate(scope, {"A": x})
    assert np.isnan(wanted[2]).all()
    np.testing.assert_allclose(run([kept], x), wanted, rtol=2e-6)


def attention() -> onnx.ModelProto:
    operators = (("MatMul", ["q", "k"], ["s"], {}), ("Softmax", ["s"], ["p"], {"axis": -1}), ("MatMul", ["p", "v"], ["y"], {}))
    nodes = [helper.make_node(kind, given, made, **attributes) for kind, given, made, attributes in operators]
    shapes = {"q": (2, 16, 8), "k": (2, 8, 24), "v": (2, 24, 8), "y": (2, 16, 8)}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    return helper.make_model(helper.make_graph(nodes, "attention", ends[:3], ends[3:]), opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_a_program_with_it_is_lifted_proven_and_run_alone() -> None:
    """Changed kernels are not the model: another axis, another place."""
    model = attention()
    program = prepare(load(model))
    options, ones = Options(max_depth=0), lambda kernels: [1.0] * len(kernels)
    plan = plan_of_any(
        program, options, lambda forms: max(candidates(forms, ones), key=lambda c: sum(isinstance(k, Softmax) for k in c.build.kernels))
    )
    (place,) = [n for n, k in enumerate(plan.kernels) if isinstance(k, Softmax)]
    assert told_lifting(program, proven(program, plan, []))["problems"] == []
    told = told_kernels(plan, OnProcessor(Executable(plan, 1)), [place])
    assert told["problems"] == [] and told["vendor"] == told["bounded"] == 1
    kernel = plan.kernels[place]
    assert isinstance(kernel, Softmax)
    for other in (replace(kernel, axis=kernel.axis - 1), replace(kernel, x=replace(kernel.x, strides=(kernel.x.strides[0], 1, kernel.x.shape[1])))):
        changed = replace(plan, kernels=(*plan.kernels[:place], other, *plan.kernels[place + 1 :]))
        assert told_lifting(program, proven(program, changed, []))["problems"]
