"""Products of one tensor as one product, over a whole plan: the same numbers where that gains, and the plan as it is where it does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto

from einnet.expr.nodes import Tensor
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, Plan, Post, View, dense_view
from einnet.runtime.cpu.program import Executable
from einnet.search.copy_elimination import Measured
from einnet.search.joint_products import gains, together
from tests.runtime.plans import opaque

RNG = np.random.default_rng(0)
VALUES = {"q": RNG.standard_normal((8, 6)).astype(np.float32), "k": RNG.standard_normal((8, 4)).astype(np.float32)}
VALUES |= {"v": RNG.standard_normal((1, 8, 5)).astype(np.float32), "bias": RNG.standard_normal(6).astype(np.float32)}
DECLARED = {name: Tensor(name, value.shape, "f32", True) for name, value in VALUES.items()}
WIDTHS = {"q": 6, "k": 4, "v": 5}
TOLD = {"w0": parse("k : weight f32[8,4]\nL[m<8,n<4] 2*k[m,n]"), "w1": parse("other : weight f32[8,4]\nL[m<8,n<4] 2*other[m,n]")}


def product(weight: str, out: str, width: int) -> Matmul:
    return Matmul(dense_view("x", (3, 8)), dense_view(weight, (8, width)), dense_view(out, (3, width)))


def reading(name: str, width: int, out: str) -> EOperator:
    scope = parse(f"P : f32[1,3,{width}]\nL[m<3] Σ[n<{width}] P[0,m,n]")
    return EOperator(scope, (("P", dense_view(name, (1, 3, width))),), dense_view(out, (3,)))


def plan(kernels: Sequence[Kernel], outputs: Sequence[str], constants: dict[str, np.ndarray]) -> Plan:
    views = {v.buffer: v for k in kernels for v in (*k.operand_views, *k.result_views)}
    role = {"x": "input", **dict.fromkeys(constants, "constant"), **dict.fromkeys(outputs, "output")}
    sizes = {n: constants[n].size if n in constants else int(np.prod(v.shape)) for n, v in views.items()}
    buffers = tuple(Buffer(n, sizes[n], "f32", role.get(n, "temporary")) for n in views)
    given = (("x", dense_view("x", (3, 8))),)
    return Plan(
        buffers, tuple(kernels), given, tuple((n, dense_view(n, views[n].shape)) for n in outputs),
        {n: v.reshape(-1) for n, v in constants.items()}, {n: s for n, s in TOLD.items() if n in views},
    )  # fmt: skip


def three() -> Plan:
    kernels = [*(product(n, f"p{n}", w) for n, w in WIDTHS.items()), *(reading(f"p{n}", w, f"o{n}") for n, w in WIDTHS.items())]
    return plan(kernels, ["oq", "ok", "ov"], {n: VALUES[n] for n in WIDTHS})


def calls(kernels: Sequence[Kernel]) -> list[float | None]:
    return [1.0 for _ in kernels]


def joined(p: Plan, measured: Measured = calls) -> Plan:
    return together(p, DECLARED, VALUES, lambda made: measured)


def run(p: Plan) -> list[np.ndarray]:
    return Executable(p, 1).run(np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32))


def test_products_of_one_tensor_are_one_product() -> None:
    before = three()
    after = joined(before)
    assert [type(k).__name__ for k in after.kernels] == ["Matmul", "EOperator", "EOperator", "EOperator"]
    assert {b.name for b in after.buffers} & {"q", "k", "v", "pq", "pk", "pv"} == set()
    assert after.constants.keys() == after.expressions.keys()
    assert {n: (v.shape, v.strides, v.offset) for n, v in after.places.items()} == {
        "pq": ((3, 6), (15, 1), 0), "pk": ((3, 4), (15, 1), 6), "pv": ((3, 5), (15, 1), 10),
    }  # fmt: skip
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


def reads_slowly(kernels: Sequence[Kernel]) -> list[float | None]:
    """Windows are dear to read."""
    return [1.0 + 9 * any(v.strides[1] > v.shape[-1] for v in k.operand_views if v.buffer.startswith("p") and len(v.shape) == 3) for k in kernels]


@pytest.mark.parametrize("measured", [lambda kernels: [None for _ in kernels], reads_slowly, lambda kernels: [0.0 for _ in kernels]])
def test_nothing_changes_without_a_measured_gain(measured: Measured) -> None:
    before = three()
    assert joined(before, measured) is before


@pytest.mark.parametrize(("seconds", "gained"), [(0.98, True), (0.995, False), (1.0, False)])
def test_a_gain_is_more_than_a_hundredth(seconds: float, gained: bool) -> None:
    """Of what changes: the kernels that both have count on neither side."""
    old, new, both = product("q", "pq", 6), product("k", "pk", 4), reading("pq", 6, "oq")
    assert gains(lambda kernels: [{old: 1.0, new: seconds}[k] for k in kernels], [old, both], [both, new]) == gained


def alike() -> Plan:
    """Three products of one width, each with a row of its own."""
    values = {n: RNG.standard_normal((8, 5)).astype(np.float32) for n in WIDTHS} | {"row": RNG.standard_normal((3, 5)).astype(np.float32)}
    kernels: list[Kernel] = [
        Matmul(dense_view("x", (3, 8)), dense_view(w, (8, 5)), dense_view(f"p{w}", (3, 5)), (Post("add", View("row", (1, 5), (5, 1), 5 * n)),))
        for n, w in enumerate(WIDTHS)
    ]
    return plan([*kernels, *(reading(f"p{w}", 5, f"o{w}") for w in WIDTHS)], [f"o{w}" for w in WIDTHS], values)


@pytest.mark.parametrize("batch", [True, False])
def test_what_takes_less_time_of_a_batch_and_a_wide_product_runs(batch: bool) -> None:
    before = alike()
    declared = {n: Tensor(n, (8, 5), "f32", True) for n in WIDTHS} | {"row": Tensor("row", (3, 5), "f32", True)}

    def measured(kernels: Sequence[Kernel]) -> list[float | None]:
        return [2.0 if isinstance(k, Matmul) and len(k.c.shape) == (2 if batch else 3) else 1.0 for k in kernels]

    after = together(before, declared, before.constants, lambda made: measured)
    assert [len(k.c.shape) for k in after.kernels if isinstance(k, Matmul)] == [3 if batch else 2]
    assert {v.shape for n, v in after.places.items() if n.startswith("p")} == {(3, 5)}
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_weights_are_constants_on_both_sides_of_the_comparison() -> None:
    """Those of the products that would be gone were measured as data, in cache and as they stand: nothing was ever faster."""
    asked = 0

    def costs(made: Plan) -> Measured:
        def measured(kernels: Sequence[Kernel]) -> list[float | None]:
            nonlocal asked
            asked += 1
            assert all(k.b.buffer in made.constants for k in kernels if isinstance(k, Matmul))
            return [1.0 for _ in kernels]

        return measured

    together(three(), DECLARED, VALUES, costs)
    assert asked


def test_what_is_computed_of_weights_alone_is_joined_too() -> None:
    kernels = [product("w0", "pk", 4), product("q", "pq", 6), reading("pk", 4, "ok"), reading("pq", 6, "oq")]
    before = plan(kernels, ["ok", "oq"], {"w0": 2 * VALUES["k"], "q": VALUES["q"]})
    after = joined(before)
    assert len(after.kernels) == 3
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


def unknown() -> Plan:
    """Of one constant nobody says what it holds, of another that it holds what the program does not have."""
    kernels: list[Kernel] = [product("u", "pk", 4), product("w1", "pv", 4), product("q", "pq", 6)]
    kernels += [reading("pk", 4, "ok"), reading("pv", 4, "ov"), reading("pq", 6, "oq")]
    return plan(kernels, ["ok", "ov", "oq"], {"u": VALUES["k"], "w1": VALUES["k"], "q": VALUES["q"]})


def given_out() -> Plan:
    """One of the two products leaves the program."""
    return plan([product("q", "pq", 6), product("k", "pk", 4), reading("pq", 6, "oq")], ["oq", "pk"], {"q": VALUES["q"], "k": VALUES["k"]})


def in_onnx_runtime() -> Plan:
    """One is read by a node that wants its operands dense."""
    types = TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT
    node = opaque("CumSum", (dense_view("pk", (3, 4)), dense_view("axis", (1,))), (dense_view("ok", (3, 4)),), types)
    kernels = [product("q", "pq", 6), product("k", "pk", 4), reading("pq", 6, "oq"), node]
    return plan(kernels, ["oq", "ok"], {"q": VALUES["q"], "k": VALUES["k"], "axis": np.zeros(1, np.float32)})


@pytest.mark.parametrize("made", [unknown, given_out, in_onnx_runtime])
def test_what_is_not_known_or_not_free_stays(made) -> None:
    before = made()
    assert joined(before) is before


def test_a_second_group_is_joined_in_the_plan_of_the_first() -> None:
    """Its operand is a part of the first joint product."""
    kernels = [product("q", "pq", 6), product("k", "pk", 4), reading("pk", 4, "ok")]
    inner = View("pq", (3, 6), (6, 1))
    more = {"a": np.ones((6, 2), np.float32), "b": np.full((6, 3), 2, np.float32)}
    kernels += [Matmul(inner, dense_view(n, v.shape), dense_view(f"p{n}", (3, v.shape[1]))) for n, v in more.items()]
    kernels += [reading(f"p{n}", v.shape[1], f"o{n}") for n, v in more.items()]
    before = plan(kernels, ["ok", "oa", "ob"], {"q": VALUES["q"], "k": VALUES["k"], **more})
    declared = {**DECLARED, **{n: Tensor(n, v.shape, "f32", True) for n, v in more.items()}}
    after = together(before, declared, {**VALUES, **more}, lambda made: calls)
    assert sum(isinstance(k, Matmul) for k in after.kernels) == 2
    for y, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)
