"""Generated code that reads integers and truth values, and at places that are data, against ONNX Runtime."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.notation.text import parse
from einnet.expr.selection import selection
from einnet.expr.values.evaluate import evaluate
from einnet.graph.onnx.importer import load
from einnet.graph.program import Opaque
from einnet.instantiate.codegen import build, lower
from einnet.instantiate.codegen.operation_counts import flops
from einnet.runtime.ort import Session
from tests.graph.collected import Case, collected
from tests.graph.test_not_finite import compiled
from tests.instantiate.compiled import dense
from tests.instantiate.typed import run

NAMES = ("test_gather", "test_casts_of", "test_integers_beside_a", "test_small", "test_a_mask", "test_truth_values_as")
CASES = [c for c in collected() if c.name.startswith(NAMES)]
FIRST = {(c.operators, c.name.partition("[")[0]): c for c in reversed(CASES)}


@pytest.mark.parametrize("case", FIRST.values(), ids=lambda c: c.name)
def test_kernels(case: Case) -> None:
    run_and_compare(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_kernel(case: Case) -> None:
    run_and_compare(case)


def run_and_compare(case: Case) -> None:
    wanted, got = Session(case.model.SerializeToString(), 1)(dict(case.inputs)), compiled(case)(case.inputs)
    for name, y in wanted.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-6)


def test_the_cases_are_there() -> None:
    assert len(CASES) > 20
    assert any("choose(equal(" in n.scope.text() for c in CASES for n in load(c.model).nodes if not isinstance(n, Opaque))


SELECTION = "X : f32[2000,64]\nI : i64[8]\nL[m<8,n<64] Σ[v<2000] choose(equal(I[m], val(v)), X[v,n], 0)"


def test_what_takes_one_term_is_known() -> None:
    scope = parse(SELECTION)
    found = selection(scope)
    assert found is not None
    assert found.over.name == "v"
    assert flops(scope) < 10 * 8 * 64
    for other in ("L[m<8,n<64] Σ[v<2000] choose(equal(I[m], val(v)), X[v,n], 1)", "L[m<8,n<64] Σ[v<2000] choose(equal(val(v), val(v)), X[v,n], 0)",
                  "L[m<8,n<64] Σ[v<2000] choose(less(I[m], val(v)), X[v,n], 0)", "L[m<8,n<64] max[v<2000] choose(equal(I[m], val(v)), X[v,n], 0)",
                  "L[m<8,n<64] Σ[v<2000] choose(equal(I[m], val(v+1)), X[v,n], 0)"):  # fmt: skip
        assert selection(parse(SELECTION.split("L[")[0] + other)) is None


@pytest.mark.parametrize("places", [[0, 7, 3], [-1, 8, 100], [2, 2, -100]])
def test_places_outside_give_nothing(places: list[int]) -> None:
    scope = parse("X : f32[8,20]\nI : i64[3]\nL[m<3,n<20] Σ[v<8] choose(equal(I[m], val(v)), X[v,n], 0)")
    x = np.random.default_rng(0).standard_normal((8, 20)).astype(np.float32)
    x[4] = np.nan
    wanted = np.stack([x[p] if 0 <= p < 8 else np.zeros(20, np.float32) for p in places])
    np.testing.assert_array_equal(run(scope, {"X": x, "I": np.array(places)}), wanted)


@pytest.mark.parametrize("text", [
    "L[m<6,n<33] choose(C[m,n], X[m,n], N[m,n])", "L[n<33,m<6] choose(C[m,n], 1, 0) + N[m,n]", "L[m<6,n<40] N[m,n-3] + C[m,n-5]",
    "L[m<6] Σ[n<33] C[m,n]*X[m,n]", "L[n<33] Σ[m<6] N[m,n]", "L[n<33] Σ[v<6] choose(equal(N[0,n], val(v)), X[v,n], 0)",
])  # fmt: skip
def test_elements_of_other_types(text: str) -> None:
    scope = parse("X : f32[6,33]\nC : bool[6,33]\nN : i64[6,33]\n" + text)
    rng = np.random.default_rng(0)
    given = {"X": rng.integers(-3, 4, (6, 33)).astype(np.float32), "C": rng.random((6, 33)) < 0.5, "N": rng.integers(-2, 7, (6, 33))}
    np.testing.assert_array_equal(run(scope, {n: v for n, v in given.items() if n in text}), evaluate(scope, given))



@pytest.mark.parametrize("text", ["L[m<64,n<1024] H[m,n]", "L[n<1024,m<64] H[m,n]", "L[m<60,n<1024] H[m+7,n-3]", "L[m<3] H[m,5]"])
def test_every_float16_is_read(text: str) -> None:
    scope = parse("H : f16[64,1024]\n" + text)
    given = {"H": np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(64, 1024)}
    np.testing.assert_array_equal(run(scope, given), evaluate(scope, given, "float32"))


@pytest.mark.parametrize("rows", [3, 5, 16, 17, 18, 20, 31, 33, 49])
@pytest.mark.parametrize("text", ["L[c<8,w<R] min(max(A[w,c], 0), 255)", "L[c<8,w<R] min(max(A[w,c] + A[0,0], 0), 255)", "L[w<R,c<8] A[w,7-c]"])
def test_bytes_are_written_where_they_belong_and_nowhere_else(rows: int, text: str) -> None:
    """Of rows that leave one for the last vector, a store of one byte was one of four: over what follows, and behind the end."""
    scope = parse(f"A : u8[R,8]\n{text}".replace("R", str(rows)))
    a = np.random.default_rng(0).integers(1, 127, (rows, 8)).astype(np.uint8)
    kernel = lower(replace(dense(scope), dtype="u8"), "kernel")
    room = np.full(rows * 8 + 64, 99, np.uint8)
    build([kernel])["kernel"](ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(room.ctypes.data))
    np.testing.assert_array_equal(room[:-64].reshape(scope.shape), evaluate(scope, {"A": a}))
    assert (room[-64:] == 99).all()
