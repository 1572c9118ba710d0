"""Object code in memory: linking, generated kernels, threads."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from einnet.errors import BackendError, UsageError
from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Buffer, EOperator, Matmul, Plan, View, dense_view
from einnet.runtime import artifact, contention
from einnet.runtime.contention import Cores, waited
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.native.link import Image, ObjectFile
from einnet.runtime.cpu.native.linked import Native, Steps
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.cpu.program import Executable
from einnet.runtime.cpu.threads import find_symbol, limited, physical_cores, resolve_threads
from tests.runtime.plans import finish, rng_constants


def operator(text: str, views: dict[str, View], out: View) -> EOperator:
    scope = parse(text)
    return EOperator(scope, tuple((name, views[name]) for name in tensors(scope)), out)


def mixed() -> Plan:
    """t = x w; y[i,j] = exp(t[i,j]) + x[i,j-1]; z[i] = max_j y[i,j] out of a slice, twice the same kernel."""
    constants = rng_constants({"w": 40 * 40})
    t, x, y = (dense_view(n, (30, 40)) for n in "txy")
    half = [View("y", (15, 40), (40, 1), n * 600) for n in range(2)]
    kernels = [
        Matmul(x, dense_view("w", (40, 40)), t),
        operator("T : f32[30,40]\nX : f32[30,40]\nL[i<30,j<40] exp(T[i,j]) + X[i,j-1]", {"T": t, "X": x}, y),
        operator("Y : f32[15,40]\nL[i<15] max[j<40] Y[i,j]", {"Y": half[0]}, View("z", (15,), (2,), 0)),
        operator("Y : f32[15,40]\nL[i<15] max[j<40] Y[i,j]", {"Y": half[1]}, View("z", (15,), (2,), 1)),
    ]
    buffers = [Buffer("x", 1200, "f32", "input"), *(Buffer(n, 1200, "f32", "temporary") for n in "ty"), Buffer("z", 30, "f32", "output")]
    return finish(buffers, kernels, constants, {"x": x}, {"z": dense_view("z", (30,))})


def expected(plan: Plan, x: np.ndarray) -> np.ndarray:
    y = np.exp(x.astype(np.float64) @ plan.constants["w"].reshape(40, 40))
    y[:, 1:] += x[:, :-1]
    return y.max(1).reshape(2, 15).T.reshape(-1)


@pytest.mark.parametrize("threads", [1, 2])
def test_generated_kernels_between_vendor_kernels(threads: int) -> None:
    plan = mixed()
    program = Executable(plan, threads)
    assert len(program._segments) == 1
    x = np.random.default_rng(0).uniform(-0.3, 0.3, (30, 40)).astype(np.float32)
    np.testing.assert_allclose(program.run(x)[0], expected(plan, x), rtol=1e-4, atol=1e-4)


def test_generated_kernels_travel(tmp_path: Path) -> None:
    plan = mixed()
    program = Executable(plan, 1)
    artifact.save(tmp_path / "p.einnet", plan, program.code, threads=1)
    loaded = artifact.load(tmp_path / "p.einnet")
    assert loaded.code == program.code
    x = np.full((30, 40), 0.01, np.float32)
    np.testing.assert_array_equal(loaded.executable().run(x)[0], program.run(x)[0])


def test_parallel_loops_from_several_callers() -> None:
    plan = mixed()
    program = Executable(plan, 2)
    x = np.full((30, 40), 0.01, np.float32)
    want, failures = program.run(x)[0], []

    def work() -> None:
        failures.extend(n for n in range(20) if not np.array_equal(program.run(x)[0], want))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


def test_what_cannot_be_generated_is_told() -> None:
    scope = parse("A : c64[4]\nL[i<4] A[i]")
    with pytest.raises(BackendError, match="c64"):
        codegen.compile_operators({"k": EOperator(scope, (("A", dense_view("a", (4,))),), dense_view("y", (4,)))}, 1)


def test_a_failing_step_is_named() -> None:
    native = Native(codegen.support_object())
    succeeds, fails = find_symbol("omp_in_parallel"), find_symbol("getpid")
    assert succeeds
    assert fails
    steps = Steps(native, [(succeeds, ()), (fails, ()), (succeeds, ())], 1, ["first", "second", "third"])
    with pytest.raises(BackendError, match="second failed"):
        steps()
    with pytest.raises(BackendError, match="second failed"):
        steps.profile()


def test_symbols_that_nobody_has() -> None:
    with pytest.raises(BackendError, match="needs the symbol"):
        Image([codegen.support_object()], lambda name: None)
    image = Image([codegen.support_object()], find_symbol)
    assert image.address("einnet_run")
    with pytest.raises(BackendError, match="defines no symbol nothing"):
        image.address("nothing")


def test_damaged_object_code_is_refused_or_harmless() -> None:
    data, rng = codegen.support_object(), random.Random(1)
    for n in (0, 3, 20, 63, 64, len(data) // 2, len(data) - 1):
        with pytest.raises(BackendError):
            Image([data[:n]], find_symbol)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] = rng.randrange(256)
        try:
            ObjectFile(bytes(damaged)).relocations()
        except BackendError:
            continue


def test_threads() -> None:
    assert resolve_threads(None) == physical_cores() >= 1
    assert resolve_threads(3) == 3
    with pytest.raises(UsageError, match="threads=0"):
        resolve_threads(0)
    with limited(3), limited(2):
        pass


def test_waiting_for_a_core_is_counted() -> None:
    before = waited()
    assert 0 <= before <= waited()


def test_cores_are_apart_where_a_probe_takes_longer_than_it_did() -> None:
    cores, asked = Cores(), iter([3.0, 2.0, 2.7, 2.9, 0.0, 2.9, 0.0, 0.0, 2.0])
    assert not cores.apart(), "nothing tells"
    cores.watch(lambda: next(asked))
    assert [cores.apart() for _ in range(4)] == [False, False, False, True]
    assert [cores.apart() for _ in range(2)] == [True, False], "who cannot tell is asked again, once"
    cores.known = 1.0
    cores.probe = lambda: 2.0
    assert cores.apart(), "an earlier process has seen them nearer"
    cores.known, cores.probe = 1.2, lambda: next(asked)
    cores.process -= 1
    assert not cores.apart(), "a child that was forked has no threads to ask"
    assert next(asked) == 2.0


def test_cores_that_are_apart_are_waited_for_so_long_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(contention.time, "sleep", slept.append)
    cores, answers = Cores(waits_s=0.2), iter([1.0, 2.0, 2.0, 1.0])
    cores.watch(lambda: next(answers, 2.0))
    assert not cores.apart()
    cores.settle()
    assert len(slept) == 2
    cores.settle()
    cores.settle()
    assert sum(slept) == pytest.approx(0.2, abs=contention.BETWEEN_S)


def test_threads_that_share_a_core_are_apart_where_they_need_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first look on; on a machine where they always do it is waited for so long, and no more after that."""
    slept: list[float] = []
    monkeypatch.setattr(contention.time, "sleep", slept.append)
    monkeypatch.setattr(contention, "LOOKS_S", 0.0)
    now = [1.6, 1.7, 1.6]
    cores = Cores(waits_s=0.2)
    cores.watch(lambda: 1.0, lambda: now[0])
    assert cores.apart()
    cores.settle()
    assert sum(slept) == pytest.approx(0.2, abs=contention.BETWEEN_S) and not cores.apart(), "so it is on this machine"
    now[0] = 1.05
    assert not cores.apart()
    now[0] = 1.6
    assert cores.apart(), "each has had a core of its own"
    now[0] = 0.0
    assert not cores.apart(), "nothing is told"
    answers = iter([0.0, 1.9, 1.1, 1.9, 1.8, 1.7])
    cores.shares = lambda: next(answers)
    assert [cores.apart() for _ in range(2)] == [False, True], "others interrupt one of two looks"


def test_what_was_seen_of_shared_cores_holds_for_a_while() -> None:
    asked: list[int] = []
    cores = Cores()
    cores.watch(lambda: 1.0, lambda: float(asked.append(1) or 1.0))
    cores.apart()
    cores.looked = contention.time.monotonic()
    cores.apart()
    assert len(asked) == contention.LOOKS


def test_two_threads_tell_whether_they_share_a_core() -> None:
    native = Native(Objects(2).support())
    assert native.sharing(1) == 0.0
    end, found = time.monotonic() + 20.0, list[float]()
    while len(found) < 20 and time.monotonic() < end and len(os.sched_getaffinity(0)) > 1:
        found += [ratio for _ in range(20) if (ratio := native.sharing(2))]
    ordinary = sorted(found)[len(found) // 2 :][:1]  # others may stop either thread, alone or together
    assert all(ratio > 0.05 for ratio in ordinary) and (not found or min(found) < 3)


def test_two_threads_tell_how_near_their_cores_are() -> None:
    native = Native(Objects(2).support())
    assert native.together(1) == 0.0
    assert "einnet_turns" in native.image and "einnet_once" not in native.image
    end, found = time.monotonic() + 20.0, list[float]()
    while len(found) < 20 and time.monotonic() < end and len(os.sched_getaffinity(0)) > 1:
        found += [s for _ in range(20) if (s := native.together(2))]
    assert all(1e-6 < s < 1.0 for s in found)
    native._turns = None
    assert native.together(2) == 0.0, "programs that were stored have no such function"
    if not found:
        pytest.skip("two cores are never free at once")
