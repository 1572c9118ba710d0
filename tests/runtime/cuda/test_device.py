"""Programs on a device, through stand-ins for its libraries that work on host memory: what the libraries would be told, and in which order."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import IntEnum
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from einnet.compile.targets.cuda.stored import StoredCuda
from einnet.errors import BackendError, UsageError
from einnet.instantiate.kernels import Buffer, Conv, Kernel, Matmul, Plan, Post, View, dense_view
from einnet.runtime.arena import span
from einnet.runtime.cuda import shim
from einnet.runtime.cuda.archive import save
from einnet.runtime.cuda.convolutions import Plan as Engine
from einnet.runtime.cuda.device import Device
from einnet.runtime.cuda.gemm import addressable
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.program import Gemm, Generated, calls
from einnet.runtime.cuda.tuning import read_tuning, tuning_file
from einnet.runtime.cuda.vendor import window
from tests.instantiate.numpy_kernels import execute
from tests.models import random_inputs, tiny, with_opaque
from tests.runtime.cuda.programs import own_plan, reference, worst
from tests.runtime.cuda.standin import install
from tests.runtime.cuda.standin.blas import LayoutAttribute
from tests.runtime.cuda.standin.card import Card, Tensor
from tests.runtime.cuda.test_lower import products
from tests.runtime.cuda.test_models import SEVEN

text = pytest.mark.skipif(shim.compiler() is None, reason="there is no C++ compiler to run generated CUDA text")
QUICK = ("fsrcnn", "longformer")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return install(monkeypatch)


def lowered(kernel: Kernel):
    """A program of one kernel, and its buffers with their sizes."""
    sizes: dict[str, int] = {}
    for v in (*kernel.operand_views, *kernel.result_views):
        sizes[v.buffer] = max(sizes.get(v.buffer, 0), span(v))
    (out,) = kernel.result_views
    buffers = tuple(Buffer(b, n, "f32", "output" if b == out.buffer else "input") for b, n in sizes.items())
    flat = {b: dense_view(b, (n,)) for b, n in sizes.items()}
    inputs = tuple((b, view) for b, view in flat.items() if b != out.buffer)
    return lower(Plan(buffers, (kernel,), inputs, ((out.buffer, flat[out.buffer]),))), sizes


def check(kernel: Kernel, math: str = "fp32") -> Device:
    """The device's result is what the kernel means, on integers, where both are exact."""
    program, sizes = lowered(kernel)
    (out,) = kernel.result_views
    rng = np.random.default_rng(0)
    values = {b: rng.integers(-3, 4, n).astype(np.float32) for b, n in sizes.items() if b != out.buffer}
    expected = {**{b: v.astype(np.float64) for b, v in values.items()}, out.buffer: np.zeros(sizes[out.buffer])}
    execute(kernel, expected)
    device = Device(program, math)
    np.testing.assert_array_equal(window(out, device(values)[out.buffer]), window(out, expected[out.buffer]))
    return device


@text
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SEVEN])
def test_models_match_onnx_runtime(name, card):
    model = tiny(name)
    inputs, device = random_inputs(model), Device(lower(own_plan(model)))
    wanted = reference(model, inputs)
    assert worst(device(inputs), wanted) < 1e-5
    assert worst(device(inputs), wanted) < 1e-5, "the second run differs: something was overwritten"


@text
def test_an_inference_is_one_graph_between_what_the_host_runs(card):
    model = with_opaque()
    inputs, device = random_inputs(model), Device(lower(own_plan(model)))
    card.graphs = 0
    assert worst(device(inputs), reference(model, inputs)) < 1e-5
    on_host = len(device.runs) - card.graphs
    assert on_host == sum(type(s).__name__ == "OpaqueCall" for s in device.program.steps) > 0
    assert card.graphs <= on_host + 1


def test_a_model_without_opaque_nodes_is_one_graph(card):
    device = check(product())
    card.graphs, card.log[:] = 0, []
    device.execute()
    assert card.graphs == 1
    assert card.log == ["matmul 68"]


def product() -> Matmul:
    return Matmul(dense_view("a", (4, 5)), dense_view("b", (5, 6)), dense_view("c", (4, 6)))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(products().filter(lambda k: all(map(addressable, (k.a, k.b, k.c)))))
def test_products_with_all_strides(monkeypatch, kernel):
    install(monkeypatch)
    check(kernel)


def scattered(seed: int, rank: int) -> Matmul:
    """A product whose batch dimensions have no stride in common, each operand's in an order of its own; b overlaps with itself."""
    rng, counts = np.random.default_rng(seed), (2, 3, 4)[:rank]
    m, n, k = (int(x) for x in rng.integers(1, 6, 3))

    def view(name: str, rows: int, columns: int) -> View:
        dense, order = rows * columns, rng.permutation(rank)
        steps = {int(d): dense * int(np.prod([counts[x] for x in order[:place]])) for place, d in enumerate(order)}
        return View(name, (*counts, rows, columns), (*(steps[d] for d in range(rank)), columns, 1), int(rng.integers(0, 9)))

    a, b, c = view("a", m, k), view("b", k, n), view("c", m, n)
    return Matmul(a, replace(b, strides=(1, *b.strides[1:])), c)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_batches_without_a_common_stride_are_one_launch(card, seed, rank):
    kernel = scattered(seed, rank)
    (step,) = lowered(kernel)[0].steps
    assert isinstance(step, Gemm)
    device = check(kernel)
    assert (len(device.calls), calls(step)) == (1, 1)
    assert step.scattered == (len(step.batches) > 1)


def test_lists_of_addresses_are_kept_once(card):
    before = len(card.blocks)
    device = check(scattered(1, 3))
    assert device.program.steps[0].scattered
    tables = [b for b in card.blocks[before:] if b.size == 8 * 24 + 256]
    assert len(tables) == 3, "of a, b, and c, which is d; for all algorithms that were tried"


def test_where_the_library_takes_no_lists_the_outer_batches_run_one_after_the_other(card, monkeypatch):
    kernel = scattered(1, 3)
    bias = Post("add", dense_view("p", (1, 1, 1, 1, kernel.c.shape[-1])))
    assert len(check(replace(kernel, post=(bias,))).calls) == 6, "the library adds no bias to products that are listed"
    card.lists = False
    assert len(check(kernel).calls) == 6
    card.lists = True
    older = IntEnum("LayoutAttribute", {x.name: x.value for x in LayoutAttribute if x.name != "BATCH_MODE"})
    monkeypatch.setattr(sys.modules["nvmath.bindings.cublasLt"], "MatrixLayoutAttribute", older)
    assert len(check(kernel).calls) == 6, "an older library does not know of them"


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("posts", [("add",), ("relu",), ("add", "relu")])
def test_epilogues_of_products(card, posts, by_column):
    kernel = product()
    c = replace(kernel.c, strides=(1, 4)) if by_column else kernel.c
    bias = dense_view("p", (4, 1) if by_column else (1, 6))
    post = tuple(Post(kind, bias if kind == "add" else None) for kind in posts)
    device = check(replace(kernel, c=c, post=post))
    assert [type(s) for s in device.program.steps] == [Gemm]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "dilation", "pads"), [(1, 1, (1, 1)), (2, 1, (0, 1)), (3, 2, (2, 0)), (1, 2, (0, 0))])
@pytest.mark.parametrize("rank", [1, 2])
def test_convolutions(card, transposed, groups, stride, dilation, pads, rank):
    taps, extent, channels, filters = 3, 7, 2, 3
    reach = (taps - 1) * dilation + 1
    made = (extent - 1) * stride + reach - sum(pads) if transposed else (extent + sum(pads) - reach) // stride + 1
    x, y = dense_view("x", (2, groups * channels, *(extent,) * rank)), dense_view("y", (2, groups * filters, *(made,) * rank))
    w = dense_view("w", (groups, filters, channels, *(taps,) * rank))
    post = (Post("add", dense_view("b", (1, groups * filters, *(1,) * rank))), Post("add", dense_view("r", y.shape)), Post("relu"))
    check(Conv(x, w, y, (stride,) * rank, (dilation,) * rank, (pads[0],) * rank, (pads[1],) * rank, transposed, post))


@pytest.mark.parametrize("posts", ["b", "r", "relu", "b relu", "r relu", "b r", "b r relu"])
def test_what_is_fused_to_convolutions(card, posts):
    operands = {"b": dense_view("b", (1, 6, 1, 1)), "r": View("r", (1, 6, 5, 5), (1, 25, 5, 1))}
    post = tuple(Post("add", operands[p]) if p in operands else Post(p) for p in posts.split())
    assert len(check(replace(convolution(), post=post)).program.steps) == 1


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("turned", ["w", "x", "y"])
def test_layouts_that_cudnn_takes_and_computes_something_else_for(card, turned, transposed):
    """As on an H100: filters whose summed channels stand outermost, images inside channels."""
    usual, other = ((216, 36, 9, 3, 1), (216, 9, 54, 3, 1))[:: -1 if transposed else 1]
    views = {"x": dense_view("x", (2, 4, 5, 5)), "w": View("w", (1, 6, 4, 3, 3), usual), "y": dense_view("y", (2, 6, 5, 5))}
    views[turned] = replace(views[turned], strides={"w": other, "x": (25, 50, 5, 1), "y": (25, 50, 5, 1)}[turned])
    device = check(Conv(**views, strides=(1, 1), dilations=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), transposed=transposed))
    assert sorted(type(s).__name__ for s in device.program.steps) == ["Conv", "Generated"], "what is not taken is copied"


def test_output_padding_is_less_padding_behind(card):
    x, w, y = dense_view("x", (1, 2, 4, 4)), dense_view("w", (1, 3, 2, 9, 9)), dense_view("y", (1, 3, 16, 16))
    check(Conv(x, w, y, (4, 4), (1, 1), (4, 4), (1, 1), transposed=True))


def test_what_does_not_start_at_16_bytes_is_copied(card):
    x, y = (replace(dense_view(n, (1, 2, size, size)), offset=offset) for n, size, offset in (("x", 5, 1), ("y", 3, 2)))
    w = dense_view("w", (1, 2, 2, 3, 3))
    device = check(Conv(x, w, y, (1, 1), (1, 1), (0, 0), (0, 0), post=(Post("add", View("b", (1, 2, 1, 1), (2, 1, 1, 1), 3)), Post("relu"))))
    assert [type(s).__name__ for s in device.program.steps] == ["Generated", "Conv", "Generated"]


def convolution() -> Conv:
    x, w, y = dense_view("x", (1, 4, 5, 5)), dense_view("w", (1, 6, 4, 3, 3)), dense_view("y", (1, 6, 5, 5))
    return Conv(x, w, y, (1, 1), (1, 1), (1, 1), (1, 1))


def test_strict_float32_uses_no_tensor_cores_and_tf32_does(card):
    check(product(), "tf32")
    check(convolution(), "tf32")
    assert {"matmul 77", "convolution 38"} <= set(card.log)
    card.log.clear()
    check(product())
    check(convolution())
    assert "matmul 77" not in card.log and "convolution 38" not in card.log
    with pytest.raises(UsageError, match="fp32 or tf32"):
        check(product(), "fp16")


@pytest.mark.parametrize("math", ["fp32", "tf32"])
def test_engines_whose_sums_depend_on_the_order_of_blocks_never_run(card, math):
    check(convolution(), math)
    assert card.log
    assert "convolution 25" not in card.log


def test_plans_are_listed_once_and_each_is_built_once(card):
    check(convolution())
    assert card.log.count("listed") == 1
    assert sorted(x for x in card.log if x.startswith("built")) == ["built 0", "built 70", "built 70"]


def test_an_error_on_the_card_names_the_kernel(card, monkeypatch):
    program = lower(own_plan(tiny("fsrcnn")))
    texts = [s.text for s in program.steps if isinstance(s, Generated)]
    submit = Card.submit

    def failing(self, name, work, cost=1.0):
        if texts[1] in name:
            raise RuntimeError("an illegal memory access was encountered")
        submit(self, name, work, cost)

    monkeypatch.setattr(Card, "submit", failing)
    with pytest.raises(BackendError, match=f"generated kernel {texts[1]} fails on the device: an illegal"):
        Device(program)


@pytest.mark.parametrize("kernel", [product(), convolution()], ids=["product", "convolution"])
def test_the_fastest_algorithm_is_kept(card, kernel, monkeypatch):
    program, _ = lowered(kernel)
    first = Device(program)
    assert first.tuned == 1
    card.clock = 0
    first.execute()
    assert card.clock == 1.0
    assert Device(program, tuning=first.tuning).tuned == 0
    assert Device(program, "tf32", tuning=first.tuning).tuned == 1
    install(monkeypatch, versions=1)
    assert Device(program, tuning=first.tuning).tuned == 1, "another version of the libraries, another choice"


def test_choices_that_the_library_does_not_find_are_made_again(card):
    program, _ = lowered(convolution())
    first = Device(program).tuning
    wrong = replace(first, choices={key: Engine(7, ()) for key in first.choices})
    again = Device(program, tuning=wrong)
    assert (again.tuned, again.tuning) == (1, first)


def test_tunings_are_plain_data(card):
    for kernel in (product(), convolution()):
        tuning = Device(lowered(kernel)[0]).tuning
        assert tuning.choices
        assert read_tuning(tuning_file(tuning)) == tuning


def test_wrong_inputs(card):
    device = check(product())
    with pytest.raises(UsageError, match="the program takes"):
        device({"a": np.zeros(20, np.float32)})
    with pytest.raises(UsageError, match="input 'a' is float32"):
        device({"a": np.zeros(20), "b": np.zeros(30, np.float32)})


def on_the_card(card: Card, values: np.ndarray, library: type[Tensor] = Tensor) -> Tensor:
    """The values as a tensor of a library on the card, transposed in memory."""
    turned = np.ascontiguousarray(values.T)
    address = card.allocate(turned.nbytes)
    card.bytes_at(address, turned.nbytes)[...] = turned.reshape(-1).view(np.uint8)
    return library(card, address, values.shape, values.dtype, turned.strides[::-1])


class Other(Tensor):
    """A tensor of another library, whose module takes tensors by DLPack on its own stream, 7."""

    __module__ = "other.tensors"


@pytest.fixture
def other(monkeypatch, card) -> type[Other]:
    module = ModuleType("other")
    module.from_dlpack = lambda t: Other(card, (t.__dlpack__(stream=7) and t).data.ptr, t.shape, t.dtype, t.strides)
    monkeypatch.setitem(sys.modules, "other", module)
    return Other


def of_matrices(card, monkeypatch, tmp_path) -> StoredCuda:
    """A stored program of one product of matrices."""
    a, b, c = dense_view("a", (4, 5)), dense_view("b", (5, 6)), dense_view("c", (4, 6))
    buffers = tuple(Buffer(v.buffer, 4 * 6 * 5, "f32", role) for v, role in ((a, "input"), (b, "input"), (c, "output")))
    save(tmp_path / "p.einnet", lower(Plan(buffers, (Matmul(a, b, c),), (("a", a), ("b", b)), (("c", c),))))
    return StoredCuda(tmp_path / "p.einnet")


def test_tensors_on_the_card_are_taken_and_given_without_the_host(card, monkeypatch, tmp_path, other):
    program = of_matrices(card, monkeypatch, tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 5)).astype(np.float32), rng.standard_normal((5, 6)).astype(np.float32)
    wanted = program(a=a, b=b)["c"]
    card.log.clear()
    found = program(on_the_card(card, a, other), on_the_card(card, b, other))["c"]
    assert isinstance(found, Other)
    np.testing.assert_array_equal(found.values(), wanted)
    assert sorted(card.log) == ["inside", "inside", "matmul 68"], "nothing travels to the host or from it"
    assert card.orders == [(4096, 4096)] * 2 + [(4096, 7)], "ours waits for theirs, and theirs for ours"


def test_what_lies_in_the_programs_memory_is_not_copied(card, monkeypatch, tmp_path):
    program = of_matrices(card, monkeypatch, tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 5)).astype(np.float32), rng.standard_normal((5, 6)).astype(np.float32)
    own = program.tensors()
    assert list(own) == ["a", "b", "c"]
    own["a"].values()[...] = a
    card.log.clear()
    card.orders.clear()
    found = program(own["a"], b)["c"]
    assert card.log == ["to card", "matmul 68"], "an array of the host comes along, and nothing else moves"
    assert found.data.ptr == own["c"].data.ptr
    assert card.orders[-1] == (4096, 1), "the stream that CuPy uses at the moment waits"
    np.testing.assert_allclose(found.values(), a @ b, rtol=1e-5)


def test_tensors_that_do_not_fit_are_refused(card, monkeypatch, tmp_path):
    program = of_matrices(card, monkeypatch, tmp_path)
    a, b = (on_the_card(card, np.zeros(shape, np.float32)) for shape in ((4, 5), (5, 7)))
    with pytest.raises(UsageError, match=r"input 'b' is float32\[5, 6\], not float32\[5, 7\]"):
        program(a, b)
    with pytest.raises(UsageError, match="the program takes a, b"):
        program(a)
    a.device = (2, 1)
    with pytest.raises(UsageError, match="lies on device 1 of kind 2, and the program on CUDA device 0"):
        program(a, b)


def test_memory_that_is_not_there(monkeypatch):
    install(monkeypatch, memory=100)
    with pytest.raises(BackendError, match="no room for"):
        Device(lowered(product())[0])


def test_without_a_device_it_says_so(monkeypatch):
    install(monkeypatch, devices=0)
    with pytest.raises(BackendError, match="there is no CUDA device"):
        Device(lowered(product())[0])


def test_without_the_libraries_it_says_what_to_install(monkeypatch):
    for name in ("cupy", "cudnn", "cuda.bindings.nvrtc", "nvmath"):
        monkeypatch.setitem(sys.modules, name, None)
    wanted = r"pip install cupy-cuda13x.*pip install nvidia-cudnn-frontend.*pip install cuda-bindings.*pip install nvmath-python"
    with pytest.raises(BackendError, match=wanted):
        Device(lowered(product())[0])


def test_the_doctor_tells_what_the_card_is_good_for(card):
    from einnet.cli.system import backends

    told = backends()["cuda"]
    assert told["works"]
    assert told["notes"][0].startswith("Stand-in (sm_90): 132 multiprocessors, 0 GB; TF32 on tensor cores")
    assert "recorded on an NVIDIA H100" in told["notes"][1]
