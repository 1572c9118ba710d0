"""Predicted costs: recorded times first, estimates where there are none; profiles as files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from einnet.errors import UsageError
from einnet.expr.nodes import Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Conv, EOperator, Matmul, Post, View, dense_view
from einnet.records import as_json
from einnet.runtime.cpu.roofline import flops, moved
from einnet.runtime.cuda.profiling import costs
from einnet.runtime.cuda.profiling.costs import CudaCost
from einnet.runtime.cuda.profiling.laws import convolution as lawful
from einnet.runtime.cuda.profiling.laws import traffic
from einnet.runtime.cuda.profiling.profile import H200, as_file, key, laws_of, load, shipped


def product(n: int, *post: Post) -> Matmul:
    return Matmul(dense_view("a", (n, n)), dense_view("b", (n, n)), dense_view("c", (n, n)), post)


def test_small_kernels_cost_a_launch_and_large_ones_their_work():
    small, large = CudaCost(H200).estimates([product(8), product(4096)])
    assert small < 2 * laws_of(H200).products.begin
    assert large > 0.9 * 2 * 4096**3 / H200.card.peak


def test_what_the_library_does_not_fuse_costs_another_kernel():
    fused, apart = CudaCost(H200).estimates([product(8, Post("relu")), product(8, Post("tanh"))])
    law = laws_of(H200).generated
    assert apart == pytest.approx(fused + law.begin + traffic(2 * 8 * 8 * 4, law))


def test_recorded_times_count_whatever_buffers_are_called():
    kernel = product(8)
    cost = CudaCost(replace(H200, seconds={key(kernel): 7e-6}))
    other = Matmul(dense_view("x", (8, 8)), dense_view("y", (8, 8)), dense_view("z", (8, 8)))
    assert cost.measured([kernel, other]) == [7e-6, 7e-6]
    assert not cost.unmeasured
    cost.seconds(product(16))
    assert list(cost.unmeasured) == [product(16)]


def generated(text: str, boxes: dict[str, tuple[int, ...]]) -> EOperator:
    scope = parse(text, {n: Tensor(n, b) for n, b in boxes.items()})
    return EOperator(scope, tuple((n, dense_view(n, t.shape)) for n, t in tensors(scope).items()), dense_view("out", scope.shape))


def convolution(channels: int) -> EOperator:
    text = f"L[n<16,h<224,w<224] Σ[c<{channels},r<5,s<5] A[n,c,h+r-2,w+s-2]*K[c,r,s]"
    return generated(text, {"A": (16, channels, 224, 224), "K": (channels, 5, 5)})


PRICED = [
    convolution(8),
    generated("L[i<64] Σ[k<4096] A[i,k]*B[k]", {"A": (64, 4096), "B": (4096,)}),
    generated("L[i<96,j<80] A[i,j]+B[j]", {"A": (96, 80), "B": (80,)}),
    generated("L[i<9,j<8] exp(A[i,j]-{L[i<9] max[k<8] A[i,k]}[i])/{L[i<9] Σ[k<8] exp(A[i,k])}[i]", {"A": (9, 8)}),
    product(64, Post("tanh")),
]
"""Generated kernels with and without sums, several launches, and a product beside which there is one."""


@pytest.mark.parametrize("math", ["fp32", "tf32", "bf16"])
def test_a_price_has_a_bound_that_needs_no_tiles(math, monkeypatch):
    known, cost = shipped(math), CudaCost(shipped(math))
    with monkeypatch.context() as patch:
        patch.setattr(costs, "modelled", None)
        bounds = cost.at_least(PRICED[:-1])
    prices = CudaCost(known).estimates(PRICED[:-1])
    assert all(0.3 * p < b <= p for b, p in zip(bounds[1:], prices[1:], strict=True)) and bounds[0] <= prices[0]
    assert sum(b < p for b, p in zip(bounds, prices, strict=True)) > 1
    assert cost.at_least(PRICED[-1:]) == CudaCost(known).estimates(PRICED[-1:])


def test_what_was_recorded_bounds_itself():
    kernel = convolution(8)
    cost = CudaCost(replace(H200, seconds={key(kernel): 7e-9}))
    assert cost.at_least([kernel]) == [7e-9]


def test_generated_kernels_cost_what_their_tiles_do():
    few, many = CudaCost(H200).estimates([convolution(8), convolution(32)])
    assert 3 * few < many < 5 * few
    assert all(t > flops(convolution(c)) / H200.card.peak for t, c in ((few, 8), (many, 32)))


def test_what_is_stored_between_kernels_costs_launches():
    top = "{L[i<6] max[l<40] A[i,l]}[i]"
    softmax = generated(f"L[i<6,j<40] exp(A[i,j]-{top})/{{L[i<6] Σ[k<40] exp(A[i,k]-{top})}}[i]", {"A": (6, 40)})
    crossed = generated("L[i<40,j<50] {L[i<40] Σ[k<50] A[i,k]}[i]*{L[j<50] Σ[k<40] A[k,j]}[j]", {"A": (40, 50)})
    one, three = CudaCost(H200).estimates([softmax, crossed])
    begin = laws_of(H200).generated.begin
    assert begin < one < 2 * begin
    assert 3 * begin < three < 6 * begin


def test_elements_that_read_much_take_as_long_as_their_reads():
    few = generated("L[i<4096,j<64] A[i,j]", {"A": (4096, 64)})
    many = generated("L[i<4096,j<64] Σ[k<8,l<2] A[i,k]*B[k,l]*C[l,j]", {"A": (4096, 8), "B": (8, 2), "C": (2, 64)})
    inside = generated("L[i<64] {L[i<64] Σ[k<5] A[i,k]}[i] + A[i,0]", {"A": (64, 5)})
    assert [costs.loads(k) for k in (few, many, inside)] == [4096 * 64, 4096 * 64 * 48, 64 * 6]
    law = laws_of(shipped("fp32")).generated
    assert CudaCost(shipped("fp32")).seconds(many) == pytest.approx(law.begin + law.touch * costs.loads(many))
    assert CudaCost(shipped("fp32")).seconds(few) == pytest.approx(law.begin + traffic(moved(few), law))


def test_sums_that_are_copied_ahead_cost_what_their_stages_do(monkeypatch):
    """Less than tiles, and more where an operand is copied by single numbers."""
    aligned = generated("L[i<512,j<512] Σ[k<2048] A[i,k]*B[k,j]", {"A": (512, 2048), "B": (2048, 512)})
    odd = generated("L[i<512,j<511] Σ[k<2048] A[i,k]*B[k,j]", {"A": (512, 2048), "B": (2048, 511)})
    staged = [CudaCost(H200).seconds(k) for k in (aligned, odd)]
    monkeypatch.setattr(costs, "faster", lambda nest, rounds: None)
    costs.modelled.cache_clear()
    tiled = [CudaCost(H200).seconds(k) for k in (aligned, odd)]
    costs.modelled.cache_clear()
    assert all(s < 0.7 * t for s, t in zip(staged, tiled, strict=True))
    assert staged[1] > 1.2 * staged[0]


def test_what_nobody_timed_rounds_at_its_own_price():
    """In TF32 a sum that tensor cores compute much faster costs what they take; a record of it in float32 counts before that."""
    kernel = generated("L[i<512,j<512] Σ[k<2048] A[i,k]*B[k,j]", {"A": (512, 2048), "B": (2048, 512)})
    plain, rounding = (CudaCost(replace(shipped(math), seconds={})) for math in ("fp32", "tf32"))
    assert rounding.seconds(kernel) < 0.8 * plain.seconds(kernel)
    assert kernel in rounding.unmeasured
    timed = CudaCost(replace(shipped("tf32"), seconds={key(kernel): 1.0}))
    assert timed.seconds(kernel) == 1.0


def test_groups_cost_kernels_of_their_own():
    def conv(groups: int) -> Conv:
        x, y = dense_view("x", (1, 64, 14, 14)), dense_view("y", (1, 64, 14, 14))
        return Conv(x, dense_view("w", (groups, 64 // groups, 64 // groups, 3, 3)), y, (1, 1), (1, 1), (1, 1), (1, 1))

    laws = laws_of(shipped("fp32"))
    free = replace(laws, convolutions=replace(laws.convolutions, grouped=0.0))
    assert [lawful(conv(g), laws) - lawful(conv(g), free) for g in (1, 2)] == pytest.approx([0.0, 8.4e-6])


def test_what_has_no_tiles_has_a_guess():
    sums = "{L[i<4096] Σ[k<4096] A[i,k]*A[i,k]}[i]*{L[i<4096] max[k<4096] A[i,k]*A[k,i]*A[k,i]}[i]"
    kernel = generated(f"L[i<4096] {sums}", {"A": (4096, 4096)})
    assert CudaCost(H200).seconds(kernel) >= moved(kernel) / H200.card.bandwidth


def test_round_trip(tmp_path):
    profile = replace(H200, measured=True, versions={"cupy": "14"}, seconds={key(product(8)): 1e-6})
    (tmp_path / "p.json").write_text(json.dumps(as_json(as_file(profile))))
    assert load(tmp_path / "p.json") == profile
    first = {**as_json(as_file(profile)), **as_json(as_file(profile))["arithmetics"]["fp32"], "format": 1, "math": "fp32"}
    (tmp_path / "p.json").write_text(json.dumps(first))
    assert load(tmp_path / "p.json") == profile, "files of the first format are read"
    with pytest.raises(UsageError, match="has no times in tf32"):
        load(tmp_path / "p.json", "tf32")


@pytest.mark.parametrize("change", [{"format": 9}, {"kind": "guess"}, {"arithmetics": {"fp32": {"seconds": {"k": -1}}}}, {"card": {}}])
def test_files_that_are_no_profile(change, tmp_path):
    (tmp_path / "p.json").write_text(json.dumps({**as_json(as_file(H200)), **change}))
    with pytest.raises(UsageError, match="no profile of a CUDA device"):
        load(tmp_path / "p.json")


def test_a_missing_file():
    with pytest.raises(UsageError, match="cannot be read"):
        load(Path("missing.json"))


def test_weights_of_grouped_transposed_convolutions_are_stored_as_the_library_joins_them():
    from einnet.instantiate.kernels import Conv, View
    from einnet.runtime.cuda.fit import parts

    w = View("w", (2, 3, 2, 1, 1), (6, 2, 1, 1, 1))
    kernel = Conv(dense_view("x", (1, 4, 2, 2)), w, dense_view("y", (1, 6, 2, 2)), (1, 1), (1, 1), (0, 0), (0, 0), transposed=True)
    copy, conv = parts(kernel)
    assert isinstance(copy, EOperator) and isinstance(conv, Conv)
    assert conv.w.shape == w.shape
    assert conv.w.strides[0] == w.shape[2] * conv.w.strides[2]


def rows(m: int, n: int, k: int, offset: int = 0) -> Matmul:
    """A product with a bias, whose rows begin somewhere in the buffers."""
    bias = Post("add", View("bias", (1, n), (0, 1), 0))
    return Matmul(View("a", (m, k), (k, 1), offset * k), dense_view("b", (k, n)), View("c", (m, n), (n, 1), offset * n), (bias,))


@pytest.mark.parametrize(("whole", "half"), [(rows(8192, 512, 512), rows(4096, 512, 512)), (rows(512, 8192, 512), None)])
def test_a_product_takes_no_longer_than_its_recorded_parts_one_after_the_other(whole: Matmul, half: Matmul | None) -> None:
    columns = Matmul(dense_view("a", (512, 512)), View("b", (512, 4096), (8192, 1), 0), View("c", (512, 4096), (8192, 1), 0), (
        Post("add", View("bias", (1, 4096), (0, 1), 0)),))  # fmt: skip
    known = half or columns
    law = CudaCost(H200).seconds(whole)
    fast = CudaCost(replace(H200, seconds={key(known): law / 4}))
    assert fast.seconds(whole) == pytest.approx(law / 2)
    assert whole in fast.unmeasured
    assert CudaCost(replace(H200, seconds={key(known): law})).seconds(whole) == law


def test_parts_that_do_not_occupy_the_card_say_nothing_of_the_whole():
    tiny = CudaCost(replace(H200, seconds={key(rows(64, 512, 512)): 1e-9}))
    assert tiny.seconds(rows(128, 512, 512)) == CudaCost(H200).seconds(rows(128, 512, 512))


def test_a_part_of_a_batch_costs_the_same_wherever_it_lies():
    cost = CudaCost(replace(H200, seconds={key(rows(2048, 512, 512)): 7e-6}))
    assert cost.estimates([rows(2048, 512, 512, offset) for offset in (0, 2048, 6144)]) == [7e-6] * 3
    assert not cost.unmeasured
