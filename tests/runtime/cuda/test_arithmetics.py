"""Products that round their factors: how the host plays them, which generated kernels do it, what that costs, and what a program keeps of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from einnet.compile.targets.cuda import recording
from einnet.instantiate.kernels import Conv, EOperator, Matmul, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32
from einnet.runtime.cuda import tuning
from einnet.runtime.cuda.archive import load, save
from einnet.runtime.cuda.gemm import gemm
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.profiling import precompile
from einnet.runtime.cuda.profiling.card_files import Detail
from einnet.runtime.cuda.profiling.costs import CudaCost, in_pieces
from einnet.runtime.cuda.profiling.profile import key, shipped
from einnet.runtime.rounded import rounded
from einnet.runtime.serial import kernel_json, read_kernel
from einnet.search.settings import rounded as widened
from tests.evidence.test_roundoff import ROUND
from tests.instantiate.cuda_cases import case, operator

TF32 = ARITHMETICS["tf32"]
SQUARE = operator("L[i<1024,j<1024] Σ[k<1024] A[i,k]*B[k,j]", {"A": (1024, 1024), "B": (1024, 1024)})
PRODUCT = Matmul(dense_view("a", (24, 40)), dense_view("b", (40, 16)), dense_view("c", (24, 16)))
CONV = Conv(dense_view("x", (1, 4, 6, 5)), dense_view("w", (1, 6, 4, 3, 3)), dense_view("y", (1, 6, 6, 5)), (1, 1), (1, 1), (1, 1), (1, 1))


@pytest.mark.parametrize("name", ["tf32", "f16", "bf16"])
def test_numbers_are_rounded_to_the_nearest(name):
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32) * np.float32(100)
    assert np.array_equal(rounded(x, ARITHMETICS[name]), ROUND[name](x)), "no random number lies in the middle of two"
    assert np.all(np.abs(rounded(x, ARITHMETICS[name]) - x) <= ARITHMETICS[name].roundoff * np.abs(x))
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], np.float32)
    assert np.array_equal(rounded(odd, ARITHMETICS[name]), odd, equal_nan=True)
    assert np.signbit(rounded(odd, ARITHMETICS[name])[4])


@pytest.mark.parametrize(("name", "digits", "up"), [("tf32", 10, True), ("f16", 10, False), ("bf16", 7, False)])
def test_what_lies_in_the_middle_goes_where_hardware_takes_it(name, digits, up):
    """Away from zero in TF32, to the even number in the shorter types."""
    middle = np.array([1 + 2.0 ** -(digits + 1), -1 - 2.0 ** -(digits + 1)], np.float32)
    assert np.array_equal(rounded(middle, ARITHMETICS[name]), (1 + 2.0**-digits if up else 1.0) * np.sign(middle))


def test_a_number_beyond_float16_is_an_infinity():
    assert np.array_equal(rounded(np.array([65504, 65519, 65520, -1e6], np.float32), ARITHMETICS["f16"]), [65504, 65504, np.inf, -np.inf])


@pytest.mark.parametrize("kernel", [PRODUCT, CONV], ids=["product", "convolution"])
def test_the_host_multiplies_rounded_factors(kernel):
    rng, results = np.random.default_rng(1), {}
    names = [v.buffer for v in kernel.inputs]
    given = {v.buffer: rng.standard_normal(v.shape).astype(np.float32) for v in kernel.inputs}
    for arithmetic, values in ((TF32, given), (F32, {n: rounded(x, TF32) for n, x in given.items()})):
        plan = replace(precompile.plan_of(kernel.in_arithmetic(arithmetic)), constants={})
        plan = replace(plan, buffers=tuple(replace(b, role="input" if b.name in names else b.role) for b in plan.buffers))
        plan = replace(plan, inputs=tuple((n, dense_view(n, (given[n].size,))) for n in names))
        results[arithmetic.name] = Host(lower(plan))({n: values[n].reshape(-1) for n in names})[kernel.result.buffer]
    assert np.array_equal(results["tf32"], results["f32"])
    assert np.any(results["tf32"])


def test_a_generated_kernel_rounds_where_it_is_told_to():
    plain, pieces = (lower(precompile.plan_of(k)) for k in (SQUARE, SQUARE.in_arithmetic(TF32)))
    assert not any("multiply_piece" in text for text in plain.texts.values())
    assert all("multiply_piece" in text for text in pieces.texts.values())
    assert plain.texts.keys().isdisjoint(pieces.texts), "two texts have two names, and are kept apart"
    assert key(SQUARE) != key(SQUARE.in_arithmetic(TF32))


def test_no_code_rounds_to_what_it_cannot():
    from einnet.runtime.cuda.lower import Refusal

    with pytest.raises(Refusal, match="round no factors to i8u8"):
        lower(precompile.plan_of(SQUARE.in_arithmetic(ARITHMETICS["i8u8"])))


def test_arithmetics_are_stored(tmp_path):
    for kernel in (PRODUCT, CONV, SQUARE):
        program = lower(precompile.plan_of(kernel.in_arithmetic(TF32)))
        save(tmp_path / "p", program)
        assert load(tmp_path / "p") == program
        assert [s.kernel.factors if not isinstance(s, Conv) else s.factors for s in program.steps] == [TF32]
    told = kernel_json(SQUARE.in_arithmetic(TF32), lambda model: 0)
    assert read_kernel(told, lambda n: b"") == SQUARE.in_arithmetic(TF32)
    assert "arithmetic" not in kernel_json(SQUARE, lambda model: 0), "older programs are read as they were written"


def test_choices_of_algorithms_in_float32_are_found_again():
    step = gemm(PRODUCT)
    told = {name: value for name, value in asdict(step).items() if name != "arithmetic"}
    assert tuning.step_key(step) == tuning.hashlib.blake2b(tuning.canonical({"gemm": told}).encode(), digest_size=16).hexdigest()
    assert tuning.step_key(step) != tuning.step_key(replace(step, arithmetic="tf32"))


# --------------------------------------------------------------------------------------------------------------------------- prices


def known(math: str, **seconds: float) -> CudaCost:
    """Costs that have recorded times of SQUARE: `plain`, and `pieces` in TF32."""
    every = {"plain": SQUARE, "pieces": SQUARE.in_arithmetic(TF32)}
    details = {key(every[n]): Detail(kind="EOperator", seconds=(t, 0, 1), hot=(t, 0, 1), calls=1, arithmetic="tf32" if n == "pieces" else None)
               for n, t in seconds.items()}  # fmt: skip
    profile = replace(shipped(math), seconds={key(every[n]): t for n, t in seconds.items()}, details=details)
    return CudaCost(profile)


def chosen(cost: CudaCost) -> str:
    found = cost.in_arithmetic(SQUARE)
    assert isinstance(found, EOperator)
    return found.arithmetic.name


def test_what_no_card_has_timed_is_taken_where_the_model_says_so_by_a_margin_and_priced_as_without():
    strict, fast = known("fp32"), known("tf32")
    assert in_pieces(SQUARE)
    assert (chosen(strict), chosen(fast)) == ("f32", "tf32")
    small = case("softmax")
    assert not in_pieces(small) and fast.in_arithmetic(small) == small
    assert fast.seconds(SQUARE) == fast.seconds(SQUARE.in_arithmetic(TF32))
    assert set(fast.unmeasured) == {SQUARE, SQUARE.in_arithmetic(TF32)}


def test_recorded_times_decide_where_there_are_some():
    assert chosen(known("tf32", plain=1e-3)) == "f32", "one that was timed before one that was not"
    assert known("tf32", plain=1e-3).seconds(SQUARE) == 1e-3, "prices of what was timed stay"
    assert chosen(known("tf32", plain=1e-4, pieces=9e-5)) == "tf32"
    assert chosen(known("tf32", plain=1e-4, pieces=2e-4)) == "f32"
    assert chosen(known("fp32", plain=1e-4, pieces=9e-5)) == "f32"
    cost = known("tf32", plain=1e-4, pieces=9e-5)
    assert cost.estimates([SQUARE, SQUARE.in_arithmetic(TF32)]) == [9e-5, 9e-5] and not cost.unmeasured
    cost = known("tf32", plain=1e-4, pieces=2e-4)
    assert cost.estimates([SQUARE, SQUARE.in_arithmetic(TF32)]) == [1e-4, 2e-4] and not cost.unmeasured
    assert known("fp32", plain=1e-4, pieces=9e-5).seconds(SQUARE) == 1e-4


def test_what_reads_the_tensor_that_it_writes_has_no_pieces():
    alias = replace(SQUARE, out=replace(SQUARE.out, buffer=SQUARE.operand_views[0].buffer))
    assert not in_pieces(alias)


def test_products_cost_the_same_whether_they_tell_their_arithmetic():
    for math in ("fp32", "tf32"):
        cost = CudaCost(shipped(math))
        for kernel in (PRODUCT, CONV):
            assert cost.seconds(cost.in_arithmetic(kernel)) == cost.seconds(kernel)
            assert cost.in_arithmetic(kernel).factors.name == {"fp32": "f32", "tf32": "tf32"}[math]


def test_both_kernels_are_asked_for_and_each_is_wanted_where_it_may_run():
    fast, strict = CudaCost(shipped("tf32")), CudaCost(shipped("fp32"))
    pieces = SQUARE.in_arithmetic(TF32)
    assert recording.variants(SQUARE, fast) == recording.variants(pieces, fast) == [SQUARE, pieces]
    assert recording.variants(SQUARE, strict) == [SQUARE]
    assert recording.wanted_in(SQUARE, ["fp32", "tf32"]) == ["fp32"]
    assert recording.wanted_in(pieces, ["fp32", "tf32"]) == ["tf32"]
    assert recording.wanted_in(pieces, ["fp32"]) == []
    assert recording.wanted_in(PRODUCT, ["fp32", "tf32"]) == ["fp32", "tf32"]


def test_times_of_kernels_that_round_belong_to_their_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from einnet.runtime.cuda.profiling import measure
    from tests.runtime.cuda.standin import install

    install(monkeypatch)
    for where, name, value in ((measure, "FLUSH", 1 << 12), (precompile, "PRODUCT", 16), (precompile, "COPY", 64)):
        monkeypatch.setattr(where, name, value)
    op = operator("L[i<8,j<8] Σ[k<8] A[i,k]*B[k,j]", {"A": (8, 8), "B": (8, 8)})
    made = precompile.prepare({op: ["fp32"], op.in_arithmetic(TF32): ["tf32"]}, "sm_90")
    measure.measure(made, tmp_path / "t", 60.0, lambda line: None)
    fp32, tf32 = (recording.merge(None, [tmp_path / "t"], math) for math in ("fp32", "tf32"))
    assert fp32.seconds.keys() == {key(op)}
    assert tf32.seconds.keys() == {key(op), key(op.in_arithmetic(TF32))}
    assert [tf32.details[key(k)].arithmetic for k in (op, op.in_arithmetic(TF32))] == [None, "tf32"]


def test_limits_are_those_of_the_arithmetic():
    assert widened(1e-4, F32) == 1e-4
    assert widened(1e-4, TF32) == widened(1e-4, ARITHMETICS["f16"]) == 8 * 2.0**-11
    assert widened(1e-4, ARITHMETICS["bf16"]) == 8 * 2.0**-8
    assert widened(0.5, TF32) == 0.5


def test_the_shipped_record_tells_which_kernels_rounded():
    """Those are known in TF32 alone, by keys of their own."""
    rounded = {name: d.arithmetic for name, d in shipped("tf32").details.items() if d.arithmetic}
    assert len(rounded) >= 10
    assert set(rounded.values()) == {"tf32"}
    assert not rounded.keys() & shipped("fp32").seconds.keys()
