"""Products of rounded factors: exact on integers that the arithmetic has, within its roundoff elsewhere, refused without its instructions."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from einnet.errors import ArtifactError
from einnet.instantiate.kernels import Buffer, Conv, Kernel, Matmul, Plan, Post, View, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32, Arithmetic, coarsest
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime import artifact, machine
from einnet.runtime.costs import CpuCost, kernel_key
from einnet.runtime.cpu import dnnl, roofline
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.dnnl_kernels import prepare
from einnet.runtime.cpu.program import Executable, build_code
from einnet.runtime.cpu.roofline import moved
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.serial import plan_from_json, plan_json
from einnet.runtime.timing import Timing
from tests.runtime.plans import NHWC, finish, residual_block, two_layers
from tests.runtime.reference import compute, layout

HERE = [a for a in ARITHMETICS.values() if a.rounds and not a.missing(machine.cpu_features())]
ROUNDED = pytest.mark.parametrize("arithmetic", HERE or [pytest.param(F32, marks=pytest.mark.skip("no instructions"))], ids=lambda a: a.name)
needs_library = pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available()))

POSTS = (Post("add", dense_view("b", (1, 24))), Post("relu"))
KERNELS: dict[str, Contraction] = {
    "product": Matmul(dense_view("x", (10, 32)), dense_view("w", (32, 24)), dense_view("y", (10, 24))),
    "one row": Matmul(dense_view("x", (1, 300)), dense_view("w", (300, 24)), dense_view("y", (1, 24))),
    "posts": Matmul(dense_view("x", (10, 32)), dense_view("w", (32, 24)), dense_view("y", (10, 24)), POSTS),
    "transposed operand": Matmul(layout("x", (10, 32), (1, 0)), layout("w", (32, 24), (1, 0)), dense_view("y", (10, 24))),
    "columns of a result": Matmul(dense_view("x", (10, 32)), dense_view("w", (32, 24)), layout("y", (10, 24), (1, 0))),
    "batches": Matmul(dense_view("x", (3, 10, 32)), dense_view("w", (3, 32, 24)), dense_view("y", (3, 10, 24))),
    "a part of a buffer": Matmul(View("x", (10, 32), (40, 1), 5), View("w", (32, 24), (30, 1), 7), View("y", (10, 24), (24, 1), 3)),
    "convolution": Conv(
        layout("x", (1, 16, 9, 9), NHWC), layout("w", (1, 8, 16, 3, 3)), layout("y", (1, 8, 9, 9), NHWC), (1, 1), (1, 1), (1, 1), (1, 1)
    ),
    "strided, in groups": Conv(
        layout("x", (2, 32, 9, 9), NHWC), layout("w", (2, 16, 16, 3, 3)), layout("y", (2, 32, 5, 5), NHWC), (2, 2), (1, 1), (1, 1), (1, 1),
        post=(Post("relu"),),
    ),
}  # fmt: skip


def plan_of(kernel: Kernel, weights: np.ndarray | None, posts: np.ndarray) -> Plan:
    """The kernel with its weights as a constant, or as an input."""
    sizes: dict[str, int] = {}
    for v in (*kernel.operand_views, *kernel.result_views):
        sizes[v.buffer] = max(sizes.get(v.buffer, 0), v.offset + 1 + sum(s * (n - 1) for n, s in zip(v.shape, v.strides)))
    constants = {"w": weights} if weights is not None else {}
    constants |= {"b": posts} if "b" in sizes else {}
    flat = {n: View(n, (size,), (1,)) for n, size in sizes.items() if n not in constants}
    buffers = [Buffer(n, sizes[n], "f32", "output" if n == "y" else "input") for n in flat]
    return finish(buffers, [kernel], constants, {n: v for n, v in flat.items() if n != "y"}, {"y": flat["y"]})


def ran(kernel: Contraction, held: dict[str, np.ndarray], constant: bool) -> np.ndarray:
    """The kernel's result as the runtime computes it."""
    program = Executable(plan_of(kernel, held["w"] if constant else None, held["b"]), 2, strict=True)
    y = program({n: held[n] for n in program.input_names})["y"]
    return np.lib.stride_tricks.as_strided(y[kernel.result.offset :], kernel.result.shape, [4 * s for s in kernel.result.strides])


def drawn(draw: str, seed: int = 3) -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(seed), {"x": 8000, "w": 8000, "b": 24, "y": 8000}
    if draw == "integers":
        return {n: rng.integers(-15, 16, size).astype(np.float32) for n, size in sizes.items()}
    return {n: rng.standard_normal(size).astype(np.float32) for n, size in sizes.items()}


def cut(kernel: Contraction, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Just as many values as the kernel's buffers have."""
    plan = plan_of(kernel, None, held["b"])
    return {**held, **{b.name: held[b.name][: b.size] for b in plan.buffers}}


@needs_library
@ROUNDED
@pytest.mark.parametrize("constant", [True, False], ids=["weights", "activations"])
@pytest.mark.parametrize("name", KERNELS)
def test_integers_are_exact_and_other_numbers_within_the_roundoff(name: str, constant: bool, arithmetic: Arithmetic) -> None:
    kernel = KERNELS[name].in_arithmetic(arithmetic)
    held = cut(kernel, drawn("integers"))
    assert np.array_equal(ran(kernel, held, constant), compute(kernel, held))
    held = cut(kernel, drawn("normal"))
    wanted = compute(kernel, held)
    sizes = compute(KERNELS[name].with_posts(()), {n: np.abs(x) for n, x in held.items()})
    u = arithmetic.roundoff
    apart = np.abs(ran(kernel, held, constant) - wanted)
    assert (apart <= (2 * u + u * u) * sizes + 1e-4).all()
    assert np.max(apart / sizes) > u / 1000, "the factors were not rounded"


@needs_library
@ROUNDED
def test_a_kernel_has_one_time_with_its_roundings(arithmetic: Arithmetic) -> None:
    for plan in (two_layers(), residual_block()):
        plan = replace(plan, kernels=tuple(k.in_arithmetic(arithmetic) for k in plan.kernels if isinstance(k, Contraction)))
        program = Executable(plan, 2)
        assert len(program.sample()) == len(program.profile(2)) == len(plan.kernels)
        (name, view), *_ = plan.inputs
        x = np.random.default_rng(0).standard_normal(view.shape).astype(np.float32)
        exact = Executable(replace(plan, kernels=tuple(k.in_arithmetic(F32) for k in plan.kernels)), 2)({name: x})["y"]
        error = np.max(np.abs(program({name: x})["y"] - exact)) / np.max(np.abs(exact))
        assert 0 < error < 8 * arithmetic.roundoff


def test_windows_that_overlap_are_refused() -> None:
    if not HERE or dnnl.available():
        pytest.skip("no arithmetic here")
    windows = View("x", (4, 8, 8), (4, 8, 1))
    with pytest.raises(Refused, match="overlap"):
        prepare(Matmul(windows, dense_view("w", (4, 8, 8)), dense_view("y", (4, 8, 8)), arithmetic=HERE[0]))


def test_the_arithmetic_is_part_of_what_a_kernel_is() -> None:
    for kernel in KERNELS.values():
        for arithmetic in ARITHMETICS.values():
            other = kernel.in_arithmetic(arithmetic)
            assert (other == kernel) == (arithmetic == F32)
            assert (kernel_key(other, frozenset()) == kernel_key(kernel, frozenset())) == (arithmetic == F32)
            assert (f"in {arithmetic.name}" in other.describe()) == (arithmetic != F32)
            plan = Plan((), (other,), (), ())
            assert plan_from_json(json.loads(json.dumps(plan_json(plan, lambda _: 0))), lambda _: b"", {}).kernels == (other,)
            assert other.with_posts(()).arithmetic == other.with_result(dense_view("z", kernel.result.shape)).arithmetic == arithmetic
    value = plan_json(Plan((), (KERNELS["product"],), (), ()), lambda _: 0)
    assert "arithmetic" not in value["kernels"][0], "programs of before are written as they were"
    value["kernels"][0]["arithmetic"] = "f7"
    with pytest.raises(ArtifactError, match="f7"):
        plan_from_json(value, lambda _: b"", {})


def test_bytes_that_move_are_those_of_the_arithmetic() -> None:
    kernel = KERNELS["product"]
    assert moved(kernel) - moved(kernel.in_arithmetic(ARITHMETICS["bf16"])) == 2 * (10 * 32 + 32 * 24)


def test_records_say_what_numbers_are() -> None:
    assert [a.name for a in sorted(ARITHMETICS.values(), key=lambda a: -a.digits)] == list(ARITHMETICS)
    assert coarsest(()) == F32
    assert coarsest(ARITHMETICS.values()).name == "bf16"
    half = ARITHMETICS["f16"]
    numpys, single = np.finfo(np.float16), np.finfo(np.float32)
    assert (half.largest, half.least, half.roundoff) == (float(numpys.max), float(numpys.tiny), numpys.eps / 2)
    assert (F32.largest, F32.least, F32.digits, F32.roundoff) == (float(single.max), float(single.tiny), single.nmant + 1, 0.0)
    assert np.float16(half.integers) - 1 == np.float16(half.integers - 1)
    assert int(np.float16(half.integers + 1)) == half.integers, "the first integer that it lacks"
    assert ARITHMETICS["tf32"].missing(machine.cpu_features())


@needs_library
@ROUNDED
def test_a_processor_without_the_instructions_refuses_to_load(arithmetic: Arithmetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = two_layers()
    plan = replace(plan, kernels=tuple(k.in_arithmetic(arithmetic) for k in plan.kernels if isinstance(k, Contraction)))
    path = tmp_path / "p.einnet"
    artifact.save(path, plan, build_code(plan, 1), threads=1)
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("manifest.json"))["instructions"] == sorted(arithmetic.instructions or ())
    name, view = plan.inputs[0]
    x = np.ones(view.shape, np.float32)
    assert np.array_equal(artifact.load(path).executable()({name: x})["y"], Executable(plan, 1)({name: x})["y"])
    few = machine.cpu_features() - (arithmetic.instructions or frozenset())
    monkeypatch.setattr(machine, "cpu_features", lambda: few)
    (lacks,) = arithmetic.instructions or ()
    with pytest.raises(ArtifactError, match=f"{lacks}, which this processor lacks; optimize the model again"):
        artifact.load(path).executable()


# --------------------------------------------------------------------------------------------------------------------- times


def costs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: Mapping[Kernel, Timing], arithmetics: Sequence[Arithmetic]
) -> tuple[CpuCost, list[Kernel]]:
    """Costs by a table, a large product taking a second in float32 and in bf16 and a thousand in float16; and what was asked for."""
    asked: list[Kernel] = []

    def known(self: CpuCost, kernels: Sequence[Kernel], *limits: float) -> list[Timing]:
        asked.extend(kernels)
        large = {roofline.LARGE.in_arithmetic(a): Timing(1000.0 if a.name == "f16" else 1.0, 0.0, 5) for a in ARITHMETICS.values()}
        return [{**large, **seconds}[k] for k in kernels]

    monkeypatch.setattr(CpuCost, "_as_they_are", known)
    made = CpuCost(1, ProfileDatabase(tmp_path / "p.sqlite"), arithmetics=arithmetics)
    made._machine = roofline.Machine(roofline.flops(roofline.LARGE), 1e12, 1e-9)
    return made, asked


def test_a_product_takes_the_time_of_its_fastest_arithmetic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one, other = KERNELS["product"], KERNELS["convolution"]
    bf16, f16 = ARITHMETICS["bf16"], ARITHMETICS["f16"]
    work = roofline.flops(one) / roofline.flops(roofline.LARGE)
    table: dict[Kernel, Timing] = {one: Timing(4 * work, 0.0, 5), other: Timing(inf, 0.0, 1), one.in_arithmetic(bf16): Timing(2 * work, 0.0, 5)}
    cost, asked = costs(monkeypatch, tmp_path, table, (f16, bf16))
    assert [t.median for t in cost.timings([one, other])] == [2 * work, inf]
    assert one.in_arithmetic(f16) not in asked, "a large product is a thousand times slower there"
    assert other.in_arithmetic(bf16) not in asked, "the library refuses the product"
    assert cost.timings([one.in_arithmetic(bf16)])[0].median == 2 * work
    for slower in (Timing(9 * work, 0.0, 5), Timing(work, 0.0, 0)):
        cost, _ = costs(monkeypatch, tmp_path, {**table, one.in_arithmetic(bf16): slower}, (bf16,))
        assert cost.timings([one])[0].median == 4 * work, "slower, or only estimated"
    plain, asked = costs(monkeypatch, tmp_path, table, ())
    assert plain.timings([one])[0].median == 4 * work
    assert asked == [one]
    assert plain.place() != cost.place()
    assert plain.place() == plain.like(Plan((), (), (), ())).place() == cost.like(Plan((), (), (), ())).place()


def test_a_product_takes_no_less_than_its_bytes_and_operations() -> None:
    kernel = KERNELS["product"]
    assert roofline.least(kernel, 1e9, 1e30) == roofline.flops(kernel) / 1e9
    assert roofline.least(kernel, 1e30, 1e6) == moved(kernel) / 1e6 / roofline.CACHED
    assert roofline.least(kernel, 0.0, 1e6) == inf


def test_what_is_not_measured_is_estimated_in_the_fastest_arithmetic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A vector by a matrix waits for memory: half the bytes, half the time. What is known of one arithmetic stands for the product."""
    bf16, f16, row = ARITHMETICS["bf16"], ARITHMETICS["f16"], KERNELS["one row"]
    cost, _ = costs(monkeypatch, tmp_path, {}, (f16, bf16))
    cost._machine = roofline.Machine(1e15, 1e9, 1e-12)
    cost._peaks |= {bf16: 1e15, f16: 0.0}
    assert cost.estimate(row) == roofline.estimate(row.in_arithmetic(bf16), cost.machine) < 0.6 * roofline.estimate(row, cost.machine)
    assert cost.known([row]) == [(None, cost.estimate(row))]
    cost._known |= {row: Timing(5.0, 0.0, 5), row.in_arithmetic(bf16): Timing(3.0, 0.0, 5)}
    assert cost.estimate(row) == cost.known([row])[0][0] == 3.0
    assert cost.estimate(row.in_arithmetic(bf16)) == 3.0
    slow, _ = costs(monkeypatch, tmp_path, {}, (bf16,))
    slow._machine, slow._peaks[bf16] = roofline.Machine(1e12, 1e15, 1e-12), 1e9
    assert slow.estimate(row) == roofline.estimate(row, slow.machine), "its operations take longer"
