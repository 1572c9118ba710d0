"""ONNX out: every expression, every view and every plan against the exact evaluator and ONNX Runtime."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einnet.errors import UsageError
from einnet.expr.nodes import Scope, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Matmul, Plan, Post, View, dense_view
from einnet.runtime.onnx.buffers import row_length
from einnet.runtime.onnx.model import export
from einnet.runtime.ort import Session
from einnet.search.choosing.making import candidates
from einnet.search.space import Options
from tests.drawn import plan_of_any
from tests.models import TINY, tiny, two_outputs, with_opaque
from tests.strategies import integer_values, repeatable, scopes


def plan_of(scope: Scope) -> Plan:
    """One generated kernel."""
    read = tensors(scope).values()
    buffers = [Buffer(t.name, int(np.prod(t.shape)), "f32", "input") for t in read] + [Buffer("out", int(np.prod(scope.shape)), "f32", "output")]
    views = tuple((t.name, dense_view(t.name, t.shape)) for t in read)
    out = dense_view("out", scope.shape)
    return Plan(tuple(buffers), (EOperator(scope, views, out),), views, (("y", out),))


def run(plan: Plan, values: dict[str, np.ndarray], opset: int = 18) -> np.ndarray:
    model = export(plan, opset)
    onnx.checker.check_model(model, full_check=True)
    return Session(model.SerializeToString(), 1)({n: v.astype(np.float32) for n, v in values.items()})[plan.outputs[0][0]]


@repeatable(150)
@given(scopes(depth=2), st.sampled_from((13, 18, 21)))
def test_every_expression(scope: Scope, opset: int) -> None:
    values = integer_values(scope)
    wanted = evaluate(scope, values)
    got = run(plan_of(scope), values, opset)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * (1 + np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))


@pytest.mark.parametrize(
    "text",
    [
        "L[h<9,w<7,f<3] Σ[c<2,r<3,s<3] A[2*h+r-1,w+2*s-3,c]*K[r,s,f,c]",
        "L[h<8,w<8,f<2] Σ[c<2,r<4,s<4] A[(h+1-r)/2,(w+1-s)/2,c]*K[r,s,f,c]",
        "L[a<2,b<3,i<12] X[6*a+2*b+i//6,i%6]",
        "L[m<12] max[d<5] A[m//4,m%4+d-2]|-inf",
        "L[i<6,j<6] Σ[k<4] select(i-j>=0, exp(A[i,k])*B[k,j], 0)",
        "L[i<3] Σ[k<2,q<5] 1",
        "L[] Σ[k<4] A[k]*A[3-k]",
    ],
)  # fmt: skip
def test_kinds_of_reads(text: str) -> None:
    scope = parse(text)
    values = integer_values(scope)
    np.testing.assert_allclose(run(plan_of(scope), values), evaluate(scope, values), rtol=1e-5)


def memory(view: View, data: np.ndarray) -> np.ndarray:
    step = data.itemsize
    return np.lib.stride_tricks.as_strided(data[view.offset :], view.shape, tuple(s * step for s in view.strides))


@repeatable(60)
@given(st.integers(0, 1 << 32))
def test_views(seed: int) -> None:
    """A product of two random views of buffers: permuted boxes, broadcast and overlapping dimensions, constants and inputs."""
    rng = Random(seed)

    def random_view(buffer: str, rows: int, columns: int) -> View:
        return View(buffer, (rows, columns), (rng.choice((0, 1, 2, 7, 12)), rng.choice((1, 2, 5, 6))), rng.randrange(5))

    m, n, k = (rng.randint(1, 4) for _ in range(3))
    a, b = random_view("a", m, k), random_view("b", k, n)
    generator = np.random.default_rng(seed)
    data = {name: generator.integers(-4, 5, 72).astype(np.float32) for name in "ab"}
    constant = rng.random() < 0.5
    buffers = (Buffer("a", 72, "f32", "input"), Buffer("b", 72, "f32", "constant" if constant else "input"), Buffer("c", m * n, "f32", "output"))
    c = rng.choice((dense_view("c", (m, n)), View("c", (m, n), (1, m))))
    given_in = tuple((x.name, dense_view(x.name, (72,))) for x in buffers if x.role == "input")
    out = dense_view("c", (m * n,))
    plan = Plan(buffers, (Matmul(a, b, c),), given_in, (("y", out),), {"b": data["b"]} if constant else {})
    expected = np.zeros(m * n, np.float32)
    memory(c, expected)[...] = memory(a, data["a"]) @ memory(b, data["b"])
    np.testing.assert_array_equal(run(plan, {name: data[name] for name, _ in given_in}), expected)


def test_windows_that_overlap_are_gathered_by_rows() -> None:
    """Blocks of 6 rows, 4 rows apart, of a matrix with 5 columns: the table names rows, not elements."""
    windows, rest = View("a", (3, 6, 5), (20, 5, 1), 5), View("b", (3, 5, 2), (0, 2, 1))
    buffers = (Buffer("a", 80, "f32", "input"), Buffer("b", 10, "f32", "input"), Buffer("c", 36, "f32", "output"))
    assert row_length(windows, 80) == 5
    assert row_length(View("a", (3, 6), (1, 1)), 80) == 1
    c = dense_view("c", (3, 6, 2))
    given_in = tuple((x.name, dense_view(x.name, (x.size,))) for x in buffers if x.role == "input")
    plan = Plan(buffers, (Matmul(windows, rest, c),), given_in, (("y", c),))
    values = {"a": np.arange(80, dtype=np.float32), "b": np.arange(10, dtype=np.float32)}
    np.testing.assert_array_equal(run(plan, values), memory(windows, values["a"]) @ memory(rest, values["b"]))
    tables = [t for node in export(plan).graph.node for a in node.attribute if node.op_type == "Constant" for t in [a.t]]
    assert max(int(np.prod(t.dims)) for t in tables) <= 18


@pytest.mark.parametrize(
    "slices", [(View("c", (2, 3), (3, 1), 0), View("c", (2, 3), (3, 1), 6)), (View("c", (2, 3), (6, 1), 0), View("c", (2, 3), (6, 1), 3))]
)
def test_parts_of_a_buffer_are_joined(slices: tuple[View, View]) -> None:
    scope = parse("X : f32[2,3]\nL[i<2,j<3] 2*X[i,j]")
    inputs = tuple((n, dense_view(n, (2, 3))) for n in ("p", "q"))
    kernels = tuple(EOperator(scope, (("X", view),), part) for (_, view), part in zip(inputs, slices))
    buffers = (Buffer("p", 6, "f32", "input"), Buffer("q", 6, "f32", "input"), Buffer("c", 12, "f32", "output"))
    plan = Plan(buffers, kernels, inputs, (("y", dense_view("c", (12,))),))
    values = {"p": np.arange(6.0).reshape(2, 3), "q": np.arange(6.0).reshape(2, 3) - 9}
    expected = np.zeros(12)
    for part, value in zip(slices, values.values()):
        memory(part, expected)[...] = 2 * value
    np.testing.assert_array_equal(run(plan, values), expected)
    assert len(export(plan).functions) == 1, "equal expressions share a function"


def kinds(plan: Plan) -> set[str]:
    model = export(plan)
    return {n.op_type for part in (model.graph, *model.functions) for n in part.node}


def copied(shape: tuple[int, ...]) -> Scope:
    """L[i0,i1,...] X[i0,i1,...]"""
    loops, index = (",".join(f"i{d}{f'<{n}' if bounded else ''}" for d, n in enumerate(shape)) for bounded in (True, False))
    return parse(f"X : f32[{','.join(map(str, shape))}]\nL[{loops}] X[{index}]")


def test_parts_that_lie_alike_are_stacked() -> None:
    """Products with transposed results, one after the other in a buffer."""
    parts = [View("c", (2, 3), (1, 2), start) for start in (6, 0)]
    inputs = tuple((n, dense_view(n, shape)) for n, shape in (("p", (2, 4)), ("q", (4, 3))))
    buffers = (Buffer("p", 8, "f32", "input"), Buffer("q", 12, "f32", "input"), Buffer("c", 12, "f32", "output"))
    plan = Plan(buffers, tuple(Matmul(inputs[0][1], inputs[1][1], part) for part in parts), inputs, (("y", dense_view("c", (2, 3, 2))),))
    values = {"p": np.arange(8.0).reshape(2, 4), "q": np.arange(12.0).reshape(4, 3)}
    product = (values["p"] @ values["q"]).T
    np.testing.assert_array_equal(run(plan, values), np.stack([product, product]))
    assert "Concat" in kinds(plan)
    assert "ScatterElements" not in kinds(plan)


@repeatable(40)
@given(st.integers(0, 1 << 32))
def test_windows_in_any_order_of_dimensions(seed: int) -> None:
    """Windows of rows that overlap or repeat, from any row on, with their dimensions permuted."""
    rng = Random(seed)
    width, rows, count, repeats = rng.choice((1, 2, 4)), rng.randint(1, 4), rng.randint(1, 4), rng.choice((1, 2))
    dims = [(count, width * rng.randint(1, 4)), (rows, width), (width, 1), (repeats, 0)]
    rng.shuffle(dims)
    view = View("a", tuple(n for n, _ in dims), tuple(s for _, s in dims), width * rng.randrange(3))
    buffers = (Buffer("a", 96, "f32", "input"), Buffer("y", count * rows * width * repeats, "f32", "output"))
    scope = copied(view.shape)
    out = dense_view("y", view.shape)
    plan = Plan(buffers, (EOperator(scope, (("X", view),), out),), (("a", dense_view("a", (96,))),), (("y", out),))
    values = {"a": np.arange(96, dtype=np.float32)}
    np.testing.assert_array_equal(run(plan, values), memory(view, values["a"]))


def test_an_axis_that_is_split_is_moved_once() -> None:
    """Channels last in memory, phases within channels: from what a convolution gives to where its reader wants them in one Transpose."""
    x, w, y = View("x", (1, 2, 3, 3), (18, 9, 3, 1)), View("w", (1, 8, 2, 1, 1), (16, 2, 1, 1, 1)), View("y", (1, 8, 3, 3), (72, 1, 24, 8))
    scope = parse("P : f32[3,3,2,2,2]\nL[c<2,h<3,r<2,w<3,s<2] exp(P[h,w,c,r,s])")
    out = dense_view("z", (2, 3, 2, 3, 2))
    kernels = (Conv(x, w, y, (1, 1), (1, 1), (0, 0), (0, 0)), EOperator(scope, (("P", dense_view("y", (3, 3, 2, 2, 2))),), out))
    roles = {"x": (18, "input"), "w": (16, "constant"), "y": (72, "temporary"), "z": (72, "output")}
    weights = np.arange(16, dtype=np.float32) / 16
    buffers = tuple(Buffer(n, size, "f32", role) for n, (size, role) in roles.items())
    plan = Plan(buffers, kernels, (("x", x),), (("z", out),), {"w": weights})
    values = np.random.default_rng(0).standard_normal((1, 2, 3, 3)).astype(np.float32)
    product = np.einsum("chw,fc->hwf", values[0], weights.reshape(8, 2)).reshape(3, 3, 2, 2, 2)
    np.testing.assert_allclose(run(plan, {"x": values}), np.exp(product.transpose(2, 0, 3, 1, 4)), rtol=1e-5)
    nodes = [n for part in (export(plan).graph, *export(plan).functions) for n in part.node]
    assert sum(n.op_type == "Transpose" for n in nodes) == 1


@repeatable(40)
@given(st.integers(0, 1 << 32))
def test_whole_buffers_in_any_split_and_order(seed: int) -> None:
    rng = Random(seed)

    def view(extents: tuple[int, ...]) -> View:
        strides = [int(np.prod(extents[d + 1 :])) for d in range(4)]
        order = rng.sample(range(4), 4)
        return View("c", tuple(extents[d] for d in order), tuple(strides[d] for d in order))

    wrote, reads = (view(rng.choice(((2, 3, 4, 2), (6, 2, 2, 2), (3, 2, 1, 8), (2, 12, 2, 1), (4, 4, 3, 1)))) for _ in range(2))
    scope, again = (copied(v.shape) for v in (wrote, reads))
    given_in, out = dense_view("a", wrote.shape), dense_view("y", reads.shape)
    buffers = (Buffer("a", 48, "f32", "input"), Buffer("c", 48, "f32", "temporary"), Buffer("y", 48, "f32", "output"))
    kernels = (EOperator(scope, (("X", given_in),), wrote), EOperator(again, (("X", reads),), out))
    plan = Plan(buffers, kernels, (("a", given_in),), (("y", out),))
    values = np.arange(48, dtype=np.float32).reshape(wrote.shape)
    middle = np.zeros(48, np.float32)
    memory(wrote, middle)[...] = values
    np.testing.assert_array_equal(run(plan, {"a": values}), memory(reads, middle))


BAND = (
    "select(t-i>=0 & i-t+4>=0, exp(A[i,t] + (-1)*{L[i<5] max[n<5] A[i,i+n]}[i]), 0)"
    " / {L[i<5] Σ[k<5] exp(A[i,i+k] + (-1)*{L[i<5] max[m<5] A[i,i+m]}[i])}[i]"
)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("L[i<5,t<7] exp(A[i,t]) / {L[i<5] Σ[k<7] exp(A[i,k])}[i]", True),
        ("L[i<5,t<3,u<4] exp(A[t,i,u]) / {L[i<5] Σ[k<3,q<4] exp(A[k,i,q])}[i]", True),
        ("L[i<5,t<9] " + BAND, True),
        ("L[i<5,t<9] " + BAND.replace("k<5] exp(A[i,i+k]", "k<4] exp(A[i,i+k]"), False),
        ("L[i<5,t<7] exp(A[i,t]) / {L[i<5] Σ[k<6] exp(A[i,k])}[i]", False),
        ("L[i<5,t<7] exp(A[i,t]) / {L[i<5] Σ[k<7] exp(2*A[i,k])}[i]", False),
        ("L[i<5,t<7] exp(A[i,0]) / {L[i<5] Σ[k<7] exp(A[i,0])}[i]", False),
        ("L[i<7,t<7] exp(A[i,t]) / {L[i<7] Σ[k<7] exp(A[i,k])}[t]", False),
    ],
)  # fmt: skip
def test_exponentials_by_their_sum_are_a_softmax(text: str, known: bool) -> None:
    """Also under a mask, where the sum walks the band's diagonal; not where the sum is over something else."""
    scope = parse(text)
    values = {name: np.random.default_rng(0).standard_normal(t.shape).astype(np.float32) for name, t in tensors(scope).items()}
    np.testing.assert_allclose(run(plan_of(scope), values), evaluate(scope, values), rtol=1e-5, atol=1e-6)
    assert ("Softmax" in kinds(plan_of(scope))) is known


def test_reductions_along_a_diagonal_copy_no_windows() -> None:
    scope = parse("L[i<6] max[n<5] A[i,i+n]")
    values = integer_values(scope)
    np.testing.assert_array_equal(run(plan_of(scope), values), evaluate(scope, values))
    assert "Gather" not in kinds(plan_of(scope))


def test_operands_are_read_in_the_order_of_the_loops() -> None:
    """What was written in that order is not transposed to and fro."""
    scope = parse("X : f32[3,2,4]\nL[b<2,m<3,n<4] exp(X[m,b,n])")
    inputs, out = (("p", dense_view("p", (2, 3, 4))),), dense_view("y", (2, 3, 4))
    kernel = EOperator(scope, (("X", View("p", (3, 2, 4), (4, 12, 1))),), out)
    plan = Plan((Buffer("p", 24, "f32", "input"), Buffer("y", 24, "f32", "output")), (kernel,), inputs, (("y", out),))
    values = {"p": np.arange(24.0).reshape(2, 3, 4) / 24}
    np.testing.assert_allclose(run(plan, values), np.exp(values["p"]), rtol=1e-6)
    assert "Transpose" not in kinds(plan)


def test_convolutions_with_posts() -> None:
    rng = np.random.default_rng(0)
    x, w, y = View("x", (1, 4, 5, 6), (120, 1, 24, 4)), View("w", (2, 3, 2, 3, 3), (54, 18, 9, 3, 1)), View("y", (1, 6, 3, 3), (54, 1, 18, 6))
    posts = (
        Post("add", View("b", (1, 6, 1, 1), (6, 1, 1, 1))),
        Post("relu", alpha=0.25),
        Post("linear", alpha=2.0, beta=-1.0),
        Post("clip", alpha=-3.0, beta=4.0),
    )
    buffers = tuple(Buffer(n, s, "f32", r) for n, s, r in (("x", 120, "input"), ("w", 108, "constant"), ("b", 6, "constant"), ("y", 54, "output")))
    constants = {"w": rng.standard_normal(108).astype(np.float32), "b": rng.standard_normal(6).astype(np.float32)}
    kernel = Conv(x, w, y, (2, 2), (1, 1), (1, 1), (1, 0), post=posts)
    plan = Plan(buffers, (kernel,), (("x", dense_view("x", (1, 5, 6, 4))),), (("y", dense_view("y", (1, 3, 3, 6))),), constants)
    values = rng.standard_normal((1, 5, 6, 4)).astype(np.float32)
    direct = parse("X : f32[5,6,4]\nK : f32[6,2,3,3]\nL[h<3,w<3,f<6] Σ[c<2,r<3,s<3] X[2*h+r-1,2*w+s-1,2*(f//3)+c]*K[f,c,r,s]")
    plain = evaluate(direct, {"X": values[0], "K": constants["w"].reshape(6, 2, 3, 3)}) + constants["b"]
    wanted = np.clip(2 * np.where(plain > 0, plain, plain / 4) - 1, -3, 4)
    np.testing.assert_allclose(run(plan, {"x": values})[0], wanted, rtol=1e-5, atol=1e-5)


LARGE = ("gcn", "csrnet_full", "resnet18", "squeeze")
"""Of whose kinds of layers there are smaller models."""


AS_THEY_ARE = ("small", "csrnet", "transformer", "two_outputs")
"""Models whose own operators are written too: what is derived of a model leaves most of them as they are."""


def by_default(name: str, depth: int) -> bool:
    return name not in LARGE and (depth > 0 or name in AS_THEY_ARE)


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        pytest.param(name, depth, marks=() if by_default(name, depth) else pytest.mark.slow)
        for name in (*TINY, "with_opaque", "two_outputs")
        for depth in (0, 2)
    ],
)
def test_programs(name: str, depth: int) -> None:
    """Some candidate of every subprogram, chosen by chance: the whole model gives what it gave."""
    model = {"with_opaque": with_opaque, "two_outputs": two_outputs}[name]() if name not in TINY else tiny(name)
    program = prepare(load(model))
    rng = Random(depth)
    options = Options(max_depth=depth, states=30)
    plan = plan_of_any(program, options, lambda forms: rng.choice(candidates(forms, lambda kernels: [1.0] * len(kernels))))
    made = export(plan, max(program.header.opset, 13), {"note": "kept"})
    onnx.checker.check_model(made, full_check=True)
    assert [v.name for v in made.graph.input] == [v.name for v in model.graph.input]
    assert [v.name for v in made.graph.output] == [v.name for v in model.graph.output]
    assert made.metadata_props[0].value == "kept"
    session = Session(model.SerializeToString(), 1)
    generator = np.random.default_rng(0)
    values = {a.name: generator.standard_normal(a.shape).astype(a.dtype) for a in session.inputs}
    wanted, got = session(values), Session(made.SerializeToString(), 1)(values)
    for output, y in wanted.items():
        np.testing.assert_allclose(got[output], y, rtol=0, atol=1e-4 * np.abs(y).max())


def test_an_old_opset_is_refused() -> None:
    with pytest.raises(UsageError, match="opset 13 or later"):
        export(plan_of(parse("L[i<3] A[i]")), 12)
