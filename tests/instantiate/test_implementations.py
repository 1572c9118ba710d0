"""Contractions by another of the library's implementations: the same numbers, only where that gains, and told when a program is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from einnet.instantiate import implementations as pass_
from einnet.instantiate.implementations import IN_VAIN, best_made
from einnet.instantiate.kernels import Buffer, Conv, Kernel, Matmul, Plan, Post, VendorKernel, View, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.instantiate.kernels.contractions import Contraction, as_convolution
from einnet.runtime import machine
from einnet.runtime.cpu.dnnl_kernels import prepare, refusal
from einnet.runtime.cpu.implementations import implementations
from einnet.runtime.cpu.program import Executable
from einnet.runtime.cpu.threads import limited

ROWS, INNER, COLUMNS, SIDE = 35, 24, 40, 7
BIAS = Post("add", View("bias", (1, COLUMNS), (COLUMNS, 1)))
REST = Post("add", dense_view("rest", (ROWS, COLUMNS)))
PER_ROW = Post("mul", View("scale", (ROWS, 1), (1, 1)))
RELU = Post("relu")


def product(*posts: Post) -> Matmul:
    return Matmul(dense_view("x", (ROWS, INNER)), dense_view("w", (INNER, COLUMNS)), dense_view("y", (ROWS, COLUMNS)), post=posts)


def turned(*posts: Post) -> Matmul:
    """With weights that have the columns first."""
    return replace(product(*posts), b=View("w", (INNER, COLUMNS), (1, INNER)))


def image(buffer: str, channels: int) -> View:
    """Channels last."""
    return View(buffer, (1, channels, SIDE, SIDE), (SIDE * SIDE * channels, 1, SIDE * channels, channels))


def convolution(groups: int, *posts: Post) -> Conv:
    """3x3 with a border."""
    inner, outer = INNER // groups, INNER // groups
    w = View("w", (groups, outer, inner, 3, 3), (outer * inner * 9, inner * 9, 9, 3, 1))
    return Conv(image("x", INNER), w, image("y", INNER), (1, 1), (1, 1), (1, 1), (1, 1), post=posts)


KERNELS = {
    "product": product(), "product, bias, function": product(BIAS, RELU), "product, residual": product(REST),
    "product, bias, residual": product(BIAS, REST, RELU), "product, a number for each row": product(PER_ROW),
    "weights by columns": turned(BIAS), "convolution": convolution(1, RELU), "groups": convolution(3), "each channel": convolution(INNER, RELU),
}  # fmt: skip


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


def run(p: Plan) -> np.ndarray:
    rng = np.random.default_rng(1)
    (y,) = Executable(p, 1, strict=True).run(*(rng.standard_normal(v.shape).astype(np.float32) for _, v in p.inputs))
    return y


def names(kernel: VendorKernel) -> list[str]:
    with limited(1):
        return implementations(kernel, {"w"})


@pytest.mark.parametrize("arithmetic", [a.name for a in ARITHMETICS.values() if a.short and not a.missing(machine.cpu_features())] + ["f32"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_implementation_gives_the_same_numbers(name: str, arithmetic: str) -> None:
    """In shorter arithmetics, too: factors are rounded once, and sums are of float32."""
    kernel = KERNELS[name].in_arithmetic(ARITHMETICS[arithmetic])
    if refusal(kernel, {"w"}):
        pytest.skip(f"no such product in {arithmetic}")
    expected = run(plan(kernel))
    for other in names(kernel):
        made = kernel.made_by(other)
        with limited(1):
            assert prepare(made, {"w"}).implementation == other
        assert np.allclose(run(plan(made)), expected, rtol=1e-4, atol=1e-4)


def test_products_and_convolutions_have_others() -> None:
    first = [prepare(KERNELS[name], {"w"}).implementation for name in ("product", "each channel")]
    found = [names(KERNELS[name]) for name in ("product", "each channel")]
    assert all(found)
    assert all("1x1" in other for other in found[0])
    assert not any("ref" in other or "gemm" in other or own in others for own, others in zip(first, found) for other in others)


def test_what_is_no_product_of_rows_with_constants_is_no_convolution() -> None:
    kernel = product()
    gaps = replace(kernel, a=View("x", (ROWS, INNER), (INNER + 1, 1)))
    batch = Matmul(dense_view("x", (2, ROWS, INNER)), dense_view("w", (2, INNER, COLUMNS)), dense_view("y", (2, ROWS, COLUMNS)))
    rounded, whole = (kernel.in_arithmetic(ARITHMETICS[name]) for name in ("bf16", "u8i8"))
    found = [as_convolution(k, {"w"}) for k in (kernel, rounded)]
    assert [c and c.arithmetic for c in found] == [kernel.arithmetic, rounded.arithmetic]
    assert [as_convolution(k, {"w"}) for k in (gaps, batch, whole)] == [None] * 3
    assert as_convolution(kernel, ()) is None


def test_a_name_that_the_library_does_not_have_is_passed_over() -> None:
    kernel = product(BIAS)
    with limited(1):
        assert prepare(kernel.made_by("jit_1x1:another"), {"w"}).implementation == prepare(kernel, {"w"}).implementation


def test_a_stored_kernel_has_its_implementation_and_another_arithmetic_none() -> None:
    for kernel in (product(BIAS), convolution(1)):
        made = kernel.made_by("jit_1x1:avx2")
        store, model = (lambda _: 0), (lambda _: b"")
        assert type(kernel).read(made.json(store), model) == made
        assert "by" not in kernel.json(store)
        assert made.attributes() != kernel.attributes()
        assert made.with_posts(()).by == made.by
        assert made.in_arithmetic(ARITHMETICS["bf16"]).by == ""


def measured(seconds: dict[str, float | None]) -> pass_.Measured:
    return lambda kernels: [seconds[k.by] for k in kernels if isinstance(k, Contraction)]


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        ({"": 1.0, "a": 0.9, "b": 0.8}, "b"), ({"": 1.0, "a": 0.98, "b": 1.2}, ""), ({"": 1.0, "a": None, "b": 0.5}, "b"),
        ({"": None, "a": 0.5, "b": 0.4}, ""), ({"": 1.0, "a": inf, "b": inf}, ""), ({"": inf, "a": 0.5, "b": 0.4}, ""),
    ],
)  # fmt: skip
def test_the_fastest_is_taken_where_it_surely_gains(seconds: dict[str, float | None], wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_, "SMALL", 0)
    (kernel,) = best_made(plan(product(BIAS)), measured(seconds), lambda _: ["a", "b"]).kernels
    assert kernel == product(BIAS).made_by(wanted)


def test_small_kernels_and_those_of_a_kind_that_never_gains_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Kernel] = []

    def slower(kernels: Sequence[Kernel]) -> list[float | None]:
        asked.append(kernels[0])
        return [float(n) for n, _ in enumerate(kernels, 1)]

    many = [replace(product(), c=dense_view(f"y{n}", (ROWS, COLUMNS))) for n in range(IN_VAIN + 2)]
    p = plan(product(), *many)
    assert best_made(p, slower, lambda _: ["a"]).kernels == p.kernels
    assert not asked
    monkeypatch.setattr(pass_, "SMALL", 0)
    assert best_made(p, slower, lambda _: ["a"]).kernels == p.kernels
    assert len(asked) == IN_VAIN
