"""Costs: measured once and remembered by what a kernel is, not by its names; refused kernels cost infinity; estimates need no run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Conv, EOperator, Matmul, Plan, Post, View, dense_view
from einnet.instantiate.kernels.arithmetics import ARITHMETICS
from einnet.runtime import costs, timing
from einnet.runtime.contention import Cores
from einnet.runtime.costs import CpuCost, kernel_key
from einnet.runtime.cpu import dnnl, measure, roofline
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.timing import Comparison, Timing, compare, summarize
from tests.runtime.plans import opaque
from tests.runtime.reference import layout

pytestmark = pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available()))
NONE: frozenset[str] = frozenset()


def matmul(a: str = "a", b: str = "b", c: str = "c", n: int = 24) -> Matmul:
    return Matmul(dense_view(a, (16, 32)), dense_view(b, (32, n)), dense_view(c, (16, n)), (Post("relu"),))


def operator(text: str, prefix: str = "") -> EOperator:
    scope = parse(text)
    operands = tuple((name, dense_view(prefix + name, t.shape)) for name, t in tensors(scope).items())
    return EOperator(scope, operands, dense_view(prefix + "y", scope.shape))


REFUSED = Matmul(layout("a", (8, 8)), layout("b", (8, 8)), View("c", (8, 8), (100, 2)))


@pytest.fixture
def database(tmp_path: Path) -> ProfileDatabase:
    return ProfileDatabase(tmp_path / "p.sqlite")


def test_names_do_not_count_but_sharing_constants_and_sizes_do() -> None:
    key = kernel_key(matmul(), NONE)
    assert key == kernel_key(matmul("p", "q", "r"), NONE)
    assert key != kernel_key(matmul(n=25), NONE)
    assert key != kernel_key(matmul(), frozenset({"b"}))
    square = Matmul(dense_view("a", (8, 8)), dense_view("b", (8, 8)), dense_view("c", (8, 8)))
    assert kernel_key(square, NONE) != kernel_key(Matmul(square.a, dense_view("a", (8, 8)), square.c), NONE)
    first, second = operator("A : f32[9]\nL[i<9] relu(A[i])"), operator("B : f32[9]\nL[k<9] relu(B[k])", "z")
    assert kernel_key(first, NONE) == kernel_key(second, NONE)
    assert kernel_key(first, NONE) != kernel_key(operator("A : f32[9]\nL[i<9] relu(A[8-i])"), NONE)


def test_costs_are_measured_once_and_stored(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "waited", lambda: 0.0)
    kernels = [matmul(), operator("A : f32[64,64]\nL[i<64,j<64] relu(A[j,i])"), REFUSED, matmul()]
    cost = CpuCost(1, database, budget_s=0.002)
    found = cost.costs(kernels)
    assert all(0 < t < 1 for t in found[:2])
    assert found[2] == math.inf
    assert found[3] == found[0]
    monkeypatch.setattr(costs, "measure", lambda *_: pytest.fail("measured again"))
    assert CpuCost(1, database).costs(kernels) == found
    assert CpuCost(1, database).costs([matmul("u", "v", "w")]) == found[:1]
    assert CpuCost(1, database).estimate(kernels[0]) == found[0], "a stored time is better than an estimate"


def test_an_opaque_node_is_measured_with_its_own_types(database: ProfileDatabase) -> None:
    views = dense_view("x", (4, 8)), dense_view("y", (4, 8))
    assert 0 < CpuCost(1, database, budget_s=0.002).cost(opaque("Not", views[:1], views[1:], (9, 9))) < 1


def test_without_measuring_everything_is_estimated(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = roofline.Machine(peak=1e11, bandwidth=1e10, launch=1e-6)
    monkeypatch.setattr(roofline, "measure_machine", lambda threads: (machine, True))
    monkeypatch.setattr(roofline, "last_level_cache", lambda: 1 << 22)
    cost = CpuCost(1, database, measure=False)
    assert cost.timing(matmul()) == Timing(1e-6, 0.0, 0)
    assert cost.timing(matmul()).estimated
    assert cost.cost(REFUSED) == math.inf
    large = Matmul(dense_view("a", (1024, 1024)), dense_view("b", (1024, 1024)), dense_view("c", (1024, 1024)))
    assert cost.cost(large) == pytest.approx(2 * 1024**3 / (roofline.VENDOR_SHARE * 1e11))
    copy = operator("A : f32[1000,1000]\nL[i<1000,j<1000] A[i,j]")
    assert cost.cost(copy) == pytest.approx(8e6 / 1e10)
    assert not [d for d, _ in database.rows() if "eoperator" in d], "estimates are not stored"
    monkeypatch.setattr(roofline, "measure_machine", lambda threads: pytest.fail("measured again"))
    assert CpuCost(1, database, measure=False).machine == machine


def test_the_machine_is_measured_by_three_products(measure_machine: Callable[[int], tuple[roofline.Machine, bool]]) -> None:
    """A core does between a tenth of a thousand million operations in a second and ten thousand times as many, and starts a kernel within 10 ms."""
    found, _ = measure_machine(1)
    assert 1e8 < found.peak < 1e12 and 1e7 < found.bandwidth < 1e12 and 0 < found.launch < 1e-2


def test_a_product_that_beats_the_peak_corrects_it(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on a busy machine the peak is too low, and what is estimated by it is never tried."""
    monkeypatch.setattr(roofline, "measure_machine", lambda threads: (roofline.Machine(peak=1e9, bandwidth=1e10, launch=1e-6), False))
    first, other = (Matmul(dense_view("a", (n, 256)), dense_view("b", (256, 256)), dense_view("c", (n, 256))) for n in (256, 512))
    seconds = 2 * 256**3 / 1e11
    monkeypatch.setattr(costs, "measure", lambda kernels, *_, **__: [Timing(seconds, 0.0, 9) for _ in kernels])
    cost = CpuCost(1, database)
    assert cost.estimate(other) == pytest.approx(2 * seconds * 100 / roofline.VENDOR_SHARE)
    (bound,) = (b for _, b in cost.known([other]))
    assert cost.cost(first) == seconds
    assert cost.machine.peak == pytest.approx(1e11)
    assert cost.estimate(other) == pytest.approx(2 * seconds / roofline.VENDOR_SHARE)
    assert cost.known([other])[0][1] == pytest.approx(bound / 100)
    later = CpuCost(1, database, measure=False)
    assert later.estimates([first, other])[0] == seconds
    assert later.machine == roofline.Machine(cost.machine.peak, 1e10, 1e-6), "a time that is stored tells a later run"
    small = Matmul(dense_view("a", (8, 8)), dense_view("b", (8, 8)), dense_view("c", (8, 8)))
    monkeypatch.setattr(costs, "measure", lambda kernels, *_, **__: [Timing(1e-12, 0.0, 9) for _ in kernels])
    cost.cost(small)
    assert cost.machine.peak == pytest.approx(1e11), "the time of a small product is a matter of starting it"


def test_a_product_that_beats_its_arithmetics_peak_corrects_it(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells how fast an arithmetic is was once measured on half a core: then no product that is fast in float32 was tried in it.
    Another one shows that, in this process and in the next."""
    bf16 = ARITHMETICS["bf16"]
    monkeypatch.setattr(roofline, "measure_machine", lambda threads: (roofline.Machine(peak=1e11, bandwidth=1e12, launch=1e-6), True))
    monkeypatch.setattr(costs, "measure", lambda kernels, *_, **__: [Timing(2 * 768**3 / 1e11, 0.0, 9) for _ in kernels])
    first, fast = (Matmul(dense_view("a", (n, 256)), dense_view("b", (256, 256)), dense_view("c", (n, 256))) for n in (256, 512))
    own = 4 * 256**3 / 1e11
    cost = CpuCost(1, database)
    assert cost.rounded(fast, [bf16], own * 0.99) == []
    monkeypatch.setattr(costs, "measure", lambda kernels, *_, **__: [Timing(2 * 256**3 / 2e11, 0.0, 9) for _ in kernels])
    cost.cost(first.in_arithmetic(bf16))
    for one in (cost, cost.like(Plan((), (), (), (), {}))):
        assert one.rounded(fast, [bf16], own * 0.99) == [fast.in_arithmetic(bf16)]
    later = CpuCost(1, database, measure=False)
    later.estimates([first.in_arithmetic(bf16)])
    assert later.rounded(fast, [bf16], own * 0.99) == [fast.in_arithmetic(bf16)]
    assert later.rounded(fast, [bf16], own * 0.4) == []


def test_what_a_cache_holds_moves_faster_and_weights_come_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest cache that holds all operands gives the rate; a product of the same sizes by weights takes as long as these do from memory."""
    monkeypatch.setattr(roofline, "own_cache", lambda: 1 << 20)
    monkeypatch.setattr(roofline, "last_level_cache", lambda: 1 << 24)
    machine = roofline.Machine(peak=1e15, bandwidth=1e9, launch=1e-12)
    for n, faster in ((8, roofline.NEAR), (17, roofline.NEAR), (18, roofline.CACHED), (21, roofline.CACHED), (22, 1.0)):
        copy = operator(f"A : f32[{1 << n}]\nL[i<{1 << n}] A[i]")
        assert roofline.estimate(copy, machine) == pytest.approx(8 * (1 << n) / 1e9 / faster), n
    row = Matmul(dense_view("a", (4, 64)), dense_view("b", (64, 64)), dense_view("c", (4, 64)))
    warm, cold = 4 * (4 * 64 + 4 * 64), 4 * 64 * 64
    assert roofline.estimate(row, machine) == pytest.approx((warm + cold) / 1e9 / roofline.NEAR)
    assert roofline.estimate(row, machine, lambda name: name == "b") == pytest.approx((warm / roofline.NEAR + cold) / 1e9)


def test_operations_and_bytes() -> None:
    kernel = Conv(layout("x", (2, 6, 9, 9)), layout("w", (2, 4, 3, 3, 3)), layout("y", (2, 8, 9, 9)), (1, 1), (1, 1), (1, 1), (1, 1))
    assert roofline.flops(kernel) == 2 * (2 * 8 * 81) * 3 * 9
    assert roofline.moved(kernel) == 4 * (2 * 6 * 81 + 2 * 4 * 3 * 9 + 2 * 8 * 81)
    back = Conv(layout("x", (1, 8, 4, 4)), layout("w", (1, 3, 8, 2, 2)), layout("y", (1, 3, 8, 8)), (2, 2), (1, 1), (0, 0), (0, 0), transposed=True)
    assert roofline.flops(back) == 2 * (8 * 16) * 3 * 4
    assert roofline.moved(Matmul(View("a", (5, 4, 3), (0, 3, 1)), dense_view("b", (5, 3, 2)), dense_view("c", (5, 4, 2)))) == 4 * (12 + 30 + 40)


def test_what_is_constant() -> None:
    kernel = Conv(layout("x", (1, 4, 5, 5)), layout("w", (1, 4, 4, 3, 3)), layout("y", (1, 4, 5, 5)), (1, 1), (1, 1), (1, 1), (1, 1))
    assert measure.constant_buffers(kernel) == {"w"}
    assert measure.constant_buffers(matmul()) == NONE
    assert measure.constant_buffers(matmul(), lambda name: name == "b") == {"b"}
    assert measure.constant_buffers(operator("A : f32[4]\nK : weight f32[4]\nL[i<4] A[i]*K[i]")) == {"K"}


def test_disturbed_samples_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"waited": 0.0, "n": 0}

    def run() -> float:
        state["n"] += 1
        disturbed = state["n"] % 3 == 0
        state["waited"] += 10.0 * disturbed
        return 1.0 if disturbed else 1e-3

    monkeypatch.setattr(measure, "waited", lambda: state["waited"])
    found = measure.sample(run, 0.001)
    assert (found.median, found.clean) == (1e-3, True)
    monkeypatch.setattr(measure, "waited", lambda: state.__setitem__("waited", state["waited"] + 1) or state["waited"])
    assert not measure.sample(run, 0.001).clean


class Turned:
    """Cores that come apart in turns."""

    def __init__(self, apart: Callable[[int], bool]) -> None:
        self.answer, self.n, self.probe = apart, 0, None

    def apart(self) -> bool:
        self.n += 1
        return self.answer(self.n)

    def settle(self) -> None:
        """Nothing is waited for."""


def test_samples_on_cores_that_are_apart_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = Turned(lambda n: n % 3 == 0)
    monkeypatch.setattr(measure, "CORES", cores)

    def run() -> float:
        return 5e-3 if (cores.n + 1) % 3 == 0 else 1e-3

    found = measure.sample(run, 0.01)
    assert (found.median, found.clean) == (1e-3, True)
    monkeypatch.setattr(measure, "CORES", Turned(lambda n: True))
    assert not measure.sample(lambda: 1e-3, 0.001).clean
    assert isinstance(measure.sample(lambda: 5e-3, 0.001, limit=1e-3), Timing), "what is slow there may be fast elsewhere"
    monkeypatch.setattr(measure, "CORES", Turned(lambda n: False))
    assert isinstance(measure.sample(lambda: 5e-3, 0.001, limit=1e-3), measure.AtLeast)


def test_nothing_is_counted_of_a_kernel_that_there_is_no_time_to_run(database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written for a kernel takes long to count, and tells only whether there is time for it."""
    monkeypatch.setattr(costs.roofline, "counted", lambda *_: pytest.fail("it was counted"))
    cost = CpuCost(1, database)
    assert cost.measured([operator("A : f32[8]\nL[i<8] A[i] + 1")], time.monotonic() - 1.0) == [None]
    assert any("no time was left" in note for note in cost.notes())


def test_how_near_cores_get_is_known_to_later_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(least: float) -> float:
        cores = Cores(least=least)
        monkeypatch.setattr(costs, "CORES", cores)
        CpuCost(2, ProfileDatabase(tmp_path / "p.sqlite"))._near()
        return cores.known

    assert [seen(least) for least in (0.0, 3.0, 4.0, 2.0, 0.0, 2.5)] == [0.0, 3.0, 3.0, 2.0, 2.0, 2.0]


def test_rounds_on_cores_that_are_apart_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 0.0}
    cores = Turned(lambda n: n % 5 == 0)

    def run() -> None:
        clock["now"] += 3.0 if cores.n % 5 == 0 and cores.n else 1.0

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock["now"])
    monkeypatch.setattr(timing.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(timing, "waited", lambda: 0.0)
    monkeypatch.setattr(timing, "CORES", cores)
    found = compare({"a": run}, budget_s=100.0)
    assert found.clean
    assert set(found.samples["a"]) == {1.0}


def test_comparison_is_interleaved_and_has_a_noise_floor() -> None:
    calls: list[str] = []
    clock = {"now": 0.0}

    def call(name: str, seconds: float):
        def run() -> None:
            calls.append(name)
            clock["now"] += seconds

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: clock["now"])
        patch.setattr(timing.time, "sleep", lambda seconds: None)
        patch.setattr(timing, "waited", lambda: 0.0)
        found = compare({"a": call("a", 0.002), "b": call("b", 0.004)}, budget_s=0.2)
    assert calls[-12:] == [*"aabbaa"] * 2, "each is warmed up before it is timed"
    assert found.timings["a"].median == pytest.approx(0.002)
    assert found.ratio("b", "a").median == pytest.approx(2.0)
    assert found.noise == 0.01
    assert found.timings["a"].n >= 10


@pytest.mark.parametrize(("first", "warming"), [((4.0, 1.8), 4), ((4.0, 3.0, 2.0, 1.5, 1.1), 5), ((1.1,), 2), ((0.004, 0.002), 4)])
def test_first_calls_are_no_samples(first: tuple[float, ...], warming: int) -> None:
    """Memory is taken from the system by the first calls, of slow programs as of others: no sample is one of them."""
    state = {"n": 0, "now": 0.0}
    usual = 1.0 if first[0] > 1 else 0.001

    def run() -> None:
        state["now"] += first[state["n"]] if state["n"] < len(first) else usual
        state["n"] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: state["now"])
        patch.setattr(timing.time, "sleep", lambda seconds: None)
        patch.setattr(timing, "waited", lambda: 0.0)
        timing._Turn(run, timing.SAMPLE_S, 0.0, None)
        assert state["n"] == warming
        state.update(n=0, now=0.0)
        found = compare({"a": run}, budget_s=20.0)
    assert found.samples["a"] == pytest.approx([usual] * len(found.samples["a"]))


def test_disturbed_rounds_do_not_count() -> None:
    state = {"n": 0, "waited": 0.0, "now": 0.0}

    def run() -> None:
        state["n"] += 1
        state["waited"] += 5.0 * (state["n"] % 7 == 0)
        state["now"] += 10.0 if state["n"] % 7 == 0 else 0.001

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: state["now"])
        patch.setattr(timing.time, "sleep", lambda seconds: None)
        patch.setattr(timing, "waited", lambda: state["waited"])
        found = compare({"a": run}, budget_s=100.0)
    assert max(found.samples["a"]) == pytest.approx(0.001)


def test_faster_is_what_rounds_agree_on() -> None:
    even, odd = (1.0, 1.1, 1.0, 1.1, 1.0, 1.1), (1.1, 1.0, 1.1, 1.0, 1.1, 1.0)
    assert Comparison({"a": even, "b": tuple(0.97 * t for t in even)}, odd).faster("b", "a", 0.01), "in every round by the same share"
    assert not Comparison({"a": even, "b": tuple(0.97 * t for t in odd)}, odd).faster("b", "a"), "by chance now the one, now the other"
    assert not Comparison({"a": even, "b": tuple(0.97 * t for t in even)}, odd).faster("b", "a", 0.05)
    assert not Comparison({"a": (1.0,), "b": (0.97,)}, (1.0,)).faster("b", "a"), "one round tells little"
    assert Comparison({"a": (1.0,), "b": (0.9,)}, (1.0,)).faster("b", "a")
    disturbed = Comparison({"a": (5.0, 1.0, 5.0), "b": (2.0, 1.2, 2.0)}, (1.0, 1.0, 1.0), clean=False)
    assert disturbed.timings["b"].median == 1.2
    assert not disturbed.timings["b"].clean
    assert not disturbed.faster("b", "a"), "the fastest samples do not agree"


def test_a_few_wild_rounds_hide_no_large_gain() -> None:
    """A program that takes a tenth stays the faster one where a quarter of the rounds is disturbed; one that takes as much does not become it."""

    def compared(quick: float, wild: int, rounds: int = 22) -> Comparison:
        slow = tuple(1.0 + 0.01 * (n % 3) for n in range(rounds))
        other = tuple(quick * (60.0 if n % 11 < wild else 1.0 + 0.01 * (n % 5)) for n in range(rounds))
        return Comparison({"slow": slow, "other": other}, slow)

    assert compared(0.1, 3).faster("other", "slow", 0.01)
    assert compared(0.1, 3).ratio("other", "slow").spread > 1, "the spread alone would tell nothing"
    assert not compared(0.1, 5).faster("other", "slow", 0.01), "half the rounds are no majority"
    assert not compared(0.1, 3, 5).faster("other", "slow", 0.01), "too few rounds to count"
    assert not compared(1.0, 0).faster("other", "slow", 0.01)
    assert not compared(1.0, 1).faster("other", "slow", 0.01)


def test_disturbed_parts_of_a_sample_do_not_count() -> None:
    state = {"n": 0, "waited": 0.0, "now": 0.0}

    def run() -> None:
        state["n"] += 1
        state["waited"] += 5.0 * (state["n"] % 3 == 0)
        state["now"] += 10.0 if state["n"] % 3 == 0 else 0.001

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: state["now"])
        patch.setattr(timing.time, "sleep", lambda seconds: None)
        patch.setattr(timing, "waited", lambda: state["waited"])
        found = compare({"a": run}, budget_s=100.0, sample_s=0.01)
    assert found.clean
    assert max(found.samples["a"]) == pytest.approx(0.001)


def test_who_stays_awake_is_waited_for() -> None:
    slept: list[float] = []
    clock = {"now": 0.0}

    def run() -> None:
        clock["now"] += 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: clock["now"])
        patch.setattr(timing.time, "sleep", slept.append)
        compare({"a": run, "b": run, "c": run}, budget_s=8.0, pause_s=0.25, awake_s={"a": 0.5})
    assert slept[:4] == [0.25, 0.5, 0.25, 0.25], "a after itself, b after a, c after b, a after c"


def test_summaries() -> None:
    assert summarize([3.0]) == Timing(3.0, 0.0, 1)
    assert summarize([1.0, 2.0, 3.0, 4.0, 100.0]) == Timing(3.0, 1.0, 5)
