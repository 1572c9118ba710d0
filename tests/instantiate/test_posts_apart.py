"""Functions of results by kernels of their own: the same numbers, only where that is measured to gain, and what has to stay."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf

import numpy as np
import pytest

from einnet.compile.targets.cpu.programs import built
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Kernel, Matmul, Plan, Post, VendorKernel, View, dense_view
from einnet.instantiate.kernels.posts import U8
from einnet.instantiate.posts_apart import IN_VAIN, apart, posts_apart
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.program import Executable
from einnet.runtime.cpu.roofline import NEAR, traffic

ROWS, INNER, COLUMNS = 6, 8, 16
SWISH = Post("swish", None, 1.0)
BIAS = Post("add", View("bias", (1, COLUMNS), (0, 1)))
SCALE = Post("mul", View("scale", (1, COLUMNS), (0, 1)))
REST = Post("add", dense_view("rest", (ROWS, COLUMNS)))


def product(*posts: Post) -> Matmul:
    return Matmul(dense_view("x", (ROWS, INNER)), dense_view("w", (INNER, COLUMNS)), dense_view("y", (ROWS, COLUMNS)), post=posts)


def image(buffer: str, n: int, c: int, h: int, w: int) -> View:
    """Channels last."""
    return View(buffer, (n, c, h, w), (c * h * w, 1, c * w, c))


def convolution(*posts: Post) -> Conv:
    """3x3 of a 2x3 image with 8 channels."""
    w = View("w", (1, COLUMNS, 8, 3, 3), (1152, 72, 9, 3, 1))
    pads = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    return Conv(image("x", 1, 8, 2, 3), w, image("y", 1, COLUMNS, 2, 3), strides=(1, 1), dilations=(1, 1), **pads, post=posts)


def plan(*kernels: VendorKernel) -> Plan:
    """The kernels over buffers as large as their views; `w` is constant, `y` given out."""
    sizes: dict[str, int] = {}
    for v in (v for k in kernels for v in (*k.operand_views, *k.result_views)):
        sizes[v.buffer] = max(sizes.get(v.buffer, 0), 1 + v.offset + sum((n - 1) * s for n, s in zip(v.shape, v.strides)))
    roles = {name: {"w": "constant", "y": "output"}.get(name, "input") for name in sizes}
    whole = {name: View(name, (size,), (1,)) for name, size in sizes.items()}
    buffers = tuple(Buffer(name, size, "f32", roles[name]) for name, size in sizes.items())
    inputs = tuple((name, view) for name, view in whole.items() if roles[name] == "input")
    constants = {"w": np.random.default_rng(0).standard_normal(sizes["w"]).astype(np.float32)}
    return Plan(buffers, kernels, inputs, (("y", whole["y"]),), constants)


def slow_functions(kernels: Sequence[Kernel]) -> list[float | None]:
    """A library whose functions cost more than all else."""
    return [10.0 if any(p.operand is None and p.kind != "linear" for p in k.posts) else 1.0 for k in kernels]


def nothing(kernel: Kernel) -> float:
    return 0.0


def run(p: Plan) -> np.ndarray:
    rng = np.random.default_rng(1)
    (y,) = Executable(p, 1).run(*(rng.standard_normal(v.shape).astype(np.float32) for _, v in p.inputs))
    return y


@pytest.mark.parametrize(
    ("kernel", "left"),
    [
        (product(SWISH), ()), (product(BIAS, SWISH), (BIAS,)), (product(BIAS, SWISH, SCALE, REST), (BIAS,)),
        (product(REST, Post("sigmoid"), SCALE), (REST,)),
        (product(Post("linear", None, 2.0, 1.0), Post("clip", None, 0.0, 6.0)), (Post("linear", None, 2.0, 1.0),)),
        (convolution(SWISH, Post("add", image("rest", 1, COLUMNS, 2, 3))), ()),
        (product(BIAS, Post("hardswish", None, Fraction(1, 6), Fraction(1, 2))), (BIAS,)), (product(Post("relu", None, Fraction(1, 100))), ()),
        (convolution(Post("hardswish", None, 0.25, 0.5), Post("mul", View("scale", (1, COLUMNS, 1, 1), (1, 1, 1, 1)))), ()),
    ],
)  # fmt: skip
def test_two_kernels_and_the_same_numbers(kernel: VendorKernel, left: tuple[Post, ...]) -> None:
    before = plan(kernel)
    after = posts_apart(before, slow_functions, nothing)
    first, second = after.kernels
    assert isinstance(second, EOperator)
    assert first.posts == left
    np.testing.assert_allclose(run(after), run(before), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("seconds", [None, inf, 1.0])
def test_nothing_changes_without_a_measured_gain(seconds: float | None) -> None:
    before = plan(product(SWISH))
    assert posts_apart(before, lambda kernels: [seconds for _ in kernels], nothing).kernels == before.kernels


def test_a_little_is_no_gain() -> None:
    def times(whole: float) -> tuple[Kernel, ...]:
        return posts_apart(plan(product(SWISH)), lambda kernels: [whole if k.posts else 1.0 for k in kernels], nothing).kernels

    assert len(times(2.05)) == 1
    assert len(times(2.07)) == 2


def test_what_cannot_gain_is_not_compiled() -> None:
    """Where the library takes less for its function than moving the result takes, the generated kernel is not measured."""
    asked: list[Kernel] = []

    def measured(kernels: Sequence[Kernel]) -> list[float | None]:
        asked.extend(kernels)
        return slow_functions(kernels)

    before = plan(product(SWISH))
    assert posts_apart(before, measured, lambda kernel: 9.0).kernels == before.kernels
    assert asked == [product(SWISH), product()]
    asked.clear()
    posts_apart(before, measured, lambda kernel: 8.0)
    assert isinstance(asked[-1], EOperator)
    assert asked[-1].out.buffer not in {v.buffer for v in asked[-1].operand_views}


def test_after_a_few_in_vain_smaller_ones_of_that_kind_are_not_tried() -> None:
    """The largest are tried first; other functions, and other operators, are not concerned."""
    asked: list[Kernel] = []

    def measured(kernels: Sequence[Kernel]) -> list[float | None]:
        asked.extend(kernels)
        return [1.0 for _ in kernels]

    def rows(n: int, post: Post) -> Matmul:
        return Matmul(dense_view("x", (n, INNER)), dense_view("w", (INNER, COLUMNS)), dense_view("y", (n, COLUMNS)), post=(post,))

    tried = [rows(n, SWISH) for n in range(1, IN_VAIN + 3)]
    posts_apart(plan(*tried, rows(1, Post("sigmoid")), convolution(SWISH)), measured, nothing)
    whole = [k for k in asked if k.posts]
    assert [k for k in whole if k in tried] == tried[: -IN_VAIN - 1 : -1]
    assert {rows(1, Post("sigmoid")), convolution(SWISH)} <= set(whole)


@pytest.mark.parametrize(
    "posts",
    [
        (), (BIAS, REST), (Post("linear", None, 2.0),), (Post(U8, None, 0.1, 3.0),),
        (SWISH, Post("add", dense_view("y", (ROWS, COLUMNS)))),
    ],
)  # fmt: skip
def test_what_stays(posts: tuple[Post, ...]) -> None:
    """Nothing but sums and products, bytes, and what a function's value is added to where it stands."""
    assert apart(product(*posts)) is None


def test_what_was_added_before_may_stand_in_the_result() -> None:
    here = Post("add", dense_view("y", (ROWS, COLUMNS)))
    pair = apart(product(here, SWISH))
    assert pair is not None
    assert pair[0].posts == (here,)


class Told(CpuCost):
    """Costs of such a library."""

    def like(self, plan: Plan, measure: bool = False) -> CpuCost:
        return self

    def measured(self, kernels: Sequence[Kernel], until: float = inf) -> list[float | None]:
        return slow_functions(kernels)


def test_programs_have_functions_apart() -> None:
    program = built(plan(product(BIAS, SWISH)), Told(1), strict=True)
    assert [type(k) for k in program.plan.kernels] == [Matmul, EOperator]


def test_what_a_core_has_at_hand_moves_no_faster_than_all_else() -> None:
    """The bound below which nothing is compiled is one of the nearest cache: no estimate of a kernel is below it."""
    cost = CpuCost(1, measure=False)
    for rows in (6, 6000):
        y = dense_view("y", (rows, COLUMNS))
        pair = apart(Matmul(dense_view("x", (rows, INNER)), dense_view("w", (INNER, COLUMNS)), y, post=(SWISH,)))
        assert pair is not None
        assert 0 < cost.moving(pair[1]) <= traffic(pair[1], cost.machine) + cost.machine.launch
        assert cost.moving(pair[1]) >= traffic(pair[1], cost.machine) / NEAR
