"""Which kernels of a plan are run alone: one of each kind."""

from __future__ import annotations

from dataclasses import replace

from einnet.evidence.exercise import distinct
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, Plan, View, dense_view

X, W, Y = View("x", (4, 8), (8, 1)), View("w", (8, 4), (4, 1)), View("y", (4, 4), (4, 1))
PRODUCT = Matmul(X, W, Y)
SIZES = {"x": 512, "w": 512, "y": 512, "z": 512, "small": 64}


def places(*kernels: Kernel) -> list[int]:
    buffers = tuple(Buffer(name, size, "f32", "temporary") for name, size in SIZES.items())
    return list(distinct(Plan(buffers, kernels, (), (), {})))


def moved(kernel: Matmul, **offsets: int) -> Matmul:
    return replace(kernel, **{name: replace(getattr(kernel, name), offset=offset) for name, offset in offsets.items()})


def test_products_that_start_elsewhere_are_alike() -> None:
    others = [moved(PRODUCT, a=n, b=m, c=k) for n, m, k in ((32, 0, 0), (0, 64, 16), (96, 32, 48))]
    assert places(PRODUCT, *others, replace(PRODUCT, c=replace(Y, buffer="z"))) == [0]


def test_what_differs_in_more_is_not() -> None:
    others = [
        moved(PRODUCT, a=8),
        moved(PRODUCT, c=4),
        replace(PRODUCT, a=replace(X, strides=(16, 1))),
        replace(PRODUCT, a=replace(X, buffer="small")),
        replace(PRODUCT, c=View("x", (4, 4), (4, 1), 64)),
        replace(PRODUCT, c=View("x", (4, 4), (4, 1), 128)),
    ]
    assert places(PRODUCT, *others) == list(range(len(others) + 1))


def test_generated_code_has_places_in_it() -> None:
    scope = parse("A : f32[8]\nL[i<8] 2*A[i]")
    kernels = [EOperator(scope, (("A", replace(dense_view("x", (8,)), offset=16 * n)),), dense_view("y", (8,))) for n in range(3)]
    assert places(*kernels) == [0, 1, 2]
