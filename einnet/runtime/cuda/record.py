"""Times of kernels on a card: each alone in a captured graph, hot, and with the level-2 cache flushed before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from einnet.errors import EinNetError
from einnet.expr.nodes import Tensor
from einnet.expr.text import parse
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Kernel, Matmul, OpaqueCall, Plan, dense_view, operand_views, result_views
from einnet.runtime.cpu.roofline import flops, moved
from einnet.runtime.cuda.device import Device
from einnet.runtime.cuda.driver import Array, Driver
from einnet.runtime.cuda.lower import lower
from einnet.runtime.cuda.profile import Card, Profile, key
from einnet.runtime.memory import fill_random, span
from einnet.runtime.timing import Timing, summarize

ROUNDS = 15
REPEATS = 10
"""Launches of a kernel in one graph."""

SAVE_S = 10.0
"""Seconds between two writings of what is known."""


def plan_of(kernel: Kernel) -> Plan:
    """The kernel as a program. Filters of a convolution are constants, as they are in a model; all else is given."""
    weights = kernel.w.buffer if isinstance(kernel, Conv) and kernel.w.buffer not in {kernel.x.buffer, kernel.y.buffer} else None
    sizes: dict[str, int] = {}
    for v in (*operand_views(kernel), *result_views(kernel)):
        sizes[v.buffer] = max(sizes.get(v.buffer, 1), span(v))
    outputs = {v.buffer for v in result_views(kernel)}
    roles = {b: "constant" if b == weights else "output" if b in outputs else "input" for b in sizes}
    whole = {b: dense_view(b, (n,)) for b, n in sizes.items()}
    read = {v.buffer for v in operand_views(kernel)} - {weights}
    constants = {}
    if weights is not None:
        constants[weights] = np.empty(sizes[weights], np.float32)
        fill_random(constants[weights])
    buffers = tuple(Buffer(b, n, "f32", roles[b]) for b, n in sizes.items())
    return Plan(buffers, (kernel,), tuple((b, whole[b]) for b in sorted(read)), tuple((b, whole[b]) for b in sorted(outputs)), constants)


def timed(kernel: Kernel, math: str) -> dict[str, Timing]:
    """Seconds of a kernel, "hot" and "cold"; all of its launches together. Raises BackendError where it does not run."""
    driver = Driver()
    device = Device(lower(plan_of(kernel)), math, driver=driver)
    given = {name: np.empty(view.shape, np.float32) for name, view in device.program.inputs}
    for values in given.values():
        fill_random(values)
    device.load(given)
    nbytes = 2 * int(driver.properties().get("l2CacheSize", 1 << 26))
    flush = driver.fill(driver.allocate(nbytes), nbytes)
    hot, flushed, flushes = (driver.capture(calls * REPEATS) for calls in (device.calls, [flush, *device.calls], [flush]))
    rows = [[driver.seconds(graph) / REPEATS for graph in (hot, flushed, flushes)] for _ in range(ROUNDS + 1)][1:]
    return {"hot": summarize([r[0] for r in rows]), "cold": summarize([max(r[1] - r[2], 0.0) for r in rows])}


def card(math: str) -> Card:
    """The card's figures by four kernels and two copies: a large product, a large copy, a small copy, and the way to the host."""

    def product(n: int) -> Matmul:
        return Matmul(dense_view("a", (n, n)), dense_view("b", (n, n)), dense_view("c", (n, n)))

    def copy(n: int) -> EOperator:
        return EOperator(parse(f"L[i<{n}] A[i]", {"A": Tensor("A", (n,))}), (("A", dense_view("a", (n,))),), dense_view("b", (n,)))

    large, wide, small = (timed(k, math)["hot"].median for k in (product(4096), copy(1 << 26), copy(32)))
    driver = Driver()
    values = np.zeros(1 << 24, np.float32)
    address = driver.allocate(values.nbytes)
    whole, little = (min(_sent(driver, address, v) for _ in range(5)) for v in (values, values[:1]))
    return Card(flops(product(4096)) / large, moved(copy(1 << 26)) / wide, values.nbytes / whole, small, little)


def _sent(driver: Driver, address: int, values: Array) -> float:
    started = time.perf_counter()
    driver.write(address, values)
    return time.perf_counter() - started


def begin(math: str, known: Profile | None) -> Profile:
    """An empty profile of the device that is here, or the known one where it is of this device with the same versions and arithmetic."""
    driver = Driver()
    properties = driver.properties()
    probe = Device(lower(plan_of(Matmul(dense_view("a", (8, 8)), dense_view("b", (8, 8)), dense_view("c", (8, 8))))), math)
    conv = Conv(dense_view("x", (1, 4, 8, 8)), dense_view("w", (1, 4, 4, 3, 3)), dense_view("y", (1, 4, 6, 6)), (1, 1), (1, 1), (0, 0), (0, 0))
    versions = {**probe.versions(), **Device(lower(plan_of(conv)), math).versions()}
    if known and known.measured and (known.device, known.math, dict(known.versions)) == (properties["name"], math, versions):
        return known
    return Profile(properties["name"], card(math), True, versions, {}, math, properties)


def record(profile: Profile, kernels: Iterable[Kernel], keep: Callable[[Profile], None], until: float = float("inf")) -> Profile:
    """The profile with times of the kernels that it does not have; `keep` gets what is known, now and then and at the end.

    A kernel that cannot run has its reason. Opaque nodes run on the host and are left out. Ends at `until` on the monotonic clock.
    """
    seconds, details, failed = dict(profile.seconds), {k: dict(v) for k, v in profile.details.items()}, dict(profile.failed)
    last = time.monotonic()

    def so_far() -> Profile:
        return replace(profile, seconds=dict(seconds), details=dict(details), failed=dict(failed))

    try:
        for kernel in distinct(kernels):
            name = key(kernel)
            if name in seconds or name in failed:
                continue
            if time.monotonic() > until:
                break
            try:
                times = timed(kernel, profile.math)
            except EinNetError as e:
                failed[name] = str(e)
                continue
            seconds[name] = max(times["hot"].median, 1e-9)
            details[name] = {"kind": type(kernel).__name__, **{n: [t.median, t.spread, t.n] for n, t in times.items()}}
            if time.monotonic() - last > SAVE_S:
                keep(so_far())
                last = time.monotonic()
    finally:
        keep(so_far())
    return so_far()


def distinct(kernels: Iterable[Kernel]) -> Sequence[Kernel]:
    """One of each, without opaque nodes."""
    return list({key(k): k for k in kernels if not isinstance(k, OpaqueCall)}.values())

