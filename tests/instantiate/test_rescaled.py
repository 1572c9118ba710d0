"""Attention that stores no scores: what is taken for it, what it computes on the host, what it holds on a card, and when it is chosen."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")

from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda import rowwise, thread_blocks
from einnet.instantiate.codegen.cuda.emit import lower_cuda
from einnet.instantiate.codegen.cuda.rescaled import Rescaled, rescaled
from einnet.instantiate.codegen.cuda.rescaled_sizes import Sizes, Walked, borders, cycles_apart, pitch, share, sizes, walked
from einnet.instantiate.codegen.cuda.staging import staged
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.kernels import EOperator
from einnet.runtime.cuda import nvrtc, shim
from tests.instantiate.attention_cases import attention, run
from tests.instantiate.cuda_cases import operator

needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")
CAUSAL = "select(m-n>=0,x,-inf)"
WINDOW = "select(m-n>=0,select(n-m+9>=0,x,-inf),-inf)"
BLOCKED = "select(m//8-n//8==0,x,-inf)"


def form(op: EOperator) -> Rescaled | None:
    return rescaled(normalise(resolve(op, ())))


def extents(found: Rescaled) -> tuple[int, int, int, int, int]:
    return found.batches, found.height, found.over.extent, found.terms, found.width


# --------------------------------------------------------------------------------------------------------------------- what is taken


@pytest.mark.parametrize(("op", "wanted"), [
    (attention((3, 20, 24, 8, 12)), (3, 20, 24, 8, 12)),
    (attention((3, 20, 24, 8, 12), "1/4*s"), (3, 20, 24, 8, 12)),
    (attention((3, 20, 24, 8, 12), CAUSAL), (3, 20, 24, 8, 12)),
    (attention((3, 20, 24, 8, 12), "s+R[m,n]"), (3, 20, 24, 8, 12)),
    (attention((6, 20, 24, 8, 12), group=3), (2, 60, 24, 8, 12)),
    (attention((3, 20, 24, 8, 12), result="{L[h<H,m<M,d<D] Σ[n<N] weight*value}[h,m,d]/total"), (3, 20, 24, 8, 12)),
    (attention((3, 20, 24, 8, 12), result="{L[h<H,m<M,d<D] Σ[n<N] weight*value}[h,m,d]+greatest+2"), (3, 20, 24, 8, 12)),
])  # fmt: skip
def test_what_is_summed_is_told_by_index_functions(op, wanted):
    found = form(op)
    assert found is not None and extents(found) == wanted


def test_loops_that_keys_do_not_walk_share_them():
    found = form(attention((6, 20, 24, 8, 12), group=3))
    assert found is not None and [i.extent for i in found.queries] == [3, 20]


PRODUCT = "{L[m<20,n<24] Σ[c<8] Q[m,c]*K[n,c]}[m,n]"
TOP = "{L[m<20] max[n<24] SCORE}[m]"
SUM = "L[m<20,d<12] Σ[n<24] exp(SCORE-TOP)*V[n,d]"


@pytest.mark.parametrize("text", [
    SUM.replace("TOP", TOP.replace("SCORE", "2*" + PRODUCT)),
    SUM.replace("TOP", TOP.replace("SCORE", PRODUCT.replace("Q[", "W["))),
    SUM.replace("TOP", TOP.replace("max", "min")),
    SUM.replace("TOP", TOP.replace("n<24] SCORE", "n<23] SCORE")),
    SUM.replace("-TOP", "+TOP").replace("TOP", TOP),
    SUM.replace("-TOP", ""),
    SUM.replace("V[n,d]", "V[n,d]*V[m,d]").replace("TOP", TOP).replace("SCORE", "(SCORE+{L[m<20,n<24] Σ[c<8] W[m,c]*K[n,c]}[m,n])"),
    SUM.replace("TOP", TOP).replace("SCORE", "{L[m<20,n<24] Σ[c<8] Q[m,c]*K[n,c]*W[m+n,c]}[m,n]"),
    SUM.replace("*V[n,d]", "*{L[n<24,d<12] Σ[c<8] V[n,c]*W[c,d]}[n,d]").replace("TOP", TOP),
    SUM.replace("L[", "L[p<2,").replace("TOP", TOP) + "*{L[d<12] Σ[c<8] W[c,d]}[d]",
])  # fmt: skip
def test_others_are_not(text):
    text = text.replace("SCORE", PRODUCT)
    shapes = {"Q": (20, 8), "K": (24, 8), "V": (24, 12), "W": (44, 12)}
    op = operator(text, {n: s for n, s in shapes.items() if f"{n}[" in text})
    assert walked(normalise(resolve(op, ()))) is None


def test_a_product_alone_is_none():
    assert form(operator("L[m<20,d<12] Σ[n<24] A[m,n]*V[n,d]", {"A": (20, 24), "V": (24, 12)})) is None


# ------------------------------------------------------------------------------------------------------------------ what it computes


def forced(monkeypatch: pytest.MonkeyPatch, chosen: Sizes | None = None) -> None:
    """Nests of the form are one kernel, with sizes that are given."""

    def taken(nest):  # type: ignore[no-untyped-def]
        found = rescaled(nest)
        own = walked(nest) if found is not None else None
        return None if found is None else Walked(found, replace(chosen, terms=found.terms), 0.0) if chosen else own and replace(own, cycles=0.0)

    for module in (thread_blocks, rowwise):
        monkeypatch.setattr(module, "walked", taken)


def values(op: EOperator, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in op.operands}


SIZES = [Sizes(8, 8, 2, 1, 1, 0), Sizes(8, 8, 1, 2, 4, 0), Sizes(16, 4, 1, 2, 2, 0)]
SCORES = ["1/4*s", CAUSAL, WINDOW, BLOCKED, "s+R[m,n]"]


@needs_compiler
@pytest.mark.parametrize("chosen", SIZES)
def test_any_sizes_compute_it(chosen, monkeypatch):
    """Lengths that are no multiple of anything, tiles that are larger than what there is, and keys that several heads share."""
    forced(monkeypatch, chosen)
    draw = random.Random(repr(chosen))
    ops = []
    for score in SCORES:
        group = draw.choice((1, 2))
        ops.append(attention((2 * group, *(draw.randint(1, top) for top in (70, 70, 19, 40))), score, group))
    given = [values(op, n) for n, op in enumerate(ops)]
    for op, own, found in zip(ops, given, run(ops, given), strict=True):
        wanted = evaluate(op.scope, own, dtype="float64")
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6 * np.nanmax(np.abs(wanted)), err_msg=op.scope.text())


@needs_compiler
def test_small_integers_are_exact(monkeypatch):
    """Without queries every weight is 1: means of whole numbers, over all keys that a mask leaves, are the nearest floats there are."""
    forced(monkeypatch)
    ops = [attention((2, 37, 53, 5, 9), score, result=result) for score, result in zip((CAUSAL, WINDOW, BLOCKED, "s"), RESULTS * 2)]
    rng = np.random.default_rng(0)
    given = [{n: rng.integers(-9, 10, v.shape).astype(np.float32) * (n != "Q") for n, v in op.operands} for op in ops]
    for op, own, found in zip(ops, given, run(ops, given), strict=True):
        np.testing.assert_array_equal(found, evaluate(op.scope, own, dtype="float64").astype(np.float32), err_msg=op.scope.text())


RESULTS = ["{L[h<H,m<M,d<D] Σ[n<N] weight*value}[h,m,d]/total", "{L[h<H,m<M,d<D] Σ[n<N] weight*value}[h,m,d]*2+total+greatest"]


@needs_compiler
def test_rows_without_a_value_have_none(monkeypatch):
    """A row under a mask that leaves nothing, one with a score that is no number, and one with infinite ones."""
    forced(monkeypatch)
    ops = [attention((1, 24, 24, 4, 8), s, result=r) for s, r in (("select(m-n-4>=0,x,-inf)", RESULTS[1]), ("s+R[m,n]", RESULTS[0]))]
    given = [values(op, 3) for op in ops]
    bias = given[1]["R"]
    bias[2, 5], bias[7, 3], bias[9, :], bias[11, 20] = np.nan, np.inf, -np.inf, -np.inf
    for op, own, found in zip(ops, given, run(ops, given), strict=True):
        with np.errstate(invalid="ignore"):
            wanted = evaluate(op.scope, own, dtype="float64")
        assert np.isnan(wanted).any() and np.isfinite(wanted).any()
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-5)


@needs_compiler
def test_great_scores_do_not_overflow(monkeypatch):
    forced(monkeypatch)
    op = attention((1, 20, 90, 4, 8), "300*s")
    own = values(op, 1)
    (found,) = run([op], [own])
    np.testing.assert_allclose(found, evaluate(op.scope, own, dtype="float64"), rtol=1e-3, atol=1e-3)


@needs_compiler
def test_masks_of_truth_values_and_short_floats_are_read(monkeypatch):
    forced(monkeypatch)
    plain = attention((2, 20, 24, 8, 12), "s+R[m,n]")
    text = "Q : f32[2,20,8]\nK : f16[2,24,8]\nV : f16[2,24,12]\nR : bool[20,24]\n" + plain.scope.text()
    scope = parse(text)
    op = replace(plain, scope=scope)
    own = values(plain, 0)
    own |= {"K": own["K"].astype(np.float16), "V": own["V"].astype(np.float16), "R": own["R"] > 0}
    made = lower_cuda(op, "k0")
    assert len(made.kernels) == 1 and not made.stages
    (found,) = run([op], [own])
    np.testing.assert_allclose(found, evaluate(scope, own, dtype="float64"), rtol=3e-6, atol=3e-6)


# ----------------------------------------------------------------------------------------------------------- what it holds on a card


LONG = [
    (attention((12, 1024, 1024, 64, 64), CAUSAL), 16), (attention((12, 512, 512, 64, 64)), 8), (attention((8, 300, 301, 40, 33), "s+R[m,n]", 4), 8),
]  # fmt: skip


@pytest.mark.parametrize(("op", "rows"), LONG)
def test_one_kernel_stores_nothing(op, rows):
    made = lower_cuda(op, "k")
    found = walked(normalise(resolve(op, ())))
    assert found is not None and len(made.kernels) == 1 and not made.stages
    assert found.sizes.rows >= rows and found.sizes.room <= (48 << 10) - 192
    assert len(made.text) <= 48000


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
@pytest.mark.parametrize(("op", "rows"), LONG)
def test_registers_and_shared_memory_are_as_reckoned(op, rows, architecture):
    found = walked(normalise(resolve(op, ())))
    (held,) = nvrtc.resources(lower_cuda(op, "k").text, architecture).values()
    assert found is not None
    assert held.spilled == 0 and held.registers <= 168
    assert found.sizes.room - 64 <= held.shared <= min(found.sizes.room + 192, 48 << 10)


def test_copies_keep_banks_apart():
    """Eight rows of a copy, four elements of each, lie in 32 banks; accesses are aligned."""
    for terms in range(1, 140):
        places = [n * pitch(terms) % 32 for n in range(8)]
        assert pitch(terms) >= terms and pitch(terms) % 4 == 0 and len(set(places)) == 8


# -------------------------------------------------------------------------------------------------------------- when it is chosen


def test_it_is_chosen_where_the_model_of_the_device_says_so():
    op = attention((12, 256, 256, 64, 64))
    nest = resolve(op, ())
    found = walked(normalise(nest))
    assert found is not None and found.cycles < cycles_apart(staged(nest).nests)
    assert not lower_cuda(op, "k").stages


def test_a_row_by_itself_shares_nothing():
    op = attention((2, 1, 512, 64, 64))
    found = form(op)
    assert found is not None and not list(sizes(found)) and walked(found.nest) is None


def test_long_products_have_no_room():
    found = form(attention((1, 64, 64, 4096, 64)))
    assert found is not None and not list(sizes(found))


@pytest.mark.parametrize(("score", "count", "least", "most"), [
    ("s", 0, 1.0, 1.0), (CAUSAL, 1, 0.5, 0.6), ("select(m-n>=0,select(n-m+63>=0,x,-inf),-inf)", 2, 0.06, 0.2),
    ("select(m//64-n//64==0,x,-inf)", 1, 0.06, 0.1), ("select(2*m-m//2-n>=0,x,-inf)", 0, 1.0, 1.0),
])  # fmt: skip
def test_tiles_that_a_mask_leaves_nothing_of_are_not_walked(score, count, least, most):
    found = form(attention((1, 1024, 1024, 16, 16), score))
    assert found is not None and len(borders(found)) == count
    assert least <= share(found, 32, 32) <= most


def test_a_finite_mask_leaves_no_tile_out():
    found = form(attention((1, 128, 128, 16, 16), "select(m-n>=0,x,-10000)"))
    assert found is not None and not borders(found)
