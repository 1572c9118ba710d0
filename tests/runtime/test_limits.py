"""Measuring within limits of time and memory: what does not fit is told, not done; compiled kernels are kept."""

from __future__ import annotations

import math
import mmap
from pathlib import Path

import pytest

from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import EOperator, Matmul, dense_view
from einnet.runtime import capacity, costs, timing
from einnet.runtime.capacity import available_bytes, growth
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import dnnl, measure
from einnet.runtime.cpu.compile import NotGenerated
from einnet.runtime.cpu.measure import Unmeasured, sample
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.timing import compare

pytestmark = pytest.mark.skipif(dnnl.available() is not None, reason=str(dnnl.available()))


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.runs = 1000.0, 0
        for module in (measure.time, timing.time):
            patch.setattr(module, "monotonic", lambda: self.now)
            patch.setattr(module, "perf_counter", lambda: self.now)
            patch.setattr(module, "sleep", self.spend)
        patch.setattr(measure, "waited", lambda: 0.0)
        patch.setattr(timing, "waited", lambda: 0.0)

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def run(self, seconds: float) -> float:
        self.runs += 1
        self.spend(seconds)
        return seconds


@pytest.fixture
def clock():
    with pytest.MonkeyPatch.context() as patch:
        yield Clock(patch)


def matmul(n: int = 8) -> Matmul:
    return Matmul(dense_view("a", (8, 8)), dense_view("b", (8, n)), dense_view("c", (8, n)))


def operator(text: str, prefix: str = "") -> EOperator:
    scope = parse(text)
    return EOperator(scope, tuple((n, dense_view(prefix + n, t.shape)) for n, t in tensors(scope).items()), dense_view(prefix + "y", scope.shape))


@pytest.mark.parametrize(("seconds", "runs", "samples"), [(0.001, 41, 40), (0.015, 3, 2), (0.3, 2, 2), (2.0, 1, 1)])
def test_slow_kernels_run_seldom(clock: Clock, seconds: float, runs: int, samples: int) -> None:
    found = sample(lambda: clock.run(seconds), 0.04)
    assert (clock.runs, found.n, found.clean) == (runs, samples, True)
    assert found.median == pytest.approx(seconds)


@pytest.mark.parametrize(("times", "samples"), [((0.4, 0.1, 0.1), 2), ((0.1, 0.11, 0.12, 0.13, 0.14, 0.15), 5), ((0.1, 0.12, 0.1, 0.101), 3)])
def test_a_slow_kernel_runs_until_two_samples_agree(clock: Clock, times: tuple[float, ...], samples: int) -> None:
    """A first run that is no sample, as it was cold, agrees with none."""
    following = iter(times)
    found = sample(lambda: clock.run(next(following)), 0.04)
    assert isinstance(found, timing.Timing)
    assert (clock.runs, found.n) == (len(times), samples)
    assert found.median == pytest.approx(sorted(times[-samples:])[samples // 2], rel=0.01)


@pytest.mark.parametrize(("times", "runs"), [((0.1, 0.1), 2), ((0.1, 0.2, 0.12, 0.12), 4), ((0.1, 0.2, 0.1, 0.2, 0.1, 0.2), 6)])
def test_a_slow_kernel_is_disturbed_no_longer_than_samples_differ(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, times: tuple[float, ...], runs: int
) -> None:  # fmt: skip
    """Where others disturb every sample alike, more of them tell nothing more: the fastest counts, and is not clean."""
    monkeypatch.setattr(measure, "waited", lambda: clock.now / 2)
    following = iter(times)
    found = sample(lambda: clock.run(next(following)), 0.02)
    assert isinstance(found, timing.Timing)
    assert (clock.runs, found.clean) == (runs, False)
    assert found.median == min(times[1:])


@pytest.mark.parametrize(("seconds", "limit", "runs"), [(0.3, 0.1, 1), (0.3, 0.2, 2), (0.001, 0.0009, 3)])
def test_a_kernel_runs_no_more_once_it_is_seen_to_take_too_long(clock: Clock, seconds: float, limit: float, runs: int) -> None:
    """A first run may be cold: it has to take twice as long to show that."""
    found = sample(lambda: clock.run(seconds), 0.04, limit=limit)
    assert isinstance(found, timing.AtLeast)
    assert limit < found <= seconds
    assert clock.runs == runs


@pytest.mark.parametrize("cold", [(1e-3,), (2e-4, 9e-5), (9e-5, 9e-5, 9e-5, 9e-5)])
def test_a_kernel_of_microseconds_is_warm_before_it_is_seen_to_take_too_long(clock: Clock, cold: tuple[float, ...]) -> None:
    """Its first samples may take several times more than the others: none of them says that it is of no use."""
    following = iter(cold)
    found = sample(lambda: clock.run(next(following, 4e-5)), 0.04, limit=8e-5)
    assert isinstance(found, timing.Timing) and found.median == pytest.approx(4e-5, rel=1e-3)
    again = clock.runs
    found = sample(lambda: clock.run(9e-5), 0.04, limit=8e-5)
    assert isinstance(found, timing.AtLeast) and found == pytest.approx(9e-5) and clock.runs - again <= 25


@pytest.mark.parametrize(("others", "runs"), [(0.05, 1), (0.25, 2)])
def test_what_others_took_says_nothing_of_a_kernel(clock: Clock, monkeypatch: pytest.MonkeyPatch, others: float, runs: int) -> None:
    """A sample that was disturbed counts without the time that threads waited: on a busy machine, too, a kernel is seen to take too long."""
    monkeypatch.setattr(measure, "waited", lambda: clock.runs * others)
    found = sample(lambda: clock.run(0.4), 0.04, limit=0.14)
    assert (clock.runs, found) == (runs, pytest.approx((0.4 - others) / (2 if runs == 1 else 1)))
    assert isinstance(found, timing.AtLeast)


def test_a_time_that_was_cut_short_is_measured_where_it_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not stored, and says only that the kernel takes longer than that."""
    limits: list[float] = []

    def measured(kernels, *_, limit: float, **__):
        limits.append(limit)
        return [timing.AtLeast(0.5) if limit < 0.5 else timing.Timing(0.6, 0.0, 3) for _ in kernels]

    cost = CpuCost(1, ProfileDatabase(tmp_path / "p.sqlite"))
    assert cost.machine.peak > 0
    stored = len(cost.database.rows())
    monkeypatch.setattr(costs, "measure", measured)
    assert cost.within(matmul(), math.inf, 0.1) == (0.5, False)
    assert cost.within(matmul(), math.inf, 0.4) == (0.5, False), "that is known"
    assert cost.estimate(matmul()) == 0.5
    assert len(cost.database.rows()) == stored
    assert cost.within(matmul(), math.inf, 0.55) == (0.6, True)
    assert cost.within(matmul(), math.inf, 0.1) == (0.6, True)
    assert limits == [0.1, 0.55]
    assert len(cost.database.rows()) == stored + 1


def test_no_sample_starts_that_would_end_late(clock: Clock) -> None:
    found = sample(lambda: clock.run(0.1), 5.0, until=clock.now + 0.35)
    assert clock.now <= 1000.35
    assert found.n == 2


def test_a_kernel_that_would_end_late_is_not_begun(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_time", lambda *_: timing.Timing(clock.run(1.0), 0.0, 1))
    kernels = [matmul(n) for n in (8, 16, 24)]
    found = measure.measure(kernels, 1, expected=[1.0, 1.0, 1.0], until=clock.now + 3.5)
    assert [isinstance(t, timing.Timing) for t in found] == [True, True, False]
    assert found[2] is Unmeasured.TIME


def test_a_kernel_that_does_not_fit_into_memory_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_time", lambda *_: pytest.fail("run"))
    monkeypatch.setattr(capacity, "available_bytes", lambda: 100.0)
    assert measure.measure([matmul()], 1) == [Unmeasured.MEMORY]
    assert measure.bytes_of(matmul(), frozenset({"b"})) == 4 * (64 + 3 * 64 + 64)


def test_what_was_not_measured_is_told_and_not_stored(tmp_path: Path) -> None:
    database = ProfileDatabase(tmp_path / "p.sqlite")
    cost = CpuCost(1, database, budget_s=0.002)
    assert cost.machine.peak > 0
    stored = len(database.rows())
    assert cost.measured([matmul()], until=0.0) == [None]
    assert cost.notes() == ["1 kernels were not measured: no time was left"]
    assert len(database.rows()) == stored
    assert cost.timing(matmul()).n > 0, "with time it is measured"
    assert not any("not measured" in note for note in cost.notes())


def test_nothing_waits_for_quiet_on_a_restless_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def measured(kernels, *_, patient: bool, **__):
        asked.append(patient)
        return [timing.Timing(1.0, 0.0, 3, clean=False) for _ in kernels]

    cost = CpuCost(1, ProfileDatabase(tmp_path / "p.sqlite"))
    assert cost.machine.peak > 0
    monkeypatch.setattr(costs, "measure", measured)
    for n in range(costs.RESTLESS + 2):
        cost.measured([matmul(8 * n + 8)])
    assert asked == [True] * costs.RESTLESS + [False] * 2
    assert cost.notes() == [f"other programs disturbed the measuring of {costs.RESTLESS + 2} kernels: the fastest sample counts"]


def test_equal_kernels_are_compiled_once_whatever_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(codegen, "compile_operators", lambda named, *_: compiled.extend(named) or b"code")
    objects = Objects(1)
    one, same = operator("A : f32[9]\nL[i<9] relu(A[i])"), operator("B : f32[9]\nL[i<9] relu(B[i])", "z")
    shared = EOperator(one.scope, one.operands, dense_view(one.operands[0][1].buffer, (9,)))
    assert objects.seconds(one) > 0
    assert objects.get([one, same]) == (b"code",)
    assert objects.get([same]) == (b"code",)
    assert objects.seconds(same) == 0
    assert len(compiled) == 1
    objects.get([shared])
    assert len(compiled) == 2, "in place is other code"


def test_a_kernel_without_code_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise codegen.BackendError("too hard")

    monkeypatch.setattr(codegen, "compile_operators", fail)
    objects = Objects(1)
    for _ in range(2):
        with pytest.raises(NotGenerated, match="too hard"):
            objects.get([operator("A : f32[9]\nL[i<9] relu(A[i])")])
        monkeypatch.setattr(codegen, "compile_operators", lambda *_: pytest.fail("tried again"))


# --------------------------------------------------------------------------------------------------------------- comparing


def test_a_comparison_of_slow_programs_ends_in_time(clock: Clock) -> None:
    start = clock.now
    found = compare({"a": lambda: clock.run(1.5), "b": lambda: clock.run(3.0)}, budget_s=20.0, least=3, pause_s=0.15, warm_s=0.1)
    assert clock.now - start <= 20
    assert found.timings["b"].median == pytest.approx(3.0)
    assert found.timings["b"].n >= 1
    assert found.noise == 0.05, "few rounds tell little"


def test_one_round_is_the_least(clock: Clock) -> None:
    assert compare({"a": lambda: clock.run(30.0)}, budget_s=2.0).timings["a"].n == 1


def test_who_rests_is_alone_in_memory(clock: Clock) -> None:
    resident: set[str] = set()

    def engine(name: str):
        def call() -> None:
            assert resident <= {name}
            resident.add(name)
            clock.run(0.5)

        return call

    names = ("a", "b", "c")
    found = compare({n: engine(n) for n in names}, 30.0, rest=dict.fromkeys(names, resident.clear))
    assert not resident
    assert found.timings["c"].median == pytest.approx(0.5)


# ------------------------------------------------------------------------------------------------------------------ memory


def test_memory_is_what_the_system_and_every_control_group_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (groups / "one" / "two").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    (proc / "self" / "cgroup").write_text("0::/one/two\n")
    for name, limit, used in (("one", "4000000", "1000000"), ("one/two", "max", "500000")):
        (groups / name / "memory.max").write_text(limit + "\n")
        (groups / name / "memory.current").write_text(used + "\n")
        (groups / name / "memory.stat").write_text("anon 5\ninactive_file 250000\n")
    monkeypatch.setattr(capacity, "_PROC", proc)
    monkeypatch.setattr(capacity, "_GROUPS", groups)
    assert available_bytes() == 4000000 - 1000000 + 250000
    (groups / "one" / "memory.max").write_text("max\n")
    assert available_bytes() == 8000 * 1024
    (proc / "meminfo").unlink()
    assert available_bytes() == math.inf


def test_growth_sees_what_was_taken_for_a_while() -> None:
    """Of the system: an allocator may have so much free already."""
    with growth() as grown, mmap.mmap(-1, 64 << 20) as block:
        block.write(b"1" * len(block))
    assert grown.nbytes is None or 60e6 < grown.nbytes < 300e6
    assert grown.left is None or grown.nbytes is not None and grown.left <= grown.nbytes - 60e6
    with growth() as kept:
        block = mmap.mmap(-1, 64 << 20)
        block.write(b"1" * len(block))
    assert kept.left is None or 60e6 < kept.left < 300e6
