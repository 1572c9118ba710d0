"""What only a card can show: that the libraries take what they are told, and that results agree with ONNX Runtime (`make gpu`)."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.models import build
from einnet.api.load import load as load_program
from einnet.compile.targets.cuda.target import optimize_cuda
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.kernels import Conv, EOperator, Matmul, Post, View, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.runtime.cuda import parts
from einnet.runtime.cuda.archive import save
from einnet.runtime.cuda.device import Device
from einnet.runtime.cuda.driver import Driver
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.profiling import measure, pack, precompile
from einnet.runtime.cuda.profiling.profile import key
from einnet.runtime.cuda.tuning import read_tuning, tuning_file
from einnet.runtime.rounded import rounded
from einnet.search.settings import Settings
from tests.instantiate.cuda_cases import CASES, case, operator
from tests.models import random_inputs, tiny, with_opaque
from tests.runtime.cuda.programs import own_plan, reference, worst
from tests.runtime.cuda.test_device import check, convolution, lowered, product
from tests.runtime.cuda.test_lower import products
from tests.runtime.cuda.test_models import SEVEN
from tests.runtime.cuda.test_shortened import KERNELS, plan_with

ABSENT = parts.missing()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(ABSENT), reason="; ".join(ABSENT))]
ERROR = {"fp32": 1e-4, "tf32": 3e-2}
MATHS = tuple(ERROR)


@pytest.mark.parametrize("math", ["fp32", "tf32"])
@pytest.mark.parametrize("name", SEVEN)
def test_the_models_own_operators(name, math):
    model = build(name)
    inputs, device = random_inputs(model), Device(lower(own_plan(model)), math)
    wanted, got = reference(model, inputs), device(inputs)
    assert worst(got, wanted) < ERROR[math]
    again = device(inputs)
    assert all(np.array_equal(again[n], got[n]) for n in got), "the second run differs"


@pytest.mark.parametrize("name", SEVEN)
def test_derived_programs(name):
    model = tiny(name)
    found = optimize_cuda(model, Settings(backend="cuda", max_depth=3, time_budget=20, allow="precision"))
    inputs = random_inputs(model)
    assert worst(Device(found.program)(inputs), reference(model, inputs)) < 1e-3


def test_opaque_nodes():
    model = with_opaque()
    inputs = random_inputs(model)
    assert worst(Device(lower(own_plan(model)))(inputs), reference(model, inputs)) < 1e-4


@settings(max_examples=50)
@given(products())
def test_products_with_all_strides(kernel):
    check(kernel)


BANDS = Matmul(View("a", (3, 4, 6), (4, 2, 1)), View("b", (3, 6, 5), (0, 5, 1)), dense_view("c", (3, 4, 5)))
RESIDUAL = (Post("add", dense_view("p", (1, 6, 1, 1))), Post("add", dense_view("r", (1, 6, 5, 5))), Post("relu"))


@pytest.mark.parametrize("math", ["fp32", "tf32"])
@pytest.mark.parametrize("kernel", [product(), BANDS, convolution()], ids=["product", "overlapping batches", "convolution"])
def test_kernels_on_integers_are_exact(kernel, math):
    check(kernel, math)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_products_of_factors_in_16_bits(name, kernel):
    """The card rounds as the host does, and adds in float32."""
    plan, values = plan_with(KERNELS[kernel].in_arithmetic(ARITHMETICS[name]))
    program, given = lower(plan), {n: values[n] for n, _ in plan.inputs}
    got, wanted = Device(program)(given)["c"], Host(program)(given)["c"]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("math", ["tf32", "fp16", "bf16"])
@pytest.mark.parametrize("name", SEVEN)
def test_derived_programs_that_round(name, math):
    model = tiny(name)
    found = optimize_cuda(model, Settings(backend="cuda", max_depth=3, time_budget=20, allow="precision"), math=math)
    inputs = random_inputs(model)
    assert worst(Device(found.program)(inputs), reference(model, inputs)) < found.record.verification.tolerance


def test_sums_on_tensor_cores():
    op = operator("L[i<256,j<192] Σ[k<320] A[i,k]*B[k,j]", {"A": (256, 320), "B": (320, 192)})
    program = lower(precompile.plan_of(op.in_arithmetic(ARITHMETICS["tf32"])))
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in op.operands}
    (got,) = Device(program)({n: v.reshape(-1) for n, v in values.items()}).values()
    wanted = evaluate(op.scope, {n: rounded(v, ARITHMETICS["tf32"]) for n, v in values.items()})
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, atol=1e-4 * np.abs(wanted).max())


def test_bias_residual_and_relu_are_one_kernel():
    device = check(replace(convolution(), post=RESIDUAL))
    assert [type(s) for s in device.program.steps] == [Conv]


@pytest.mark.parametrize("math", ["fp32", "tf32"])
@pytest.mark.parametrize(("w", "y"), [((160, 5, 25, 160, 1), (1024, 3072, 32, 1)), ((160, 5, 25, 160, 1), (5120, 1024, 32, 1))], ids=["w y", "w"])
def test_convolutions_in_layouts_that_cudnn_does_not_have(w, y, math):
    """Filters whose channels stand outermost, and results whose channels do: as the first terms of a sum of rows are."""
    x = dense_view("x", (3, 32, 32, 32))
    check(Conv(x, View("w", (1, 5, 32, 1, 5), w), View("y", (3, 5, 32, 32), y), (1, 1), (1, 1), (0, 2), (0, 2)), math)


@pytest.mark.parametrize("name", CASES)
def test_generated_kernels(name):
    op = case(name)
    program = lower(precompile.plan_of(EOperator(op.scope, tuple((n, View(n, v.shape, v.strides)) for n, v in op.operands), op.out)))
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in op.operands}
    (got,) = Device(program)({n: v.reshape(-1) for n, v in values.items()}).values()
    wanted = evaluate(op.scope, values)
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("kernel", [product(), convolution()], ids=["product", "convolution"])
def test_what_was_chosen_is_found_again(kernel):
    program, _ = lowered(kernel)
    first = Device(program)
    assert Device(program, tuning=read_tuning(tuning_file(first.tuning))).tuned == 0


@pytest.fixture
def program(tmp_path):
    save(tmp_path / "m.einnet", lower(own_plan(tiny("resnet18"))))
    return load_program(tmp_path / "m.einnet")


def test_tensors_of_torch_and_cupy_stay_on_the_card(program):
    """On a stream of their own, one behind the other, without waiting: what follows sees what came before."""
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    (name,) = program.inputs
    values = random_inputs(tiny("resnet18"))[name]
    wanted = program(values)
    with torch.cuda.stream(torch.cuda.Stream()):
        for n in range(1, 4):
            x = torch.full(values.shape, float(n), device="cuda") * torch.from_numpy(values).cuda() / n
            found = program(x)
            assert all(y.is_cuda for y in found.values())
            kept = {k: y.clone() for k, y in found.items()}
        assert all(np.allclose(kept[k].cpu().numpy(), y, rtol=1e-5, atol=1e-5) for k, y in wanted.items())
    with cupy.cuda.Stream(non_blocking=True):
        found = program(cupy.asarray(values))
        assert all(np.allclose(cupy.asnumpy(found[k]), y, rtol=1e-5, atol=1e-5) for k, y in wanted.items())
    own = program.tensors()
    own[name][...] = cupy.asarray(values)
    cupy.cuda.get_current_stream().synchronize()
    assert program(own[name])[next(iter(wanted))].data.ptr == own[next(iter(wanted))].data.ptr


def test_several_programs_at_once():
    """Programs have memory and a stream of their own: launched without waiting, in turns, each gives what it gives alone."""
    models = [tiny(n) for n in ("fsrcnn", "dcgan", "resnet18")]
    inputs = [random_inputs(m) for m in models]
    devices = [Device(lower(own_plan(m))) for m in models]
    alone = [device(x) for device, x in zip(devices, inputs, strict=True)]
    for _ in range(5):
        for device, x in zip(devices, inputs, strict=True):  # an inference may write where its inputs lay
            device.load(x)
        for device in devices:
            device.execute()
        for device, wanted in zip(devices, alone, strict=True):
            assert all(np.array_equal(y, wanted[n]) for n, y in device.fetch().items())


def test_kernels_are_timed(tmp_path):
    """What was prepared as plain data is timed; a small product takes longer than nothing and less than a large one."""
    large = Matmul(dense_view("a", (2048, 2048)), dense_view("b", (2048, 2048)), dense_view("c", (2048, 2048)))
    kernels = {product(): MATHS, convolution(): MATHS, large: MATHS, case("softmax"): MATHS[:1]}
    pack.write(tmp_path / "pack.zip", precompile.prepare(kernels, Driver().architecture))
    assert measure.measure(pack.read(tmp_path / "pack.zip"), tmp_path / "times", 60.0, print) == (7, 0)
    head, rows = measure.read_times(tmp_path / "times")
    seconds = {(r.key, r.math): r.seconds[0] for r in rows}
    assert 0 < seconds[key(product()), "fp32"] < seconds[key(large), "fp32"]
    assert min(asdict(head.card["fp32"]).values()) > 0
    assert seconds[key(large), "tf32"] < seconds[key(large), "fp32"]
