"""Constant weights of the library's older product: rows that would fall into few sets of the cache are laid further apart."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.instantiate.kernels import Matmul, Plan, View
from einnet.instantiate.kernels.plan import Buffer
from einnet.runtime.cpu.dnnl import Desc
from einnet.runtime.cpu.dnnl_kernels import _rows_apart, prepare
from einnet.runtime.cpu.program import Executable


def dense(buffer: str, *shape: int) -> View:
    """A row-major view of a whole buffer."""
    return View(buffer, shape, tuple(int(np.prod(shape[n + 1 :])) for n in range(len(shape))), 0)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((64, 256), (272, 1)), ((3, 64, 128), (64 * 144, 144, 1)), ((2, 3, 4, 384), (12 * 400, 4 * 400, 400, 1)),
     ((64, 200), None), ((64, 64), None), ((1, 256), None)],
)  # fmt: skip
def test_rows_are_an_odd_number_of_lines_apart(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    found = _rows_apart(dense("w", *shape))
    if strides is None:
        assert found is None
    else:
        assert found == Desc.strided(shape, strides)
        assert strides[-2] // 16 % 2 == 1


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("turned", [False, True])
def test_the_product_is_the_same(batch: tuple[int, ...], turned: bool) -> None:
    """Weights to the right and to the left of what is multiplied by them, and a batch of both."""
    m, k, n = 40, 256, 128
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((*batch, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
    if turned:
        x, w = np.swapaxes(x, -1, -2).copy(), np.swapaxes(w, -1, -2).copy()
    wanted = w @ x if turned else x @ w
    a, b = dense("x", *x.shape), dense("w", *w.shape)
    kernel = Matmul(b, a, dense("y", *wanted.shape)) if turned else Matmul(a, b, dense("y", *wanted.shape))
    roles = {"x": (x, "input"), "w": (w, "constant"), "y": (wanted, "output")}
    buffers = tuple(Buffer(name, array.size, "f32", role) for name, (array, role) in roles.items())
    plan = Plan(buffers, (kernel,), (("x", a),), (("y", kernel.c),), {"w": w.reshape(-1)})
    (y,) = Executable(plan, 1).run(x)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    prepared = prepare(kernel, {"w"})
    if prepared.implementation.startswith("gemm") and not turned:
        assert prepared.packed is not None and prepared.packed.target.nbytes >= 4 * (w.size // n - 1) * (n + 16)
