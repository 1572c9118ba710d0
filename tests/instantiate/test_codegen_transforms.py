"""Transforms by known matrices: shared sums, two stages, interior and masked borders, with and without channel remainders."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.algebra import toom_cook
from einnet.expr.constant_matrices import LinearMap, Matrix, factored
from einnet.expr.index import Index, var
from einnet.expr.nodes import Cond
from einnet.instantiate.codegen import lower
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.ir import Nest, Reduce, conditions, expanded, walk
from einnet.instantiate.codegen.pieces import interior, least
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.codegen.schedule import schedule
from einnet.runtime.cpu.compiler.machine_code import target
from tests.instantiate.compiled import check, dense, scattered


def floats(matrix: tuple[tuple[Fraction, ...], ...]) -> Matrix:
    return tuple(tuple(float(v) for v in row) for row in matrix)


def declared(name: str, matrix: tuple[tuple[Fraction, ...], ...]) -> str:
    return f"{name} : weight f32[{len(matrix)},{len(matrix[0])}] = [{','.join(str(v) for row in matrix for v in row)}]\n"


def applied(plan: LinearMap, x: np.ndarray) -> np.ndarray:
    values = list(x)
    for terms in plan.shared:
        values.append(sum(c * values[n] for n, c in terms))
    return np.array([sum((c * values[n] for n, c in terms), 0.0) for terms in plan.rows])


def additions(plan: LinearMap) -> int:
    return sum(len(terms) - 1 for terms in (*plan.shared, *plan.rows) if terms)


def test_shared_sums_are_the_matrix() -> None:
    rng = np.random.default_rng(0)
    given = [floats(m) for m, r in ((2, 3), (4, 3), (6, 3), (3, 2)) for f in (toom_cook(m, r),) for m in (f.A, f.B)]
    given += [tuple(map(tuple, rng.integers(-2, 3, (7, 5)).astype(float))) for _ in range(20)]
    for matrix in (*given, ((0.0, 0.0), (0.0, 1.0))):
        x = rng.standard_normal(len(matrix[0]))
        np.testing.assert_allclose(applied(factored(matrix), x), np.array(matrix) @ x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("m", "taps"), [(2, 3), (3, 3), (4, 3), (6, 3), (2, 5), (4, 2), (6, 2)])
def test_what_is_exact_without_sharing_is_exact_with_it(m: int, taps: int) -> None:
    """Integers times numbers of few binary digits: shared sums have no factor 4/9 in them."""
    x = np.random.default_rng(0).integers(-3, 4, (m + taps - 1, 500)).astype(np.float32)
    for matrix in (floats(toom_cook(m, taps).B), floats(toom_cook(m, taps).A)):
        plan, given = factored(matrix), x[: len(matrix[0])]
        values = list(given)
        for terms in plan.shared:
            values.append(sum(np.float32(c) * values[n] for n, c in terms))
        got = np.array([sum(np.float32(c) * values[n] for n, c in terms) for terms in plan.rows])
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, np.array(matrix) @ given.astype(np.float64))


@pytest.mark.parametrize(("m", "taps", "window", "result"), [(2, 3, 4, 4), (4, 3, 12, 10), (6, 3, 24, 20)])
def test_additions_of_toom_cook(m: int, taps: int, window: int, result: int) -> None:
    f = toom_cook(m, taps)
    assert (additions(factored(floats(f.B))), additions(factored(floats(f.A)))) == (window, result)


def input_transform(m: int, n: int, height: int, channels: int, order: str = "t,u,c") -> str:
    """Windows of F(m,3) in both dimensions over an image with a border of one."""
    f = toom_cook(m, 3)
    p, tiles = f.products, -(-height // m)
    loops = ",".join({"t": f"t<{tiles}", "u": f"u<{tiles}", "c": f"c<{channels}"}[x] for x in order.split(","))
    return (
        declared("B", f.B) + f"X : f32[{n},{height},{height},{channels}]\n"
        f"L[p<{p},q<{p},n<{n},{loops}] Σ[a<{p},b<{p}] B[p,a]*B[q,b]*X[n,{m}*t+a-1,{m}*u+b-1,c]"
    )


def output_transform(m: int, height: int, channels: int) -> str:
    f = toom_cook(m, 3)
    p, tiles = f.products, -(-height // m)
    inner = f"Σ[p<{p},q<{p}] A[h%{m},p]*A[w%{m},q]*T[p,q,0,h//{m},w//{m},f]"
    box = f"L[n<1,h<{height},w<{height},f<{channels}]"
    return (
        declared("A", f.A) + f"T : f32[{p},{p},1,{tiles},{tiles},{channels}]\nR : f32[1,{height},{height},{channels}]\nb : f32[{channels}]\n"
        f"{box} relu({{{box} {inner}}}[n,h,w,f] + b[f] + R[n,h,w,f])"
    )


FORMS = {
    "windows, interior and borders": input_transform(4, 1, 13, 20),
    "windows, borders only": input_transform(4, 2, 7, 16),
    "windows of F(6,3)": input_transform(6, 1, 19, 32),
    "windows along the lanes": input_transform(2, 1, 40, 3, "c,t,u"),
    "results with a tail": output_transform(4, 14, 16),
    "results of F(6,3), a remainder": output_transform(6, 13, 20),
    "one dimension": declared("B", toom_cook(4, 3).B) + "X : f32[5,30,33]\nL[p<6,h<5,t<8,c<33] Σ[a<6] B[p,a]*X[h,4*t+a-1,c]",
    "rows not unrolled": declared("B", toom_cook(4, 3).B) + "X : f32[60,6]\nL[i<60] Σ[a<6] B[i//10,a]*X[i,a]",
    "weighted by more than the matrix": declared("B", toom_cook(2, 3).B) + "X : f32[9,4]\nY : f32[4]\nL[p<4,i<9] Σ[a<4] B[p,a]*X[i,a]*Y[a]",
    "the weights alone": declared("B", toom_cook(2, 3).B) + "X : f32[9]\nL[p<4,i<9] X[i]*{L[p<4] Σ[a<4] B[p,a]}[p]",
}


def test_forms() -> None:
    check([dense(text) for text in FORMS.values()], tolerance=1e-4)


def test_scattered_and_parallel() -> None:
    check([scattered(text, seed) for seed, text in enumerate(list(FORMS.values())[::3])], tolerance=1e-4)
    kernels = check([dense(input_transform(4, 2, 30, 64)), dense(output_transform(4, 30, 64))], threads=2, tolerance=1e-4)
    assert all(k.parallel for k in kernels)


def nest_of(text: str, tables: str) -> Nest:
    return normalise(resolve(dense(text), set(tables)))


def test_matrices_are_applied_one_after_the_other() -> None:
    reductions = [e for e in walk(nest_of(input_transform(4, 1, 13, 16), "B").expr) if isinstance(e, Reduce)]
    assert [len(r.sums) for r in reductions] == [1, 1]
    assert len([e for e in walk(nest_of(input_transform(4, 1, 13, 16), "").expr) if isinstance(e, Reduce)]) == 1


def test_the_interior_is_where_the_hardest_condition_holds() -> None:
    plan = schedule(nest_of(input_transform(4, 1, 13, 16), "B"))
    assert plan.straight
    found = interior(plan.nest, plan.nest.expr, plan.nest.ranges, "", [p.name for p in plan.points])
    assert found is not None
    loops = {i.name for i in plan.order}
    assert found and all(c.index.names() <= loops for c in found)
    ranges = plan.nest.ranges
    (t, u) = (n for n in ranges if n.startswith(("t", "u")))

    def holds(c: Cond, at: dict[str, int]) -> bool:
        return sum(k * at[a] for a, k in c.index.terms if isinstance(a, str)) + c.index.const >= 0

    every = [(c, r) for e, r in expanded(plan.nest.expr, ranges) for c in conditions(e)]
    for tile in range(4):
        at = {t: tile, u: 1}
        inside = all(holds(c, {**{n: lo for n, (lo, _) in r.items()}, **at, **extra}) for c, r in every for extra in corners(c, r, {t, u}))
        assert inside == all(holds(c, at) for c in found)


def corners(c: Cond, ranges: dict[str, tuple[int, int]], fixed: set[str]) -> list[dict[str, int]]:
    """The values at which a condition on the other iterators is least and greatest."""
    names = c.index.names() - fixed
    return [{n: ranges[n][k] - k for n in names} for k in (0, 1)]


def test_equalities_have_no_interior() -> None:
    assert least(Cond(var("h") + var("r"), equal=True), {"h": (0, 4), "r": (0, 3)}, {"r"}) is None
    assert least(Cond(var("h") - 2 * var("r")), {"h": (0, 4), "r": (0, 3)}, {"r"}) == Cond(Index((("h", 1),), -4))


def test_straight_code_is_short() -> None:
    """The body is written at most twice, however many borders there are."""
    text = str(lower(dense(input_transform(4, 1, 30, 16)), "k", target=target("x86-64-v4")).primfunc)
    assert text.count("float32x16") and text.count("llvm.masked.load") <= 36
