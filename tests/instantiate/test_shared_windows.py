"""Windows of one tensor that several kernels compute: once, and read where they stand in the whole."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.derivation.rules.triangle import triangle
from einnet.expr.nodes import Scope, nested
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.build import build
from einnet.instantiate.kernels import Buffer, EOperator, Matmul, dense_view
from einnet.instantiate.shared_windows import shared_windows
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import execute, integers

DECLARED = "A : f32[16,16]\nB : f32[16,16]\n"
LOWER = "{L[m<16,n<16] select(m-n>=0, A[m,n], 0)}"
PRODUCT = f"{DECLARED}L[m<16,n<16] Σ[k<16] {LOWER}[m,k]*{{L[m<16,n<16] exp(B[m,n])}}[k,n]"


def blocks() -> Scope:
    """Four blocks of rows of a triangle times what is computed: each reads other rows of the first, and more of the second than the one before."""
    (found,) = (r.scope for r in triangle.rewrites(parse(PRODUCT)) if r.parameters == "m in 4")
    return found


def test_blocks_compute_what_all_of_them_read_once() -> None:
    """The rows of the triangle are apart, so that each block computes its own."""
    source = blocks()
    forms = [f for f in Space(Options(max_depth=0)).forms(source) if len(f.matches) == 4]
    assert forms and len(nested(source)) == 4
    made = build(forms[0].tree, dict(forms[0].matches), "out")
    masks = [k for k in made.kernels if isinstance(k, EOperator)]
    assert sorted("select" in str(k.scope) for k in masks) == [False, True, True, True, True]
    assert sum(isinstance(k, Matmul) for k in made.kernels) == 4
    values = integers(source)
    buffers = {n: np.asarray(v, dtype=np.float64).reshape(-1) for n, v in values.items()}
    buffers |= {n: np.zeros(b.size) for n, b in made.temporaries.items()} | {"out": np.zeros(256)}
    for k in made.kernels:
        execute(k, buffers)
    np.testing.assert_allclose(buffers["out"].reshape(16, 16), evaluate(parse(PRODUCT), values), rtol=1e-9)


def window(name: str, box: str, body: str = "A[m,n]") -> EOperator:
    scope = parse(f"{DECLARED}L[{box}] exp({body})")
    return EOperator(scope, ((body[0], dense_view(body[0], (16, 16))),), dense_view(name, scope.shape))


def reader(name: str, shape: tuple[int, int]) -> EOperator:
    scope = parse(f"{name} : f32[{shape[0]},{shape[1]}]\nL[m<{shape[0]}] Σ[n<{shape[1]}] {name}[m,n]")
    return EOperator(scope, ((name, dense_view(name, shape)),), dense_view("out", scope.shape))


@pytest.mark.parametrize(("first", "second", "count"), [
    (window("x", "m<8,n<16"), window("y", "m<16,n<4"), 4), (window("x", "m<12,n<16"), window("y", "4<=m<16,n<16"), 3),
    (window("x", "m<16,n<16"), window("y", "m<16,n<16", "B[m,n]"), 4), (window("x", "m<16,n<16"), window("y", "m<16,n<16", "A[n,m]"), 4),
    (window("x", "m<4,n<16"), window("y", "4<=m<16,n<16"), 3), (window("x", "m<4,n<16"), window("y", "8<=m<16,n<16"), 4),
])  # fmt: skip
def test_windows_are_computed_once_where_their_box_has_no_more_elements(first: EOperator, second: EOperator, count: int) -> None:
    kernels = [first, reader("x", first.scope.shape), second, reader("y", second.scope.shape)]
    temporaries = {k.out.buffer: Buffer(k.out.buffer, int(np.prod(k.scope.shape)), "f32", "temporary") for k in (first, second)}
    made, buffers = shared_windows(kernels, temporaries)
    assert len(made) == count and len(buffers) == count - 2
    values = {n: np.arange(256.0) * (1 if n == "A" else 2) / 256 for n in "AB"}

    def results(kernels: list[EOperator], sizes: dict[str, int]) -> list[np.ndarray]:
        held = values | {n: np.zeros(size) for n, size in sizes.items()} | {"out": np.zeros(16)}
        found = []
        for k in kernels:
            execute(k, held)
            found += [held["out"].copy()] if k.out.buffer == "out" else []
        return found

    before = results(kernels, {n: b.size for n, b in temporaries.items()})
    after = results([k for k in made if isinstance(k, EOperator)], {n: b.size for n, b in buffers.items()})
    np.testing.assert_array_equal(before, after)


def test_what_is_written_in_between_is_read_again() -> None:
    """The operand of the windows is another kernel's result, written once more before the second of them."""
    kernels = [window("x", "m<16,n<16"), reader("x", (16, 16)), window("A", "m<16,n<16", "B[m,n]"), window("y", "m<16,n<16"), reader("y", (16, 16))]
    temporaries = {n: Buffer(n, 256, "f32", "temporary") for n in "xyA"}
    assert shared_windows(kernels, temporaries) == (kernels, temporaries)
