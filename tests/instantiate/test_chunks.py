"""Kernels run part by part: the same numbers from smaller temporaries, and what cannot be divided."""

from __future__ import annotations

import numpy as np
import pytest

from einnet.expr.nodes import Scope, tensors
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate import chunks
from einnet.instantiate.build import builds
from einnet.instantiate.chunks import Digit, chunked, core, covering, cuts, divided, shrunk
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Matmul, View, anchored, dense_view
from einnet.instantiate.restrict import Undivided, restricted
from einnet.search.space import Options, Space
from tests.instantiate.numpy_kernels import execute, integers

CONVOLUTION = """A : f32[6,8,8,16]
K : weight f32[3,3,16,16]
R : f32[6,8,8,16]
b : weight f32[16]
L[n<6,h<8,w<8,f<16] relu({L[n<6,h<8,w<8,f<16] Σ[c<16,r<3,s<3] A[n,h+r-1,w+s-1,c]*K[r,s,c,f]}[n,h,w,f]+b[f]+R[n,h,w,f])"""


def kernels_of(text: str, monkeypatch: pytest.MonkeyPatch, cached: int) -> tuple[Scope, list[tuple[object, object]]]:
    """All builds of the bilinear forms, whole and part by part, with caches of that many bytes."""
    monkeypatch.setattr(chunks, "CACHED", cached)
    source = parse(text)
    found = []
    for form in Space(Options(max_depth=1, rules=("bilinear",))).forms(source):
        found += [tuple(builds(form.tree, dict(form.matches), "out", epilogues)) for epilogues in (True, False)]
    return source, [pair for pair in found if len(pair) == 2]


def test_parts_compute_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    source, pairs = kernels_of(CONVOLUTION, monkeypatch, 60_000)
    assert pairs
    values = integers(source)
    wanted = evaluate(source, values)
    for whole, parted in pairs:
        count = len(parted.kernels) // len(whole.kernels)
        assert count in (2, 3, 6)
        assert count * sum(b.size for b in parted.temporaries.values()) < 1.5 * sum(b.size for b in whole.temporaries.values())
        buffers = {n: np.asarray(v, dtype=np.float64).reshape(-1) for n, v in values.items()}
        buffers.update({n: np.asarray(evaluate(s, values), dtype=np.float64).reshape(-1) for n, s in parted.weights.items()})
        buffers.update({n: np.zeros(b.size) for n, b in parted.temporaries.items()})
        buffers["out"] = np.zeros(wanted.size)
        for k in parted.kernels:
            buffers.update(constants(k))
            execute(k, buffers)
        np.testing.assert_allclose(buffers["out"].reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9)


def constants(kernel: object) -> dict[str, np.ndarray]:
    """Tensors of an eOperator that carry their values, under the names of their buffers."""
    if not isinstance(kernel, EOperator):
        return {}
    views = dict(kernel.operands)
    return {views[n].buffer: np.array([float(v) for v in t.values]) for n, t in tensors(kernel.scope).items() if t.values is not None}


def test_parts_differ_by_where_they_lie_only(monkeypatch: pytest.MonkeyPatch) -> None:
    _, pairs = kernels_of(CONVOLUTION, monkeypatch, 60_000)
    for whole, parted in pairs:
        assert len({anchored(k) for k in parted.kernels}) == len(whole.kernels)


def test_what_fits_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels_of(CONVOLUTION, monkeypatch, 1 << 30)[1] == []


def test_the_fewest_parts_that_fit() -> None:
    size = 10 * chunks.CACHED
    assert [[n for _, n in cuts(size, [Digit(1, extent)])] for extent in (16, 12, 10, 7, 5)] == [[16], [12], [10], [], []]
    assert [n for _, n in cuts(size, [Digit(16, 4), Digit(1, 16)])] == [4, 4]
    assert [n for _, n in cuts(size, [Digit(16, 1), Digit(1, 16)])] == [16]
    assert cuts(chunks.CACHED, [Digit(1, 16)]) == []


def attention() -> list[Kernel]:
    """A product, what is done to each of its rows, a copy of another operand, a product with that, and what is done to the result."""
    scope = parse("T : f32[2,8,6]\nL[b<2,m<8,t<6] select(2*m-t>=0, T[b,m,t], 0) / {L[b<2,m<8] max[t<6] select(2*m-t>=0, T[b,m,t], 1)}[b,m]")
    copy = parse("V : f32[2,8,4]\nL[b<2,t<6,n<4] V[b,t,n]")
    turned = parse("R : f32[2,8,4]\nL[b<2,n<4,m<8] R[b,m,n]+1")
    rows, columns = View("s", (2, 8, 4), (32, 4, 1)), View("s", (2, 4, 6), (32, 1, 4))
    return [
        Matmul(rows, columns, dense_view("t", (2, 8, 6))),
        EOperator(scope, (("T", dense_view("t", (2, 8, 6))),), dense_view("p", (2, 8, 6))),
        EOperator(copy, (("V", dense_view("v", (2, 8, 4))),), dense_view("w", (2, 6, 4))),
        Matmul(dense_view("p", (2, 8, 6)), dense_view("w", (2, 6, 4)), dense_view("r", (2, 8, 4))),
        EOperator(turned, (("R", dense_view("r", (2, 8, 4))),), dense_view("out", (2, 4, 8))),
    ]


def computed(kernels: list[Kernel], sizes: dict[str, int]) -> np.ndarray:
    """The result of `attention`, or of its parts, for inputs that repeat."""
    generator = np.random.default_rng(3)
    buffers = {"s": generator.standard_normal(64), "v": generator.standard_normal(64), "out": np.zeros(64)}
    buffers.update({name: np.full(size, np.nan) for name, size in sizes.items()})
    for k in kernels:
        execute(k, buffers)
    return buffers["out"]


@pytest.mark.parametrize(("cached", "parts"), [(400, 2), (200, 4), (100, 8), (48, 16)])
def test_the_kernels_around_the_largest_temporaries_run_block_by_block(monkeypatch: pytest.MonkeyPatch, cached: int, parts: int) -> None:
    sizes = {"t": 96, "p": 96, "w": 48, "r": 64}
    whole = attention()
    monkeypatch.setattr(chunks, "CACHED", cached)
    made = chunked(whole, {n: Buffer(n, sizes[n], "f32", "temporary") for n in "tp"})
    assert made is not None
    kernels, small = made
    assert len(kernels) == 2 + 3 * parts
    assert {n: b.size for n, b in small.items()} == {"t": 96 // parts, "p": 96 // parts}
    np.testing.assert_allclose(computed(kernels, {**sizes, "t": 96 // parts, "p": 96 // parts}), computed(whole, sizes), rtol=1e-12)


def test_conditions_that_always_hold_in_a_part_are_gone() -> None:
    scope = attention()[1]
    assert isinstance(scope, EOperator)
    parts = [restricted(scope.scope, 1, 4, n)[0] for n in range(4)]
    assert "select" in parts[0].text()
    assert "select" not in parts[3].text()
    assert parts[2].text() != parts[0].text()


def test_what_the_largest_temporaries_do_not_need_comes_before() -> None:
    kernels = attention()
    sizes = {"t": 96, "p": 96, "w": 40, "r": 64}
    before, chosen, after = core(kernels, {n: Buffer(n, size, "f32", "temporary") for n, size in sizes.items() if n != "r"})
    assert (before, chosen, after) == ([kernels[2]], [kernels[0], kernels[1], kernels[3]], [kernels[4]])
    assert core(kernels, {}) == (kernels, [], [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A : f32[6,4]\nL[n<6,c<4] A[5-n,c]", "stand alone"),
        ("A : f32[8,4]\nL[n<6,c<4] A[n,c]", "stand alone"),
        ("A : f32[6,6]\nL[n<6] A[n,n]", "stand alone"),
        ("A : f32[6,6]\nL[n<6,m<6] A[n,m]*A[m,n]", "two ways"),
        ("A : f32[6]\nL[n<6] A[n]*{L[] Σ[m<6] A[m]}[]", "as a whole"),
        ("A : f32[7]\nL[-1<=n<5] A[n]", "cannot be divided"),
    ],
)
def test_a_loop_that_cannot_be_divided(text: str, why: str) -> None:
    with pytest.raises(Undivided, match=why):
        restricted(parse(text), 0, 2)


def test_nested_scopes_are_restricted() -> None:
    small, dims = restricted(parse("A : f32[6,4]\nB : f32[4]\nL[n<6,c<4] B[c]*{L[n<6] Σ[k<4] A[n,k]}[n]"), 0, 3)
    assert small.text() == parse("A : f32[2,4]\nB : f32[4]\nL[n<2,c<4] B[c]*{L[n<2] Σ[k<4] A[n,k]}[n]").text()
    assert dims == {"A": 0}


TABLES = """T : weight f32[4,3] = [1,2,3,4,5,6,7,8,9,10,11,12]
A : f32[4,3]
L[p<4,i<3] Σ[k<3] T[p,k]*A[p,i]*{L[q<4] Σ[j<3] T[q,j]*A[q,j]}[p]"""


@pytest.mark.parametrize("count", [2, 4])
def test_a_part_reads_its_rows_of_a_table(count: int) -> None:
    """A table's numbers belong to the expression: it is not cut as what a buffer holds is, and all parts read the same one."""
    whole = parse(TABLES)
    values = integers(whole)
    wanted, rows = evaluate(whole, values), 4 // count
    for part in range(count):
        small, dims = restricted(whole, 0, count, part)
        assert dims == {"A": 0} and tensors(small)["T"] == tensors(whole)["T"]
        own = slice(part * rows, part * rows + rows)
        np.testing.assert_array_equal(evaluate(small, {"A": values["A"][own]}), wanted[own])
        again = restricted(small, 0, rows)[0]
        np.testing.assert_array_equal(evaluate(again, {"A": values["A"][own][:1]}), wanted[own][:1])


def test_where_the_value_of_the_loop_counts_it_is_what_it_was() -> None:
    scope = parse("A : f32[6]\nL[n<6] select(n-3>=0, A[n]*val(n), 0)")
    assert [restricted(scope, 0, 3, part)[0].text() for part in range(3)] == [
        parse(f"A : f32[2]\nL[n<2] {body}").text() for body in ("select(n-3>=0, A[n]*val(n), 0)", "select(n-1>=0, A[n]*val(n+2), 0)", "A[n]*val(n+4)")
    ]


def test_views_of_parts() -> None:
    assert covering(View("t", (36, 98, 8), (784, 8, 1)), Digit(392, 2)) == 1
    assert shrunk(View("t", (36, 49, 8), (784, 8, 1)), 784, 392) == View("t", (36, 49, 8), (392, 8, 1))
    with pytest.raises(Undivided):
        covering(View("t", (36, 98, 8), (784, 8, 1)), Digit(196, 4 * 3))
    with pytest.raises(Undivided):
        shrunk(View("t", (36, 60, 8), (784, 8, 1)), 784, 392)


def test_a_temporary_that_is_read_as_a_whole_stays() -> None:
    first = EOperator(parse("A : f32[6,4]\nL[n<6,c<4] A[n,c]"), (("A", dense_view("a", (6, 4))),), dense_view("t", (6, 4)))
    scope = parse("T : f32[6,4]\nL[n<6] {L[n<6] Σ[m<6] T[m,0]}[n]")
    second = EOperator(scope, (("T", dense_view("t", (6, 4))),), dense_view("out", (6,)))
    with pytest.raises(Undivided):
        divided([first, second], {"t": Buffer("t", 24, "f32", "temporary")}, Digit(1, 6), 2)
