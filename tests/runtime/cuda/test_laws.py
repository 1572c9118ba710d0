"""The laws of a card beside what was measured on it: kernels one by one, and whole programs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from benchmarks.card.fit import nelder_mead
from benchmarks.card.record import LATER, Record, kind, lasting, one_call, read
from einnet import records
from einnet.expr.nodes import Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, View, dense_view
from einnet.runtime.cuda.profiling import costs
from einnet.runtime.cuda.profiling import profile as profiles
from einnet.runtime.cuda.profiling.costs import CudaCost, modelled
from einnet.runtime.cuda.profiling.laws import PARTS, Laws, convolution, distinct, product, scaled
from einnet.runtime.cuda.profiling.profile import H200, MATHS, key, laws_of, load, shipped
from einnet.runtime.cuda.program import Batch, Gemm, Matrix
from einnet.search.outcome import is_constant

SEVEN = ("infogan", "dcgan", "fsrcnn", "gcn", "resnet18", "csrnet", "longformer")


@cache
def record() -> Record:
    return read()


def by_laws(math: str) -> CudaCost:
    """Costs of a profile from which every time is taken away."""
    return CudaCost(replace(shipped(math), seconds={}))


def errors(math: str, kinds: set[str]) -> list[float]:
    cost = by_laws(math)
    return [cost.seconds(k) / t - 1 for k, t in record().times(math) if lasting(k) and kind(k) in kinds]


@pytest.mark.parametrize("math", MATHS)
def test_products_and_convolutions_take_what_the_laws_say(math):
    """Half of all that were recorded within 15 %, nine of ten within 40 %."""
    off = sorted(abs(e) for e in errors(math, {"products", "convolutions", "transposed"}))
    assert len(off) > 600
    assert median(off) <= 0.15
    assert sum(e <= 0.4 for e in off) >= 0.9 * len(off)


def test_generated_kernels_are_known_less_well():
    off = errors("fp32", {"generated"})
    assert len(off) > 200
    assert median(map(abs, off)) <= 0.3
    assert sum(0.5 < 1 + e < 2 for e in off) >= 0.8 * len(off)


def test_a_softmax_takes_what_it_moves():
    """Its sums are of rows, one after the other: none is computed for each term of another."""
    cost = by_laws("fp32")
    found = [(k, us * 1e-6) for p in record().programs for k, us, _ in p.steps if us and isinstance(k, EOperator) and "exp(" in str(k.scope)]
    alone = [(k, us) for k, us in found if modelled(k)[0] == 1]
    assert alone
    assert all(0.4 < cost.seconds(k) / us < 2.5 for k, us in alone)


def test_programs_take_what_the_laws_say(monkeypatch):
    """Of the seven derived programs in float32, six within 15 % of what a replay took, in as many calls as they were run in.

    No kernel of theirs copied its operands ahead: the generator of that day could not.
    """
    monkeypatch.setattr(costs, "faster", lambda nest, rounds: None)
    costs.modelled.cache_clear()
    cost = by_laws("fp32")
    found = {p.model: p for p in record().programs if (p.math, p.search) == ("fp32", "measured")}
    steps = {name: [one_call(k) for k, *_ in found[name].steps] for name in SEVEN}
    off = {name: sum(count * cost.seconds(k) for k, count in steps[name]) * 1e6 / found[name].us - 1 for name in SEVEN}
    costs.modelled.cache_clear()
    assert sum(abs(e) <= 0.15 for e in off.values()) >= 6, off


def priced(math: str, search: str) -> dict[str, float]:
    """How far the programs of a search are off, by recorded times and laws as a search knows them, from what a replay behind another took."""
    cost = CudaCost(shipped(math), is_constant)
    found = {p.model: p for p in record().programs if (p.math, p.search) == (math, search) and p.model in SEVEN}
    return {name: sum(cost.seconds(k) for k, *_ in p.steps) * 1e6 / p.back_to_back_us - 1 for name, p in found.items()}


@pytest.mark.parametrize("math", MATHS)
def test_programs_of_the_models_took_what_had_been_predicted(math):
    """Six of seven, and in both arithmetics, within 15 %; the seventh is DCGAN in float32, whose weights lie in the cache then."""
    off = priced(math, "since")
    assert set(off) == set(SEVEN)
    assert sum(abs(e) <= 0.15 for e in off.values()) >= 6, off
    assert max(map(abs, off.values())) < 0.2, off


def test_programs_of_batches_took_what_had_been_predicted():
    """Of the twelve that were measured ten within 15 %; what is off are ResNet-18 in float32 and GCN, of whose kernels most were not timed."""
    off = {(name, math): e for math in MATHS for name, e in priced(math, "later, batch 16").items()}
    assert len(off) == 12
    assert sum(abs(e) <= 0.15 for e in off.values()) >= 10, off


@pytest.mark.parametrize("math", MATHS)
def test_the_shipped_profile_knows_the_recorded_kernels_as_they_are_keyed_today(math):
    profile = shipped(math)
    assert (profile.device, profile.measured, profile.math) == ("NVIDIA H100 80GB HBM3", True, math)
    assert profile.properties["multiProcessorCount"] == 132
    known = [k for k in record().alone[math] if lasting(k)]
    assert len(known) > 600
    assert all(profile.time(k) is not None for k in known)


@pytest.mark.parametrize("math", MATHS)
def test_no_time_of_many_calls_stands_for_one_launch(math):
    """Batches without a common stride were measured call by call at first: what they take as one launch is known by later times and the laws."""
    apart = [k for k in read(later=None).alone[math] if not lasting(k)]
    since = {key(k) for k in read(path=LATER).alone[math]}
    assert len(apart) > 100
    assert not {key(k) for k in apart if shipped(math).time(k) is not None} - since


def test_a_partial_profile_is_priced_by_its_own_card():
    """What was recorded of one kernel does not make others, which nobody measured, look better than they are."""
    whole = by_laws("tf32")
    some = dict(list(shipped("tf32").seconds.items())[::7])
    partial = CudaCost(replace(shipped("tf32"), seconds=some))
    kernels = [k for k in record().alone["tf32"] if key(k) not in some and not (isinstance(k, (Conv, Matmul)) and k.post)]
    assert partial.estimates(kernels) == whole.estimates(kernels)
    assert list(partial.unmeasured) == kernels


def conv(channels: int, filters: int, size: int, *, last: bool = False, krsc: bool = False, line: bool = False) -> Conv:
    """A 3x3 convolution, or one of 3 taps; data with channels last, filters too."""
    space, taps = ((size,), (3,)) if line else ((size, size), (3, 3))
    x, y, w = (1, channels, *space), (1, filters, *space), (1, filters, channels, *taps)

    def view(name: str, shape: tuple[int, ...], channel: int, moved: bool) -> View:
        order = [d for d in range(len(shape)) if d != channel] + [channel] if moved else list(range(len(shape)))
        strides, reach = [0] * len(shape), 1
        for d in reversed(order):
            strides[d], reach = reach, reach * shape[d]
        return View(name, shape, tuple(strides))

    ones = (1,) * len(space)
    return Conv(view("x", x, 1, last), view("w", w, 2, krsc), view("y", y, 1, last), ones, ones, ones, ones)


def test_a_strict_convolution_is_as_long_as_its_sum():
    laws = laws_of(shipped("fp32"))
    short, long = (convolution(conv(c, 64, 14), laws) for c in (128, 512))
    assert 3 < (long - laws.convolutions.begin) / (short - laws.convolutions.begin) < 5


def test_each_arithmetic_wants_its_layout():
    """Strict float32 is fast with channels first, tensor cores with channels last and filters stored so; extents of 1 have no order."""
    strict, fast = (laws_of(shipped(m)) for m in MATHS)
    assert convolution(conv(64, 64, 28), strict) < convolution(conv(64, 64, 28, last=True), strict)
    kinds = [convolution(conv(64, 64, 28, last=a, krsc=b), fast) for a, b in ((True, True), (True, False), (False, True), (False, False))]
    assert kinds[0] == min(kinds)
    assert kinds[3] == max(kinds)
    assert convolution(conv(64, 64, 1), strict) == convolution(conv(64, 64, 1, last=True), strict)
    assert convolution(conv(64, 64, 14, line=True), strict) > laws_of(shipped("fp32")).convolutions.line


def gemm(m: int, n: int, k: int, *batches: Batch) -> Gemm:
    return Gemm(m, n, k, Matrix("a", 0, k, 1), Matrix("b", 0, n, 1), Matrix("c", 0, n, 1), batches)


def test_long_sums_of_few_tiles_are_divided_and_batches_are_not():
    laws = laws_of(shipped("fp32"))
    one = product(gemm(64, 64, 8192), laws)
    assert one < 64 * laws.products.step * 64
    assert product(gemm(64, 64, 8192, Batch(2, 64 * 8192, 64 * 8192, 64 * 64)), laws) > 2 * one


def test_what_a_broadcast_or_overlapping_operand_reads_counts_once():
    laws = laws_of(shipped("fp32"))
    apart, shared = (product(gemm(512, 512, 16, Batch(64, s, s, 512 * 512)), laws) for s in (512 * 16, 0))
    assert shared < apart


def test_batches_without_a_common_stride_are_priced_as_those_with_one():
    """One launch begins once; where each operand lies says nothing of how long it takes, as far as is known."""
    for laws in map(laws_of, map(shipped, MATHS)):
        size = 64 * 64
        joined = product(gemm(64, 64, 64, Batch(32, size, size, size)), laws)
        scattered = gemm(64, 64, 64, Batch(4, 8 * size, size, 8 * size), Batch(8, size, 4 * size, size))
        assert scattered.scattered and product(scattered, laws) == pytest.approx(joined)
        apart = gemm(64, 64, 64, Batch(8, size, 4 * size, size))
        assert product(scattered, laws) < 2 * product(apart, laws)


def test_thousands_of_products_of_a_vector_are_not_free():
    """Each reads its operands from the level-2 cache, however many share them: calls of 4,096 took 65 µs and more in either arithmetic."""
    kernels = {k: (t, one_call(k)) for m in MATHS for k, t in record().alone[m].items() if isinstance(k, Matmul) and "8x4096 x 1x" in k.describe()}
    assert kernels
    for math in MATHS:
        cost = by_laws(math)
        for kernel in kernels:
            took = record().alone[math].get(kernel)
            assert took is None or cost.seconds(kernel) > took / 3.5


def test_what_interleaves_is_not_counted_as_one_operand():
    """Rows of eight matrices that lie in turns are all of them."""
    a = Gemm(512, 64, 1024, Matrix("a", 0, 8 * 1024, 1), Matrix("b", 0, 64, 1), Matrix("c", 0, 64, 1), (Batch(8, 1024, 0, 512 * 64),))
    assert distinct(a) == (8 * 512 * 1024, 1024 * 64, 8 * 512 * 64)
    windows = replace(a, a=Matrix("a", 0, 1024, 1), batches=(Batch(8, 64, 1024 * 64, 512 * 64),))
    assert distinct(windows) == (512 * 1024 + 7 * 64, 8 * 1024 * 64, 8 * 512 * 64)


def test_costs_follow_the_cards_figures():
    laws = laws_of(shipped("fp32"))
    faster = scaled(laws, 2.0, 1.0, 1.0)
    assert product(gemm(4096, 4096, 4096), faster) < 0.6 * product(gemm(4096, 4096, 4096), laws)
    wider = scaled(laws, 1.0, 2.0, 1.0)
    assert wider.generated.bandwidth == 2 * laws.generated.bandwidth
    assert scaled(laws, 1.0, 1.0, 1.0) == laws
    later = replace(H200, card=replace(H200.card, launch=2 * shipped().card.launch))
    assert laws_of(later).generated.begin == pytest.approx(2 * laws.generated.begin)


def test_the_h200_is_an_estimate_from_the_h100():
    path = Path(__file__).parents[3] / "profiles" / "h200.json"
    for math in MATHS:
        found = load(path, math)
        assert not found.measured
        assert not found.seconds
        assert found.card == H200.card
        assert laws_of(replace(found, laws=None)) == found.laws
    assert json.loads(path.read_text())["kind"] == "estimate"


@pytest.mark.parametrize("wrong", [("products", "rate", 0.0), ("generated", "begin", -1.0), ("transposed", "step", "x")])
def test_parameters_that_are_none_are_refused(wrong):
    part, name, value = wrong
    good = records.as_json(laws_of(shipped("fp32")))
    assert records.as_json(records.read(Laws, good)) == good
    with pytest.raises(ValueError, match=f"at `[$].{part}.{name}`"):
        records.read(Laws, {**good, part: {**good[part], name: value}})
    with pytest.raises(ValueError, match=part):
        records.read(Laws, {k: v for k, v in good.items() if k != part})
    assert set(PARTS) <= good.keys()


def test_both_arithmetics_are_in_one_file(tmp_path):
    path = tmp_path / "p.json"
    kernel: Kernel = Matmul(dense_view("a", (8, 8)), dense_view("b", (8, 8)), dense_view("c", (8, 8)))
    for math, seconds in (("fp32", 7e-6), ("tf32", 5e-6)):
        profiles.save(path, replace(shipped(math), seconds={key(kernel): seconds}))
    assert profiles.held(path) == ["fp32", "tf32"] or profiles.held(path) == ["tf32", "fp32"]
    assert [load(path, m).time(kernel) for m in MATHS] == [7e-6, 5e-6]
    profiles.save(path, replace(shipped("fp32"), device="another"))
    assert profiles.held(path) == ["fp32"]


def test_the_search_for_parameters_finds_a_minimum():
    found = nelder_mead(lambda p: (p[0] - 1) ** 2 + 3 * (p[1] + 2) ** 2, [0.0, 0.0], 0.5, 120)
    assert found == pytest.approx([1.0, -2.0], abs=1e-3)


def test_sums_inside_sums_and_sums_without_tiles_are_not_free():
    """A transform that a contraction takes in is computed for each of its terms."""
    texts = {"apart": "L[p<36,h<64,f<128] Σ[c<256] V[p,h,c]*K[p,f,c]", "within": "L[p<36,h<64,f<128] Σ[c<256,a<36] K[p,f,c]*M[p,a]*X[h,a,c]"}
    boxes = {"V": (36, 64, 256), "K": (36, 128, 256), "M": (36, 36), "X": (64, 36, 256)}
    cost = CudaCost(shipped("fp32"))

    def seconds(text: str) -> float:
        scope = parse(text, {n: Tensor(n, b) for n, b in boxes.items()})
        return cost.seconds(EOperator(scope, tuple((n, dense_view(n, t.shape)) for n, t in tensors(scope).items()), dense_view("out", scope.shape)))

    assert seconds(texts["within"]) > 4 * seconds(texts["apart"])
