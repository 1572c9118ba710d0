"""Products whose factors lie in 16 bits: what is stored, what is rounded by which text, what it costs, and how far factors may reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import einnet
from benchmarks.models.net import Net
from einnet.cli import main
from einnet.compile.targets.cuda import recording
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.evidence import constants
from einnet.evidence.running import OnHost, overlaps, plan_of
from einnet.expr.nodes import Tensor
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Matmul, Plan, Post, View, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32, MATHS
from einnet.runtime.cuda import nvrtc, shim, shortened
from einnet.runtime.cuda.archive import load, read, save, write
from einnet.runtime.cuda.device import Device
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.profiling import laws, measure, precompile, profile
from einnet.runtime.cuda.profiling.costs import CudaCost
from einnet.runtime.cuda.program import CudaProgram, Gemm, Rounded
from einnet.runtime.rounded import decoded, encoded, rounded
from einnet.search.settings import Settings
from tests.instantiate.cuda_cases import case
from tests.models import random_inputs, two_layers
from tests.runtime.cuda.programs import reference, worst
from tests.runtime.cuda.standin import install

SHORT = ["f16", "bf16"]
needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")
PRODUCT = Matmul(dense_view("a", (24, 40)), dense_view("w", (40, 16)), dense_view("c", (24, 16)))
SCORES = Matmul(View("a", (2, 3, 8, 16), (384, 16, 48, 1)), View("b", (2, 3, 16, 24), (1152, 16, 1, 48)), dense_view("c", (2, 3, 8, 24)))
GRAM = Matmul(dense_view("a", (24, 24)), dense_view("a", (24, 24)), dense_view("c", (24, 24)))
POSTED = replace(PRODUCT, post=(Post("add", dense_view("p", (1, 16))), Post("relu")))
BANDS = Matmul(View("a", (3, 16, 24), (96, 24, 1)), View("w", (3, 24, 8), (0, 8, 1)), dense_view("c", (3, 16, 8)))
KERNELS = {"product": PRODUCT, "scores": SCORES, "with itself": GRAM, "bias and relu": POSTED, "overlapping": BANDS}


def plan_with(kernel: Matmul, weight: str = "w", seed: int = 0, scale: float = 1.0) -> tuple[Plan, dict[str, np.ndarray]]:
    """The kernel as a plan, `weight` a constant; values of all that it reads."""
    rng = np.random.default_rng(seed)
    sizes: dict[str, int] = {}
    for v in (*kernel.operand_views, kernel.c):
        sizes[v.buffer] = max(sizes.get(v.buffer, 0), 1 + v.offset + sum(s * (n - 1) for n, s in zip(v.shape, v.strides, strict=True)))
    values = {b: (scale * rng.standard_normal(n)).astype(np.float32) for b, n in sizes.items() if b != "c"}
    roles = {b: "output" if b == "c" else "constant" if b == weight else "input" for b in sizes}
    whole = {b: dense_view(b, (n,)) for b, n in sizes.items()}
    given = tuple((b, whole[b]) for b, role in roles.items() if role == "input")
    constants = {b: x for b, x in values.items() if roles[b] == "constant"}
    return Plan(tuple(Buffer(b, n, "f32", roles[b]) for b, n in sizes.items()), (kernel,), given, (("c", whole["c"]),), constants), values


def run(program: CudaProgram, values: dict[str, np.ndarray], kind: str | None = None) -> np.ndarray:
    return Host(program, kind)({n: values[n] for n, _ in program.inputs})["c"]


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("kind", [pytest.param("text", marks=needs_compiler), "expression"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_factors_are_rounded_and_their_products_added_in_float32(name, kind, kernel):
    arithmetic = ARITHMETICS[name]
    plan, values = plan_with(KERNELS[kernel].in_arithmetic(arithmetic))
    found = lower(plan)
    (step,) = found.steps
    assert isinstance(step, Rounded)
    factors = {v.buffer for v in KERNELS[kernel].inputs}
    plain, _ = plan_with(KERNELS[kernel])
    by_hand = {b: rounded(x, arithmetic) if b in factors else x for b, x in values.items()}
    wanted = run(lower(replace(plain, constants={b: by_hand[b] for b in plain.constants})), by_hand)
    assert np.array_equal(run(found, values, kind), wanted) and np.any(wanted)
    assert not np.array_equal(wanted, run(lower(plain), values)), "something was rounded"


@pytest.mark.parametrize("name", SHORT)
def test_constants_lie_in_16_bits_and_are_not_rounded_in_an_inference(name):
    plan, values = plan_with(PRODUCT.in_arithmetic(ARITHMETICS[name]))
    found = lower(plan)
    assert found.places["w"].dtype == name and found.constants["w"].dtype.itemsize == 2
    assert found.constant_bytes < lower(plan_with(PRODUCT)[0]).constant_bytes
    (step,) = found.steps
    assert isinstance(step, Rounded) and len(step.launches) == 1 and step.inner.b == step.product.b
    assert np.array_equal(plan_of(found).constants["w"], rounded(values["w"], ARITHMETICS[name]))
    assert found.launches == 2


def test_what_others_read_too_is_left_alone():
    f16 = ARITHMETICS["f16"]
    plan, _ = plan_with(PRODUCT.in_arithmetic(f16))
    other = replace(PRODUCT, c=dense_view("d", (24, 16)))
    buffers = (*plan.buffers, Buffer("d", 384, "f32", "temporary"))
    mixed = replace(plan, buffers=buffers, kernels=(*plan.kernels, other))
    assert [k.factors.name for k in shortened.settled(mixed).kernels] == ["tf32", "f32"], "no weight is rounded in an inference"
    both = replace(mixed, kernels=(*plan.kernels, other.in_arithmetic(f16)))
    assert shortened.settled(both) == both
    aside = replace(PRODUCT, b=View("w", (40, 16), (16, 1), 4)).in_arithmetic(f16)
    assert [k.factors.name for k in shortened.settled(plan_with(aside)[0]).kernels] == ["tf32"], "it begins between two multiples of 16 bytes"
    assert [k.factors.name for k in shortened.settled(plan_with(PRODUCT.in_arithmetic(f16), scale=1e5)[0]).kernels] == ["tf32"], "too large"
    large = plan_with(PRODUCT.in_arithmetic(ARITHMETICS["bf16"]), scale=1e5)[0]
    assert shortened.settled(large) == large


def test_libraries_want_rows_that_begin_at_multiples_of_16_bytes():
    assert all(map(shortened.suits, KERNELS.values()))
    assert not shortened.suits(Matmul(dense_view("a", (24, 44)), dense_view("w", (44, 16)), dense_view("c", (24, 16))))


@needs_compiler
@pytest.mark.parametrize("name", SHORT)
def test_the_text_rounds_every_number_as_is_said(name):
    arithmetic = ARITHMETICS[name]
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    edges = np.arange(0, 1 << 32, 1 << 12, dtype=np.uint64).astype(np.uint32)
    middles = np.concatenate([edges + np.uint32(d) for d in (0, 1, 0xFFF)])
    near = np.float32(2.0**-25) * np.arange(1, 4097, dtype=np.float32) / 4
    values = np.concatenate([bits.view(np.float32), middles.view(np.float32), near, -near])
    count = values.size // 16
    kernel = Matmul(dense_view("a", (count, 16)), dense_view("w", (16, 8)), dense_view("c", (count, 8))).in_arithmetic(arithmetic)
    plan, _ = plan_with(kernel)
    host = Host(lower(plan), "text")
    host.flat("a")[...] = values[: count * 16]
    host._calls_of[0][0]()
    got = decoded(host.flat("scratch:0")[: count * 16], arithmetic)
    assert np.array_equal(got, rounded(values[: count * 16], arithmetic), equal_nan=True)
    assert np.array_equal(got, decoded(encoded(values[: count * 16], arithmetic), arithmetic), equal_nan=True)


@pytest.mark.parametrize("name", SHORT)
def test_programs_are_stored(name, tmp_path):
    program = lower(plan_with(POSTED.in_arithmetic(ARITHMETICS[name]))[0])
    save(tmp_path / "p", program)
    again = load(tmp_path / "p")
    assert again == program and np.array_equal(again.constants["w"], program.constants["w"])
    assert not overlaps(again)


@needs_compiler
def test_kernels_run_alone_for_checks_hold_numbers():
    program = lower(plan_with(PRODUCT.in_arithmetic(ARITHMETICS["bf16"]))[0])
    runner = OnHost(program)
    given = {"a": np.full(960, 2.0, np.float32), "w": np.full(640, 3.0, np.float32), "c": np.zeros(384, np.float32)}
    before = runner.host.holds("w")
    assert np.all(runner.run(0, given)["c"] == 240)
    assert np.array_equal(runner.host.holds("w"), before), "constants are as they were"


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
@pytest.mark.parametrize("name", SHORT)
def test_the_compiler_for_cards_takes_the_text(name, architecture):
    program = lower(plan_with(SCORES.in_arithmetic(ARITHMETICS[name]))[0])
    assert len(program.texts) == 2
    for text in program.texts.values():
        assert nvrtc.compile_text(text, architecture).startswith(b"\x7fELF")
        assert not any(r.spilled for r in nvrtc.resources(text, architecture).values())


@needs_compiler
@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_library_is_asked_for_products_of_16_bits(name, kernel, monkeypatch):
    card = install(monkeypatch)
    plan, values = plan_with(KERNELS[kernel].in_arithmetic(ARITHMETICS[name]))
    program = lower(plan)
    got = Device(program)({n: values[n] for n, _ in program.inputs})["c"]
    np.testing.assert_allclose(got, run(program, values), rtol=1e-5, atol=1e-5)
    assert any("matmul 68" in line for line in card.log), "products of 16 bits are added in float32"


# --------------------------------------------------------------------------------------------------------------------------- prices

WIDE = Matmul(dense_view("a", (2048, 2048)), dense_view("w", (2048, 2048)), dense_view("c", (2048, 2048)))
SMALL = Matmul(dense_view("a", (16, 64)), dense_view("w", (64, 64)), dense_view("c", (16, 64)))


def cost(math: str, **change: object) -> CudaCost:
    return CudaCost(replace(profile.shipped(math), **change), lambda name: name == "w")


@pytest.mark.parametrize("math", ["fp16", "bf16"])
def test_a_product_runs_in_16_bits_where_that_is_estimated_to_be_faster(math):
    fine, short = cost("tf32"), cost(math)
    assert short.in_arithmetic(WIDE).factors == MATHS[math] and short.in_arithmetic(SMALL).factors.name == "tf32"
    assert short.seconds(WIDE) < fine.seconds(WIDE) and short.seconds(SMALL) == fine.seconds(SMALL)
    assert short.seconds(WIDE) > fine.seconds(WIDE) / 2 and short.seconds(short.in_arithmetic(WIDE)) == short.seconds(WIDE)
    assert WIDE in short.unmeasured, "no card has timed it"
    conv = Conv(dense_view("x", (1, 64, 9, 9)), dense_view("w", (1, 64, 64, 3, 3)), dense_view("y", (1, 64, 9, 9)), (1, 1), (1, 1), (1, 1), (1, 1))
    assert short.seconds(conv) == fine.seconds(conv) and short.in_arithmetic(conv).factors.name == "tf32"
    softmax = case("softmax")
    assert short.seconds(softmax) == fine.seconds(softmax) and short.in_arithmetic(softmax) == fine.in_arithmetic(softmax)


def test_what_changes_is_rounded_at_a_price():
    constant, moving = cost("fp16"), CudaCost(profile.shipped("fp16"))
    law = moving.laws.generated
    assert moving.seconds(WIDE.in_arithmetic(MATHS["fp16"])) - constant.seconds(WIDE) == pytest.approx(law.begin + laws.traffic(6 * 2048**2, law))
    plan, _ = plan_with(PRODUCT)
    assert constant.like(plan).constant("w") and not constant.like(plan).constant("a") and cost("tf32").like(plan).finer is None


def test_recorded_times_decide():
    name = profile.key(WIDE)
    slow, fast = (cost("fp16", seconds={name: t}) for t in (1.0, 1e-6))
    assert slow.in_arithmetic(WIDE).factors.name == "tf32" and slow.seconds(WIDE) == cost("tf32").seconds(WIDE)
    assert fast.in_arithmetic(WIDE).factors.name == "f16" and fast.seconds(WIDE) == 1e-6 and not fast.unmeasured
    fast = cost("fp16")
    fast.refuse([WIDE.in_arithmetic(MATHS["fp16"])])
    assert fast.in_arithmetic(WIDE).factors.name == "tf32" and fast.seconds(WIDE) == cost("tf32").seconds(WIDE)


def test_estimates_are_no_part_of_a_profile(tmp_path):
    """Of 16 bits it has the times of some products."""
    found = profile.load(Path("profiles/h100.json"), "fp16")
    assert found.laws is None and 10 < len(found.seconds) < 100 and found.finer is not None and found.finer.math == "tf32"
    assert profile.laws_of(found).products.rate == 2 * profile.laws_of(found.finer).products.rate
    profile.save(tmp_path / "p.json", replace(found, seconds={"k": 1.0}))
    assert profile.held(tmp_path / "p.json") == ["fp16"]
    again = profile.load(tmp_path / "p.json", "fp16")
    assert again.seconds == {"k": 1.0} and profile.laws_of(again) == profile.laws_of(found)


@needs_compiler
def test_products_are_timed_in_16_bits_with_what_rounds_before_them(tmp_path, monkeypatch):
    install(monkeypatch)
    for where, name, value in ((measure, "FLUSH", 1 << 12), (precompile, "PRODUCT", 16), (precompile, "COPY", 64)):
        monkeypatch.setattr(where, name, value)
    odd = Matmul(dense_view("a", (8, 9)), dense_view("w", (9, 8)), dense_view("c", (8, 8)))
    maths = recording.with_finer(["bf16"])
    assert maths == ["bf16", "tf32"]
    softmax = case("softmax")
    wanted = {k: recording.wanted_in(k, maths) for k in (PRODUCT, odd, softmax)}
    made = precompile.prepare(wanted, "sm_90", lambda name: name == "w")
    (short,) = [k for k in made.kernels if k.math == ("bf16",)]
    assert isinstance(short.steps[-1], Gemm) and short.steps[-1].a.buffer == "scratch:0", "the product is of what was rounded"
    measure.measure(made, tmp_path / "t", 60.0, lambda line: None)
    _, rows = measure.read_times(tmp_path / "t")
    assert {(r.key, r.math, r.calls) for r in rows if r.kind == "Matmul"} == {
        (profile.key(PRODUCT), "bf16", 2), (profile.key(PRODUCT), "tf32", 1), (profile.key(odd), "tf32", 1),
    }  # fmt: skip
    assert not any(r.failed for r in rows)
    found = recording.merge(None, [tmp_path / "t"], "bf16")
    assert found.seconds.keys() == {profile.key(PRODUCT), profile.key(softmax)}


def test_what_has_a_time_in_tf32_is_not_asked_for_again():
    product, softmax = profile.key(PRODUCT), profile.key(case("softmax"))
    short = replace(profile.shipped("fp16"), finer=replace(profile.shipped("tf32"), seconds={product: 1.0, softmax: 1.0}))
    assert recording.unknown(PRODUCT, short) and not recording.unknown(case("softmax"), short)


# --------------------------------------------------------------------------------------------------------------------------- whole models


def scaled(factor: float) -> onnx.ModelProto:
    """A wide layer of what is so many times its input, and one more, so that the number is no scale of the weights."""
    net = Net("scaled", 0)
    x = net.input("x", (256, 1024))
    large = net.node("Mul", "large", [x, net.constant("factor", np.float32(factor))], (256, 1024))
    large = net.node("Add", "more", [large, net.constant("one", np.float32(1))], (256, 1024))
    return net.finish(net.node("MatMul", "y", [large, net.normal("w", (1024, 1024), 0.03)], (256, 1024)))


@needs_compiler
@pytest.mark.parametrize(("math", "limit"), [("fp16", 8 * 2.0**-11), ("bf16", 8 * 2.0**-8)])
def test_a_model_in_16_bits_is_verified_with_its_bound(math, limit, tmp_path, capsys):
    model = two_layers(rows=256, width=1024)
    onnx.save(model, tmp_path / "m.onnx")
    made = optimize_cuda(model, Settings(backend="cuda", derive=False, time_budget=1), math=math)
    assert any(isinstance(s, Rounded) for s in made.program.steps)
    assert made.record.verification.passed and made.record.verification.tolerance == limit
    assert made.record.totals.unmeasured and any(f"in {MATHS[math].name}" in k.kernel for k in made.record.kernels)
    assert len(made.record.kernels) == len(made.program.steps)
    assert bool(made.record.notes) == (math == "fp16"), "bfloat16 reaches as far as float32"
    made.save(tmp_path / "p.einnet")
    stored, inputs = einnet.load(tmp_path / "p.einnet"), random_inputs(model)
    apart = worst(stored.on_host(inputs), reference(model, inputs))
    assert MATHS[math].roundoff / 64 < apart < limit
    assert main(["verify", str(tmp_path / "m.onnx"), str(tmp_path / "p.einnet")]) == 0
    out = capsys.readouterr().out
    assert f"round their factors to {MATHS[math].name}" in out
    assert main(["explain", str(tmp_path / "p.einnet")]) == 0
    out = capsys.readouterr().out
    assert "~" in out and f"in {MATHS[math].name}" in out


@needs_compiler
def test_weights_that_were_changed_in_16_bits_are_noticed(tmp_path, capsys):
    model = two_layers(rows=256, width=1024)
    onnx.save(model, tmp_path / "m.onnx")
    made = optimize_cuda(model, Settings(backend="cuda", derive=False, time_budget=1), math="bf16")
    made.save(tmp_path / "p.einnet")
    kept = read(tmp_path / "p.einnet")
    name = next(n for n, p in kept.program.places.items() if p.constant and p.dtype == "bf16")
    values = kept.program.constants[name].copy()
    values.reshape(-1)[7] ^= 1
    write(tmp_path / "p.einnet", replace(kept, program=replace(kept.program, constants={**kept.program.constants, name: values})))
    assert main(["verify", str(tmp_path / "m.onnx"), str(tmp_path / "p.einnet")]) == 1
    assert "constant" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*SHORT, "tf32"])
def test_a_computed_constant_is_its_value_rounded_and_no_other_number(name):
    """No number of the arithmetic next to the right one passes."""
    arithmetic = ARITHMETICS[name]
    value = np.random.default_rng(0).standard_normal(512)
    held = rounded(value.astype(np.float32), arithmetic)
    assert constants.nearly(held, value, arithmetic).all()
    step = np.uint32(1 << (F32.digits - arithmetic.digits))
    for other in ((held.view(np.uint32) + step).view(np.float32), (held.view(np.uint32) - step).view(np.float32)):
        assert constants.nearly(other, value, arithmetic).sum() <= 1
    scope = parse("L[i<512] 2*W[i]", {"W": Tensor("W", (512,), weight=True)})
    given = {"W": (value / 2).astype(np.float32)}
    told = (scope, held, given, {"W": Tensor("W", (512,), weight=True)}, {})
    assert constants.differs(*told, arithmetic) == "" and constants.differs(*told), "float32 has no excuse"


@needs_compiler
def test_factors_that_come_near_the_largest_number_stay_in_tf32():
    settings = Settings(backend="cuda", derive=False, time_budget=1)
    near, far = (optimize_cuda(scaled(factor), settings, math="fp16") for factor in (100.0, 1e4))
    assert any(isinstance(s, Rounded) for s in near.program.steps) and "65504" in near.record.notes[-1]
    assert [s.factors.name for s in far.program.steps if isinstance(s, Gemm)] == ["tf32"] and far.record.verification.passed
    assert not far.record.notes
    wide = optimize_cuda(scaled(1e4), settings, math="bf16")
    assert any(isinstance(s, Rounded) for s in wide.program.steps) and wide.record.verification.passed


def test_generated_kernels_and_what_is_not_short_have_no_16_bits():
    assert not isinstance(case("softmax"), Matmul) and isinstance(case("softmax"), EOperator)
    assert [a.name for a in MATHS.values() if a.short] == SHORT and not F32.short
