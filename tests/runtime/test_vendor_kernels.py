"""oneDNN primitives built from kernel data, against numpy; and the forms that are refused."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

from einnet.instantiate.kernels import Conv, Matmul, Post, View
from einnet.runtime import machine
from einnet.runtime.arena import span
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.dnnl_kernels import prepare
from einnet.runtime.cpu.measure import single
from einnet.runtime.cpu.program import Executable
from einnet.runtime.cpu.threads import limited
from tests.runtime.reference import aligned, compute, layout, run_vendor, window

pytestmark = pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available()))


def filled(*views: View | None) -> dict[str, np.ndarray]:
    """Buffers of random values that hold the views."""
    rng, sizes = np.random.default_rng(7), {}
    for v in views:
        if v:
            sizes[v.buffer] = max(span(v), sizes.get(v.buffer, 1))
    buffers = {name: aligned(n) for name, n in sizes.items()}
    for b in buffers.values():
        b[:] = rng.uniform(-1, 1, b.size)
    return buffers


def agree(kernel: Matmul | Conv, constants: tuple[str, ...] = ()) -> str:
    """Run and compare; returns the implementation's name."""
    operands = [p.operand for p in kernel.post]
    result = kernel.c if isinstance(kernel, Matmul) else kernel.y
    others = (kernel.a, kernel.b, kernel.c) if isinstance(kernel, Matmul) else (kernel.x, kernel.w, kernel.y)
    buffers = filled(*others, *operands)
    expected = compute(kernel, buffers)
    untouched = buffers[result.buffer].copy()
    name = run_vendor(kernel, buffers, constants)
    np.testing.assert_allclose(window(result, buffers), expected, rtol=2e-4, atol=2e-4)
    marks = np.ones(untouched.size, bool)
    np.lib.stride_tricks.as_strided(marks[result.offset :], result.shape, result.strides)[...] = False
    assert np.array_equal(buffers[result.buffer][marks], untouched[marks]), "wrote outside its result"
    return name


def agree_or_gemm(kernel: Matmul, constants: tuple[str, ...] = ()) -> None:
    """Compare; without AVX-512 the library has only its older product for some, which is refused for what it does wrong."""
    try:
        agree(kernel, constants)
    except Refused as e:
        if "avx512f" in machine.cpu_features() or "gemm:jit" not in str(e):
            raise


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 17, 5), (13, 1, 7), (33, 65, 31), (64, 48, 3), (5, 128, 200)])
@pytest.mark.parametrize("constants", [(), ("b",), ("a",)])
def test_matmul_of_any_operand_order(m: int, n: int, k: int, constants: tuple[str, ...]) -> None:
    for ta, tb, tc in itertools.product(((0, 1), (1, 0)), repeat=3):
        agree(Matmul(layout("a", (m, k), ta), layout("b", (k, n), tb), layout("c", (m, n), tc)), constants)


def test_matmul_leading_dimension_offset_and_column_slice() -> None:
    agree(Matmul(View("a", (8, 16), (40, 1), 3), View("b", (16, 24), (50, 1), 7), View("c", (8, 24), (64, 1), 16)), ("b",))


@pytest.mark.parametrize("constants", [(), ("b",)])
def test_batched_matmul_and_broadcast(constants: tuple[str, ...]) -> None:
    a, c = layout("a", (3, 4, 9, 10)), layout("c", (3, 4, 9, 11))
    agree(Matmul(a, layout("b", (3, 4, 10, 11)), c), constants)
    agree(Matmul(a, layout("b", (1, 1, 10, 11)), c), constants)
    agree(Matmul(a, View("b", (3, 4, 10, 11), (0, 0, 11, 1)), c), constants)
    agree(Matmul(a, layout("b", (3, 1, 10, 11)), c), constants)
    agree(Matmul(layout("a", (6, 9, 10), (1, 0, 2)), layout("b", (6, 10, 11), (0, 2, 1)), layout("c", (6, 9, 11), (1, 0, 2))), ())


ROWS = Post("add", View("o", (4, 24, 24), (576, 24, 1)))
COLUMN, BIAS = (Post(kind, View("o", (1, 1, 24), (24, 24, 1))) for kind in ("mul", "add"))
ROW = Post("add", View("o", (1, 24, 1), (24, 1, 1)))
DENSE, HEADS = [(576, 24, 1), (576, 1, 24)], [(24, 96, 1), (24, 1, 96)]
"""Strides of (heads, tokens, size): each head by itself, and as it stands in (tokens, heads, size)."""


@pytest.mark.parametrize("post", [(), (ROWS, Post("relu")), (BIAS, Post("relu")), (Post("add", View("c", (4, 24, 24), (576, 24, 1))),)])
def test_heads_whose_rows_are_interleaved_run_as_fast_as_dense_ones(post: tuple[Post, ...]) -> None:
    """(tokens, heads, size) read and written as (heads, tokens, size), without any copy, was a product of half the speed."""
    shape = (4, 24, 24)
    plain = agree(Matmul(*(View(name, shape, DENSE[0]) for name in "abc"), post))
    for a, b, c in itertools.product([*DENSE, *HEADS], [*DENSE, *HEADS], (DENSE[0], HEADS[0])):
        own = tuple(replace(p, operand=replace(p.operand, strides=c)) if p.operand and p.operand.shape == shape else p for p in post)
        assert agree(Matmul(View("a", shape, a), View("b", shape, b), View("c", shape, c), own)) == plain


@pytest.mark.parametrize("post", [(COLUMN,), (ROW, Post("tanh")), (BIAS, COLUMN)])
@pytest.mark.parametrize("lead", [(), (1,)])
def test_an_operand_that_is_broadcast_over_interleaved_results_is_refused(post: tuple[Post, ...], lead: tuple[int, ...]) -> None:
    """The library read past it, and the process ended; where the result is dense, it is read as it should be."""

    def within(v: View) -> View:
        return View(v.buffer, (*lead, *v.shape), (*(2304 for _ in lead), *v.strides))

    own = tuple(replace(p, operand=within(p.operand)) if p.operand else p for p in post)
    for a, b, c in itertools.product([*DENSE, *HEADS], [*DENSE, *HEADS], (DENSE[0], HEADS[0])):
        kernel = Matmul(*(within(View(name, (4, 24, 24), strides)) for name, strides in zip("abc", (a, b, c), strict=True)), own)
        if c == HEADS[0]:
            with pytest.raises(Refused):
                prepare(kernel)
        else:
            with contextlib.suppress(Refused):
                agree(kernel)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_windows_that_overlap_are_products_of_their_own(threads: int) -> None:
    a, c = layout("a", (2, 5, 8, 6)), layout("c", (2, 5, 8, 12))
    b = View("b", (2, 5, 6, 12), (6 * 60, 8 * 6, 1, 6))
    post = (Post("add", View("o", (1, 5, 1, 12), (60, 12, 12, 1))), Post("relu"))
    for kernel in (Matmul(a, b, c), Matmul(a, b, c, post), Matmul(View("a", (4, 8, 8), (8, 8, 1)), layout("b", (1, 8, 8)), layout("c", (4, 8, 8)))):
        buffers = filled(kernel.a, kernel.b, kernel.c, *(p.operand for p in kernel.post))
        program = Executable(single(kernel, frozenset()), threads)
        (result,) = program({name: buffers[name] for name in program.input_names}).values()
        np.testing.assert_allclose(result, compute(kernel, buffers).reshape(-1), rtol=2e-4, atol=2e-4)
    with limited(threads):
        found = prepare(Matmul(a, b, c))
    assert len(found.repeats) == 9
    assert found.shares == threads


@pytest.mark.parametrize("strides", [(68 * 12, 68, 1), (80 * 12, 80, 1), (68, 4 * 68, 1)], ids=["dense", "padded", "interleaved"])
@pytest.mark.parametrize("kind", ["add", "mul"])
def test_a_row_for_each_matrix_of_a_batch_is_right_or_refused(strides: tuple[int, ...], kind: str) -> None:
    """oneDNN's product for results with gaps takes a wrong row, or crashes; its product for dense results does not."""
    c, post = View("c", (4, 12, 68), strides), (Post(kind, View("o", (4, 1, 68), (68, 68, 1))),)
    kernel = Matmul(layout("a", (4, 12, 20)), layout("b", (4, 20, 68)), c, post)
    if strides == (68 * 12, 68, 1):
        agree_or_gemm(kernel, ("b",))
    else:
        with contextlib.suppress(Refused):
            agree(kernel, ("b",))
    agree(replace(kernel, post=(Post(kind, replace(c, buffer="o")),)), ("b",))


ELEMENTWISE = [
    Post("relu"), Post("relu", alpha=0.1), Post("tanh"), Post("sigmoid"), Post("clip", alpha=-0.3, beta=0.4), Post("linear", alpha=2.0, beta=-0.5),
]  # fmt: skip


@pytest.mark.parametrize("post", ELEMENTWISE, ids=lambda p: f"{p.kind}{p.alpha}")
def test_elementwise_posts(post: Post) -> None:
    agree(Matmul(layout("a", (12, 20)), layout("b", (20, 33)), layout("c", (12, 33)), (post,)), ("b",))
    agree(conv(post=(post,)), ("w",))


@pytest.mark.parametrize("shape", [(1, 33), (12, 1), (12, 33), (1, 1)])
@pytest.mark.parametrize("kind", ["add", "mul"])
def test_matmul_operand_posts(shape: tuple[int, int], kind: str) -> None:
    for order in ((0, 1), (1, 0)):
        post = (Post(kind, layout("o", shape, order)), Post("relu"), Post("add", layout("p", shape, order)))
        agree_or_gemm(Matmul(layout("a", (12, 20)), layout("b", (20, 33)), layout("c", (12, 33), order), post), ("b",))


def conv(
    n: int = 1, groups: int = 1, c: int = 16, f: int = 32, size: tuple[int, ...] = (9, 11), taps: tuple[int, ...] = (3, 3),
    stride: int = 1, dilation: int = 1, pads: tuple[int, int] = (1, 1), last: bool = True,
    transposed: bool = False, out_pad: int = 0, post: tuple[Post, ...] = (),
) -> Conv:  # fmt: skip
    rank = len(size)
    reach = [(t - 1) * dilation + 1 for t in taps]
    if transposed:
        out = tuple((i - 1) * stride + r - sum(pads) + out_pad for i, r in zip(size, reach, strict=True))
    else:
        out = tuple((i + sum(pads) - r) // stride + 1 for i, r in zip(size, reach, strict=True))
    order = (0, *range(2, rank + 2), 1) if last else None
    return Conv(
        layout("x", (n, groups * c, *size), order), layout("w", (groups, f, c, *taps)), layout("y", (n, groups * f, *out), order),
        (stride,) * rank, (dilation,) * rank, (pads[0],) * rank, (pads[1],) * rank, transposed, post,
    )  # fmt: skip


CONVS = [
    conv(), conv(n=2, c=3, f=5), conv(last=False), conv(stride=2), conv(stride=2, pads=(0, 1)), conv(dilation=2, pads=(2, 2)),
    conv(taps=(1, 1), pads=(0, 0)), conv(taps=(5, 1), pads=(0, 0)), conv(taps=(7, 7), pads=(3, 3), stride=2, c=3, f=64),
    conv(groups=4, c=8, f=8), conv(groups=16, c=1, f=1),
    conv(size=(13,), taps=(3,)), conv(size=(5, 6, 7), taps=(3, 3, 3)), conv(pads=(2, 0)), conv(pads=(-1, 2), taps=(3, 3), n=1),
    conv(taps=(1, 1), pads=(0, 0), stride=3),
    conv(f=1), conv(groups=2, c=3, f=5, n=2), conv(size=(1, 1), taps=(1, 1), pads=(0, 0), n=3),
]  # fmt: skip


@pytest.mark.parametrize("kernel", CONVS, ids=lambda k: f"x{k.x.shape} w{k.w.shape} s{k.strides[0]} p{k.pads_begin[0]}")
def test_convolution(kernel: Conv) -> None:
    try:
        agree(kernel, ("w",))
    except Refused:
        assert kernel.pads_begin[0] < 0, "only a cut input may be refused"


TRANSPOSED = [
    conv(transposed=True, stride=2, taps=(4, 4), size=(4, 5)), conv(transposed=True, stride=1, size=(4, 5)),
    conv(transposed=True, stride=2, out_pad=1, size=(4, 5)), conv(transposed=True, stride=2, taps=(4, 4), size=(4, 4), f=3, last=False),
    conv(transposed=True, groups=2, c=8, f=8, stride=2, size=(4, 4)), conv(transposed=True, taps=(4, 4), pads=(0, 0), size=(1, 1), c=64),
    conv(transposed=True, dilation=2, size=(4, 5)), conv(transposed=True, size=(6,), taps=(3,), stride=2),
    conv(transposed=True, taps=(9, 9), pads=(4, 4), stride=4, out_pad=3, size=(5, 5), f=1),
    conv(transposed=True, stride=2, pads=(0, 1), size=(4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("kernel", TRANSPOSED, ids=lambda k: f"x{k.x.shape} w{k.w.shape} s{k.strides[0]} y{k.y.shape}")
def test_transposed_convolution(kernel: Conv) -> None:
    agree(kernel, ("w",))


def test_convolution_weights_in_any_order_and_bias_residual_relu() -> None:
    kernel = conv()
    bias = Post("add", View("bias", (1, 32, 1, 1), (32, 1, 1, 1)))
    residual = Post("add", View("res", kernel.y.shape, kernel.y.strides))
    w = View("w", (1, 32, 16, 3, 3), (1, 1, 32, 3 * 16 * 32, 16 * 32))
    for post in ((bias,), (residual,), (bias, residual, Post("relu")), (residual, bias), (Post("relu"), bias)):
        agree(Conv(kernel.x, w, kernel.y, kernel.strides, kernel.dilations, kernel.pads_begin, kernel.pads_end, post=post), ("w",))


def test_sum_in_place() -> None:
    kernel = conv()
    agree(Conv(kernel.x, kernel.w, kernel.y, (1, 1), (1, 1), (1, 1), (1, 1), post=(Post("add", kernel.y), Post("relu"))), ("w",))


REFUSED = {
    "overlapping rows": Matmul(View("a", (8, 16), (8, 1)), layout("b", (16, 8)), layout("c", (8, 8))),
    "overlapping result": Matmul(layout("a", (8, 16)), layout("b", (16, 8)), View("c", (8, 8), (4, 1))),
    "batch innermost": Matmul(layout("a", (6, 9, 10)), layout("b", (6, 10, 11), (1, 2, 0)), layout("c", (6, 9, 11))),
    "operand in another order": Matmul(layout("a", (8, 8)), layout("b", (8, 8)), layout("c", (8, 8)), (Post("add", layout("o", (8, 8), (1, 0))),)),
    "no contiguous result": Matmul(layout("a", (8, 8)), layout("b", (8, 8)), View("c", (8, 8), (100, 2))),
    "no unit stride": Matmul(View("a", (8, 8), (100, 2)), layout("b", (8, 8)), layout("c", (8, 8))),
    "interior of a padded buffer": replace(conv(), x=View("x", (1, 16, 9, 11), (2000, 1, 160, 16), 176)),
    "channel slice as destination": replace(conv(), y=View("y", (1, 32, 9, 11), (99 * 70, 1, 11 * 70, 70), 3)),
    "post operand does not broadcast": Matmul(layout("a", (8, 8)), layout("b", (8, 8)), layout("c", (8, 8)), (Post("add", layout("o", (4, 8))),)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(Refused) as e:
        prepare(REFUSED[name], ("w",))
    assert str(e.value)


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dnnl, "candidates", list)
    dnnl.library.cache_clear()
    try:
        assert "onednn-cpu-gomp" in str(dnnl.available())
        monkeypatch.setattr(dnnl, "candidates", lambda: ["/nowhere/libdnnl.so.3"])
        assert "/nowhere/libdnnl.so.3" in str(dnnl.available())
    finally:
        dnnl.library.cache_clear()
