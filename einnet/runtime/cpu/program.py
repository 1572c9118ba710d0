"""A plan made executable: kernels compiled, and bound to memory (`binding`); an inference is one native call.

Where the plan has nodes that ONNX Runtime runs, the program is a sequence of native segments and such nodes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.instantiate.kernels import EOperator, Kernel, OpaqueCall, Plan
from einnet.runtime import arena as memory
from einnet.runtime import ort
from einnet.runtime.contention import CORES
from einnet.runtime.cpu.affinity import keep_apart
from einnet.runtime.cpu.along_time import stepped
from einnet.runtime.cpu.binding.asked import Asked
from einnet.runtime.cpu.binding.bound import Bound
from einnet.runtime.cpu.binding.placed import Placed
from einnet.runtime.cpu.forked import on_live_pool, on_live_threads, unlock_in_children
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.native.linked import Native, Steps
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.cpu.threads import limited, resolve_threads
from einnet.runtime.timing import Timing, summarize

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Code:
    """Object code of a program: the support functions, an object for each distinct generated kernel, and for which processors they are.

    Kernels that take no arrays from `anywhere`, as older generators wrote them, take those that begin with a cache line.
    """

    support: bytes
    kernels: tuple[bytes, ...] = ()
    cpu: str = NATIVE
    anywhere: bool = True


def build_code(plan: Plan, threads: int, objects: Objects | None = None) -> Code:
    """What the plan's eOperators need, taken from `objects` as far as it was compiled before. Raises NotGenerated."""
    objects = objects or Objects(threads)
    return Code(objects.support(), objects_of(plan.kernels, objects), objects.cpu)


def objects_of(kernels: Sequence[Kernel], objects: Objects) -> tuple[bytes, ...]:
    """The object code of those of the kernels that are generated. Raises NotGenerated."""
    along = [o for k in kernels if isinstance(k, OpaqueCall) and (found := stepped(k)) is not None for o in found.operators]
    return (*objects.get([k for k in kernels if isinstance(k, EOperator)]), *objects.stepwise(along))


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a program, what runs it, and how long it takes inside the program."""

    kernel: Kernel
    implementation: str
    timing: Timing


class Executable:
    """A program for the CPU. Calls from several threads are safe and run one after the other.

    `code` is what `build_code` gave for the same plan and threads, where it is at hand, and `native` the same linked. A vendor kernel that has no
    fast implementation here is run by ONNX Runtime, or by the library's reference code, and `notes` says so; a `strict` program has none such.
    Constants that programs `beside` it have, too, are read where these have them, if both were given the very same ones: nothing is packed twice.
    Then `constant_bytes` are those of its own.

    Raises UsageError for a malformed plan, Refused for a kernel that cannot be run, or for a strict program not fast, BackendError where a library is
    missing.
    """

    def __init__(
        self, plan: Plan, threads: int | None = None, *, code: Code | None = None, native: Native | None = None, strict: bool = False,
        beside: Sequence[Executable] = (),
    ) -> None:  # fmt: skip
        memory.check_plan(plan)
        self.plan, self.threads = plan, resolve_threads(threads)
        self.code = code or build_code(plan, self.threads)
        self.unlock()
        unlock_in_children(self)
        self.native = native or Native(self.code.support, self.code.kernels)
        self._bind(strict, beside)
        if self.threads > 1:
            CORES.watch(partial(self.native.together, self.threads), partial(self.native.sharing, self.threads))

    @on_live_pool
    def _bind(self, strict: bool, beside: Sequence[Executable]) -> None:
        """Ask for the kernels, take memory and write the constants."""
        with limited(self.threads):
            self._asked = Asked(self.plan, strict)
            self._placed: Placed = Placed(self._asked, [other._placed for other in beside])
            bound = Bound(self._asked, self._placed, self.native, self.threads, 1 if self.code.anywhere else memory.ALIGNMENT)
        self.notes, self.arena_bytes, self.constant_bytes = self._asked.notes, self._placed.arena_bytes, self._placed.constant_bytes
        self._segments, self._firsts, self._labels, self._keep = bound.segments, bound.firsts, bound.labels, bound.keep
        self._inputs, self._outputs, self._lending = bound.inputs, bound.outputs, bound.lending
        self._input_names, self._output_names = tuple(n for n, _ in self.plan.inputs), tuple(n for n, _ in self.plan.outputs)
        self._expected = set(self._input_names)
        self._direct, self._named = bound.only_node(), bound.model_itself()

    def unlock(self) -> None:
        """Nobody holds the program: so it is when it is made, and in a child that is forked while a thread of the parent runs it."""
        self._lock = threading.Lock()

    @property
    def input_names(self) -> tuple[str, ...]:
        return self._input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        return self._output_names

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Raises UsageError for a missing or unknown name, a wrong shape or element type."""
        if self._named and on_live_threads() and (made := self._named.named(inputs)) is not None:
            return dict(zip(self._output_names, made))
        if inputs.keys() != self._expected:
            raise UsageError(self._misnamed(inputs))
        return dict(zip(self._output_names, self.run(*[np.asarray(inputs[n]) for n in self._input_names]), strict=True))

    def _misnamed(self, inputs: Mapping[str, Array]) -> str:
        unknown, missing = sorted(inputs.keys() - self._expected), [n for n in self._input_names if n not in inputs]
        problem = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
        return f"{problem}; the program takes {', '.join(self._input_names) or 'no inputs'}"

    def run(self, *arrays: Array) -> list[Array]:
        """Outputs in order, for inputs in order. Large ones are read and written where they are (`Lending`), others are copied."""
        made = self._run(arrays, None)
        assert made is not None
        return made

    def into(self, arrays: Sequence[Array], results: Sequence[Array]) -> list[Array] | None:
        """The same with the outputs written into `results`, arrays of the outputs' shapes and types in any order of memory.

        Where one node is the whole program, ONNX Runtime makes the outputs: they are given back, and `results` are left as they are.
        """
        return self._run(arrays, results)

    @on_live_pool
    def _run(self, arrays: Sequence[Array], results: Sequence[Array] | None) -> list[Array] | None:
        self._check(arrays)
        if self._direct:
            node, inputs, outputs = self._direct
            made = node.direct([arrays[n] for n in inputs])
            return [made[n] for n in outputs]
        own = [source for _, source in self._outputs]
        with self._lock:
            for (_, target), array, read in zip(self._inputs, arrays, self._lending.take(arrays)):
                if not read:
                    target[...] = array
            places = self._lending.results(own) if results is None else results
            written = self._lending.give(places)
            self._call()
            if results is None:
                return [place if there else source.copy() for source, place, there in zip(own, places, written)]
            for source, place, there in zip(own, places, written, strict=True):
                if not there:
                    place[...] = source
        return None

    def _check(self, arrays: Sequence[Array]) -> None:
        """Raise UsageError for inputs of another number, shape or element type."""
        if len(arrays) != len(self._inputs):
            raise UsageError(f"{len(arrays)} inputs given; the program takes {len(self._inputs)}: {', '.join(self.input_names)}")
        for (name, target), array in zip(self._inputs, arrays):
            if array.shape != target.shape or array.dtype != target.dtype:
                raise UsageError(f"input {name!r} is {array.dtype}{list(array.shape)}; expected {target.dtype}{list(target.shape)}")

    def _call(self) -> None:
        """All segments, one after the other."""
        keep_apart(self.threads)
        for segment in self._segments:
            segment()

    @on_live_pool
    def execute(self) -> None:
        """Run on what is in memory already, without copies: what timing measures."""
        with self._lock:
            self._lending.home()
            self._call()

    def randomize(self, seed: int = 0) -> None:
        """Fill float inputs with random values that repeat, so that a timing does not run on zeros; and take all memory now."""
        with self._lock:
            self._placed.arena.touch()
            for _, target in self._inputs:
                if target.dtype.kind == "f":
                    memory.fill_random(target, seed)

    @property
    def session(self) -> ort.Session | None:
        """The session of ONNX Runtime that is the whole program; None for any other program, and where it has given its memory back."""
        return self._direct[0].session if self._direct else None

    @property
    def nbytes(self) -> int:
        """Bytes that the program holds when it has run: the arena and the constants."""
        return self.arena_bytes + self.constant_bytes

    def release(self) -> None:
        """Give the arena's memory back until the next run, which takes it again."""
        with self._lock:
            self._placed.arena.release()

    def rest(self) -> None:
        """Give the memory of the opaque nodes back, too; the next run takes longer."""
        self.release()
        for segment in self._segments:
            if isinstance(segment, ort.OpaqueNode):
                segment.rest()

    @on_live_pool
    def settle(self, cold: bool) -> None:
        """Before a sample: drop the constants from all caches if `cold`, and wake the pool, which runs on between a program's kernels."""
        with self._lock:
            if cold and self.constant_bytes:
                self.native.flush(self._placed.region.address, self.constant_bytes)
            keep_apart(self.threads)
            self.native.wake(self.threads)

    @on_live_pool
    def sample(self) -> list[float]:
        """Run on what is in memory; seconds of every kernel."""
        times: list[float] = []
        with self._lock:
            self._lending.home()
            keep_apart(self.threads)
            for segment in self._segments:
                if isinstance(segment, Steps):
                    times.extend(segment.profile())
                else:
                    start = time.perf_counter()
                    segment()
                    times.append(time.perf_counter() - start)
        return [float(t) for t in np.add.reduceat(times, self._firsts)] if len(times) > len(self._firsts) else times

    def profile(self, repeats: int = 20) -> list[KernelTime]:
        """The time of every kernel, run in the program's order, so that operands are as warm or cold as they are in an inference."""
        self.sample()
        samples = [self.sample() for _ in range(repeats)]
        return [KernelTime(self.plan.kernels[n], label, summarize([s[i] for s in samples])) for i, (n, label) in enumerate(self._labels)]
