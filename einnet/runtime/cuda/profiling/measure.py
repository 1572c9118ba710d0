"""Times of packed kernels on a card: one driver, one set of handles, one region of numbers to read and one to write for all of them.

A kernel's weights are cold and all else is hot, as in a program: it is launched on copies of its weights that lie apart, after the level-2 cache
was overwritten. Machine code and descriptions come from a pack; nothing is generated, searched or compiled here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from einnet.errors import BackendError, UsageError
from einnet.instantiate.kernels import Conv
from einnet.instantiate.kernels.arithmetics import math_of
from einnet.records import as_text, read_text
from einnet.runtime.arena import align_up, fill_random
from einnet.runtime.cuda.driver import Array, Call, Driver
from einnet.runtime.cuda.libraries import Libraries
from einnet.runtime.cuda.profiling.card_files import Card, Head, Row, Sample
from einnet.runtime.cuda.profiling.pack import Code, Pack, Packed, PackedStep
from einnet.runtime.cuda.program import ALIGNMENT, Gemm
from einnet.runtime.cuda.tuning import fastest
from einnet.runtime.timing import Timing, summarize

ROUNDS = 7
COPIES = 16
"""Launches of a kernel in one graph, each with weights of its own."""

LONG_S = 2e-3
"""A graph takes about so long at most, where a kernel alone does not take longer."""

FLUSH = 1 << 27
"""Bytes that are written to empty the level-2 cache, which has 50 MB on an H100 and 126 MB on a B200."""

ROOM = 1 << 35
"""Bytes at most of the region of numbers to read."""

BLOCK = 1 << 26
"""Bytes of random numbers that the region repeats."""


class Bench:
    """Packed kernels on the current device. Raises BackendError without one, or where the machine code is for another."""

    def __init__(self, pack: Pack, driver: Driver | None = None) -> None:
        self.pack = pack
        self.libraries = Libraries(driver)
        self.driver = self.libraries.driver
        if pack.codes and self.driver.architecture != pack.architecture:
            raise BackendError(f"the pack has machine code for {pack.architecture}, and the device is of {self.driver.architecture}")
        every = [*pack.kernels, *pack.figures.values()]
        self._numbers_bytes = min(max((_needs(k, COPIES) for k in every), default=0), ROOM)
        self._results_bytes = max((_written(k) for k in every), default=0)
        self._numbers, self._results = self.driver.allocate(self._numbers_bytes), self.driver.allocate(self._results_bytes)
        for address, nbytes in ((self._numbers, self._numbers_bytes), (self._results, self._results_bytes)):
            self._fill(address, nbytes)
        self._flush = self.driver.fill(self.driver.allocate(FLUSH), FLUSH)

    def _fill(self, address: int, nbytes: int) -> None:
        """Random numbers: some hardware is faster on zeros."""
        block = np.empty(min(BLOCK, nbytes) // 4, np.float32)
        fill_random(block)
        self.driver.write(address, block)
        for at in range(block.nbytes, nbytes, max(block.nbytes, 1)):
            self.driver.copy(address + at, address, min(block.nbytes, nbytes - at))
        self.driver.wait()

    def versions(self) -> dict[str, str]:
        """Of everything that times depend on, beside the generator."""
        libraries = {"cublaslt": self.libraries.products("fp32").version(), "cudnn": self.libraries.convolutions("fp32").version()}
        return {**self.driver.versions(), **libraries}

    def time(self, kernel: Packed, math: str) -> Row:
        """Seconds of all launches of a kernel, with cold weights ("seconds") and with hot ones. Raises BackendError where it does not run."""
        places = self._places(kernel)
        bound = [list(calls) for calls in self._bound(kernel, math, places)]
        for call in bound[0]:  # once before it is captured: libraries set themselves up in their first call
            call()
        self.driver.wait()
        alone = self.driver.seconds(self.driver.capture(bound[0]))
        count = max(2, min(len(bound), int(LONG_S / max(alone, 1e-6))))
        hot = self._sampled(bound[0] * count, count, flushed=False)
        cold = self._sampled([call for calls in bound[:count] for call in calls], count, flushed=True) if kernel.weights else hot
        return Row(
            key=kernel.key, kind=kernel.kind, math=math, calls=len(bound[0]), seconds=_told(cold), hot=_told(hot), arithmetic=kernel.arithmetic
        )  # fmt: skip

    def _sampled(self, calls: Sequence[Call], count: int, flushed: bool) -> Timing:
        graph = self.driver.capture(calls)
        found = []
        for n in range(ROUNDS + 1):
            if flushed:
                self._flush()
            seconds = self.driver.seconds(graph) / count
            if n:
                found.append(seconds)
        return summarize(found)

    def _places(self, kernel: Packed) -> list[dict[str, int]]:
        """Addresses for each launch in a graph. Raises BackendError for a kernel that has no room."""
        copies = COPIES
        while copies > 1 and _needs(kernel, copies) > self._numbers_bytes:
            copies //= 2
        if _needs(kernel, copies) > self._numbers_bytes or _written(kernel) > self._results_bytes:
            raise BackendError(f"{_needs(kernel, 1)} bytes to read and {_written(kernel)} to write are more than a profile has room for")
        only = {*kernel.weights, *kernel.read}
        results = dict(_laid(self._results, kernel, [b for b in kernel.sizes if b not in only]))
        fixed = dict(_laid(self._numbers, kernel, kernel.read))
        weights, start = sum(_bytes(kernel, b) for b in kernel.weights), self._numbers + sum(_bytes(kernel, b) for b in kernel.read)
        return [{**results, **fixed, **dict(_laid(start + n * weights, kernel, kernel.weights))} for n in range(copies if kernel.weights else COPIES)]

    def _bound(self, kernel: Packed, math: str, places: Sequence[dict[str, int]]) -> Iterator[list[Call]]:
        """The kernel's calls on each of the places."""
        bind = [self._step(step, math, places[0]) for step in kernel.steps]
        distinct = places if kernel.weights else places[:1]
        bound = [[call for one in bind for call in one(addresses)] for addresses in distinct]
        yield from bound if kernel.weights else bound * len(places)

    def _step(self, step: PackedStep, math: str, first: dict[str, int]) -> Callable[[dict[str, int]], Sequence[Call]]:
        """What binds a step to addresses; a library's algorithm is chosen by time, once."""
        if isinstance(step, Code):
            module = self.driver.module(self.pack.codes[step.number])
            functions = [module.get_function(x.function) for x in step.launches]
            return lambda at: [
                self.driver.launch(f, x.grid, x.block, [at[b] + 4 * n for b, n in x.arguments]) for f, x in zip(functions, step.launches, strict=True)
            ]
        if isinstance(step, Gemm):
            products = self.libraries.products(math_of(step.factors) if step.factors.rounds else math)
            algorithm = fastest(self.driver, products.proposals(step, first), lambda p: products.bind(step, first, p))
            return lambda at: products.bind(step, at, algorithm)
        assert isinstance(step, Conv)
        convolutions = self.libraries.convolutions(math)
        plan = fastest(self.driver, convolutions.proposals(step), lambda p: convolutions.bind(step, first, p))
        return lambda at: convolutions.bind(step, at, plan)

    def figures(self, math: str) -> Card:
        """The card's figures by the pack's kernels for them, and two copies to the device."""
        product, copy, launch = (self.pack.figures[name] for name in ("product", "copy", "launch"))
        large, wide, small = (self._hot(k, math) for k in (product, copy, launch))
        operations = sum(2 * s.m * s.n * s.k for s in product.steps if isinstance(s, Gemm))
        values = np.zeros(1 << 24, np.float32)
        address = self._numbers if self._numbers_bytes >= values.nbytes else self.driver.allocate(values.nbytes)
        whole, little = (min(self._sent(address, v) for _ in range(5)) for v in (values, values[:1]))
        return Card(operations / large, 4 * sum(copy.sizes.values()) / wide, values.nbytes / whole, launch=small, wait=little)

    def _hot(self, kernel: Packed, math: str) -> float:
        timed = self.time(kernel, math).hot
        assert timed is not None
        return timed[0]

    def _sent(self, address: int, values: Array) -> float:
        started = time.perf_counter()
        self.driver.write(address, values)
        return time.perf_counter() - started


def _told(timing: Timing) -> Sample:
    return timing.median, timing.spread, timing.n


def _bytes(kernel: Packed, buffer: str) -> int:
    return align_up(max(4 * kernel.sizes[buffer], 1), ALIGNMENT)


def _needs(kernel: Packed, copies: int) -> int:
    """Bytes to read, with so many copies of the weights."""
    return sum(_bytes(kernel, b) for b in kernel.read) + copies * sum(_bytes(kernel, b) for b in kernel.weights)


def _written(kernel: Packed) -> int:
    only = {*kernel.weights, *kernel.read}
    return sum(_bytes(kernel, b) for b in kernel.sizes if b not in only)


def _laid(start: int, kernel: Packed, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Buffers behind each other."""
    for name in names:
        yield name, start
        start += _bytes(kernel, name)


def measure(pack: Pack, output: Path, seconds: float, tell: Callable[[str], None], driver: Driver | None = None) -> tuple[int, int]:
    """Time the pack's kernels in its order, in every arithmetic that they are wanted in, and write each time as it is known: a line of JSON.

    The first line tells of the device. Ends after `seconds`. Gives how many were timed and how many do not run. Raises UsageError where the
    output cannot be written, BackendError without a device.
    """
    ends, bench = time.monotonic() + seconds, Bench(pack, driver)
    maths = list(dict.fromkeys(m for k in pack.kernels for m in k.math)) or ["fp32"]
    properties = bench.driver.properties()
    figures = {math: bench.figures(math) for math in maths}
    device, versions = properties["name"], bench.versions()
    head = Head(times=1, device=device, properties=properties, versions=versions, made_by=pack.made_by, card=figures, failed=pack.failed)
    timed = failed = 0
    try:
        with output.open("w", encoding="utf-8") as file:
            file.write(as_text(head, None) + "\n")
            for kernel, math in ((k, m) for k in pack.kernels for m in k.math):
                if time.monotonic() > ends:
                    break
                row = _row(bench, kernel, math)
                timed, failed = (timed, failed + 1) if row.failed else (timed + 1, failed)
                file.write(as_text(row, None) + "\n")
                file.flush()
                if (timed + failed) % 500 == 0:
                    tell(f"{timed} kernels timed, {failed} do not run")
    except OSError as e:
        raise UsageError(f"the times {output} cannot be written: {e.strerror or e}") from e
    return timed, failed


def _row(bench: Bench, kernel: Packed, math: str) -> Row:
    try:
        return bench.time(kernel, math)
    except BackendError as e:
        return Row(key=kernel.key, kind=kernel.kind, math=math, failed=str(e), arithmetic=kernel.arithmetic)


def read_times(path: Path) -> tuple[Head, list[Row]]:
    """What was told of the device, and the times. Raises UsageError for a file that is missing or none."""
    number = 1
    try:
        head, *lines = path.read_text(encoding="utf-8").splitlines()
        told, rows = read_text(Head, head), []
        for number, line in enumerate(lines, 2):  # noqa: B007
            rows.append(read_text(Row, line))
        return told, rows
    except OSError as e:
        raise UsageError(f"the times {path} cannot be read: {e.strerror or e}") from e
    except (RecursionError, ValueError) as e:
        raise UsageError(f"{path} holds no times of kernels: line {number}: {e}") from e
