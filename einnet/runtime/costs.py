"""Costs of kernels on the CPU: from the profile database, else measured now, else estimated."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from einnet.expr.nodes import exchange_in, tensors
from einnet.expr.recursions.recursion import Recursion
from einnet.graph.in_file import model_key
from einnet.instantiate.kernels import EOperator, Kernel, Matmul, OpaqueCall, Plan, VendorKernel, View
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic
from einnet.instantiate.kernels.contractions import Contraction
from einnet.instantiate.kernels.views import Json
from einnet.runtime import machine
from einnet.runtime.contention import CORES
from einnet.runtime.cpu import dnnl, roofline
from einnet.runtime.cpu.compile import NotGenerated, generator_version
from einnet.runtime.cpu.implementations import implementations
from einnet.runtime.cpu.levels import NATIVE
from einnet.runtime.cpu.measure import BUDGET_S, IsConstant, Unmeasured, constant_buffers, measure, refused
from einnet.runtime.cpu.objects import OBJECTS, Objects
from einnet.runtime.cpu.threads import limited, resolve_threads
from einnet.runtime.database import ProfileDatabase, describe
from einnet.runtime.timing import AtLeast, Timing
from einnet.stages import stage

RESTLESS = 8
"""After so many disturbed measurements in a row nothing is repeated in the hope of quiet, until one is quiet."""

SHOWS_PEAK = 1_000_000
"""Operations from which on a product's time is no matter of starting it."""

MEASUREMENT = 3
"""Raised when the way of measuring changes, or how a library is asked for its kernels, so that old times are not mixed with new ones."""


def kernel_key(kernel: Kernel, constants: frozenset[str]) -> Json:
    """The kernel without names: buffers by order of appearance, an expression by its canonical key, models by digest; and what is constant."""
    if isinstance(kernel, EOperator):
        views = dict(kernel.operands)
        declared = tensors(kernel.scope)
        scope = exchange_in(kernel.scope, {name: replace(t, name=f"T{n}") for n, (name, t) in enumerate(declared.items())})
        ordered = [views[name] for name in declared if name in views]
        rounded = [] if kernel.arithmetic == F32 else [kernel.arithmetic.name]
        return ["eoperator", scope.key, _abstract([*ordered, kernel.out], constants), *rounded]
    assert isinstance(kernel, (VendorKernel, OpaqueCall))
    digest = kernel.attributes() if isinstance(kernel, VendorKernel) else node_key(kernel)
    return [{"kind": kernel.kind, **digest}, _abstract([*kernel.operand_views, *kernel.result_views], constants)]


def node_key(call: OpaqueCall) -> dict[str, Json]:
    """What tells nodes that stay as they are apart."""
    along = {} if call.recursion is None else {"recursion": call.recursion.key}
    return {"model": model_key(call.model), **along}


def _abstract(views: Sequence[View], constants: frozenset[str]) -> Json:
    order: dict[str, int] = {}
    return [[order.setdefault(v.buffer, len(order)), v.buffer in constants, list(v.shape), list(v.strides), v.offset] for v in views]


def seen(found: Mapping[Kernel, Timing], arithmetic: Arithmetic) -> float:
    """Operations in a second of the fastest large product in an arithmetic, as that is by which the peak is measured; 0 where there is none."""
    large = {k: t.median for k, t in found.items() if isinstance(k, Matmul) and k.arithmetic == arithmetic and roofline.flops(k) >= SHOWS_PEAK}
    return max((roofline.flops(k) / s for k, s in large.items() if 0 < s < inf), default=0.0)


class CpuCost:
    """Seconds of kernels on this CPU with `threads` threads.

    `constant` says of a buffer's name whether it holds weights, which are packed and measured cold; a convolution's weights and the weight
    tensors of eOperators are known without it. With `measure=False` nothing is run: what the database does not have is estimated.
    `objects` keeps what was compiled, for the processors that `cpu` names (see `cpu.levels`). The time of a product in float32 is that in the fastest
    of the `arithmetics`, to which its factors may be rounded.
    """

    def __init__(
        self, threads: int | None = None, database: ProfileDatabase | None = None, measure: bool = True, *,
        constant: IsConstant | None = None, budget_s: float = BUDGET_S, cpu: str = NATIVE, arithmetics: Sequence[Arithmetic] = (),
    ) -> None:  # fmt: skip
        self.arithmetics = tuple(arithmetics)
        self._peaks: dict[Arithmetic, float] = {}
        self.threads = resolve_threads(threads)
        self.database = database or ProfileDatabase()
        self.constant = constant
        self._measures, self._budget = measure, budget_s
        self.objects = Objects(self.threads, self.database.path.parent / OBJECTS, cpu)
        self._declined: dict[Kernel, Unmeasured] = {}
        self._disturbed = self._restless = 0
        self._known: dict[Kernel, Timing] = {}
        self._longer: dict[Kernel, AtLeast] = {}
        self._bounds: dict[Kernel, float] = {}
        self._machine: roofline.Machine | None = None

    def cost(self, kernel: Kernel) -> float:
        """Seconds; infinite where there is no implementation worth running."""
        return self.timing(kernel).median

    def costs(self, kernels: Sequence[Kernel]) -> list[float]:
        """Seconds of some kernels; what has to be generated is compiled together."""
        return [t.median for t in self.timings(kernels)]

    def timing(self, kernel: Kernel) -> Timing:
        """The time with its spread; `estimated` where it was not measured."""
        return self.timings([kernel])[0]

    def timings(self, kernels: Sequence[Kernel], until: float = inf, limit: float = inf) -> list[Timing]:
        """The times of some kernels; nothing is measured that would not be done when time.monotonic() is `until`, or would not fit into memory.

        A kernel is run no more often than it takes to see that it takes longer than `limit` seconds: its time is then an estimate that is longer.
        """
        found = self._as_they_are(kernels, until, limit)
        rounded = [(n, k) for n, kernel in enumerate(kernels) for k in self.rounded(kernel, self.arithmetics, found[n].median)]
        for (n, _), timing in zip(rounded, self._as_they_are([k for _, k in rounded], until, limit) if rounded else (), strict=True):
            found[n] = timing if not timing.estimated and timing.median < found[n].median else found[n]
        return found

    def rounded(self, kernel: Kernel, arithmetics: Sequence[Arithmetic], seconds: float) -> list[Contraction]:
        """A product with its factors rounded to those arithmetics in which it may take less than so many seconds: by the bytes that it moves, and by
        how many operations a large product takes in a second there."""
        if not isinstance(kernel, Contraction) or kernel.arithmetic != F32 or seconds == inf:
            return []
        every = [(kernel.in_arithmetic(a), self._peak(a)) for a in arithmetics]
        return [k for k, peak in every if roofline.least(k, peak, self.machine.bandwidth) < seconds]

    def _peak(self, arithmetic: Arithmetic) -> float:
        """Operations of a large product in a second."""
        if arithmetic not in self._peaks:
            large = roofline.LARGE.in_arithmetic(arithmetic)
            measured = roofline.flops(large) / self._as_they_are([large])[0].median
            self._peaks[arithmetic] = max(measured, seen(self._known, arithmetic))
        return self._peaks[arithmetic]

    def _as_they_are(self, kernels: Sequence[Kernel], until: float = inf, limit: float = inf) -> list[Timing]:
        """The times of some kernels in their own arithmetics."""
        distinct = self._look_up(kernels)
        missing = [k for k in distinct if k not in self._known and self._longer.get(k, 0.0) <= limit]
        if self._measures and missing:
            times = self._measure(missing, until, limit)
            found = {k: t for k, t in zip(missing, times, strict=True) if isinstance(t, Timing)}
            self._note(found, {k: t for k, t in zip(missing, times, strict=True) if isinstance(t, Unmeasured)})
            self._longer.update({k: t for k, t in zip(missing, times, strict=True) if isinstance(t, AtLeast)})
            self.database.put_many((self.describe(k), t) for k, t in found.items())
            self._known.update(found)
            self._learn(found)
        return [self._known.get(k) or Timing(self._longer[k] if self._longer.get(k, 0.0) > limit else self._estimate(k), 0.0, 0) for k in kernels]

    def _measure(self, kernels: Sequence[Kernel], until: float, limit: float) -> list[Timing | Unmeasured | AtLeast]:
        """Run each kernel, as far as time and memory allow, and as there is need to."""
        late = time.monotonic() >= until  # then nothing is run, whatever it would take
        expected = None if late else [roofline.counted(k, self.machine, self.constant) for k in kernels]
        self._near()
        with stage("timing kernels"):
            return measure(
                kernels, self.threads, self.constant, self._budget, objects=self.objects, expected=expected, until=until, patient=self.patient,
                limit=limit,
            )  # fmt: skip

    def _near(self) -> None:
        """Learn from the database how near the cores of this machine get, and tell it."""
        key = describe("near", machine.cpu_name(), self.threads, {"measurement": str(MEASUREMENT)})
        stored = self.database.get_many([key])[0] if not CORES.known else None
        CORES.known = stored.median if stored else CORES.known
        if CORES.least and not 0 < CORES.known <= CORES.least:
            CORES.known = CORES.least
            self.database.put_many([(key, Timing(CORES.least, 0.0, 1))])

    @property
    def patient(self) -> bool:
        """Disturbed measurements are repeated in the hope of quiet."""
        return self._restless < RESTLESS

    def measured(self, kernels: Sequence[Kernel], until: float = inf) -> list[float | None]:
        """Seconds that were measured, now or before; None where time or memory forbade it. Infinite where there is no implementation."""
        return [None if t.estimated and t.median < inf else t.median for t in self.timings(kernels, until)]

    def within(self, kernel: Kernel, until: float, limit: float) -> tuple[float | None, bool]:
        """`measured` of a kernel whose time is of no interest where it is longer than `limit` seconds, and whether it is known: else the kernel takes
        longer than the seconds that are told."""
        (timing,) = self.timings([kernel], until, limit)
        if timing.estimated and timing.median < inf:
            return (timing.median, False) if self._longer.get(kernel, 0.0) > limit else (None, True)
        return timing.median, True

    def _note(self, found: Mapping[Kernel, Timing], declined: Mapping[Kernel, Unmeasured]) -> None:
        """Keep account of what was disturbed and what was not measured."""
        self._declined.update(declined)
        for kernel, timing in found.items():
            self._declined.pop(kernel, None)
            self._disturbed += not timing.clean
            self._restless = 0 if timing.clean else self._restless + 1

    def notes(self) -> list[str]:
        """For people: what was not measured, and what was but not undisturbed."""
        reasons = Counter(why.value for why in self._declined.values())
        found = [f"{n} kernels were not measured: {why}" for why, n in reasons.items()]
        if self._disturbed:
            found.append(f"other programs disturbed the measuring of {self._disturbed} kernels: the fastest sample counts")
        return found

    def estimate(self, kernel: Kernel) -> float:
        """Seconds without running anything: the stored time if there is one, else a lower bound by computation and memory traffic."""
        return self.estimates([kernel])[0]

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        """`estimate` of many kernels with one look into the database; the library is not asked whether it refuses them."""
        self._look_up([*kernels, *(v for k in kernels for v in self._variants(k))])
        return [self._stored(k) if k in self._known else max(self._least(k), self._longer.get(k, 0.0)) for k in kernels]

    def closely(self, kernels: Sequence[Kernel]) -> list[float]:
        """The same by what is written for generated kernels, which takes some milliseconds for each."""
        self._look_up(kernels)
        return [self._stored(k) if k in self._known else self._counted(k) for k in kernels]

    def _counted(self, kernel: Kernel) -> float:
        """What a kernel takes by what is written for it, or is known to take longer."""
        return max(roofline.counted(kernel, self.machine, self.constant), self._longer.get(kernel, 0.0))

    def least(self, operations: float, nbytes: float) -> float:
        """Seconds that so many operations, and so many bytes that a cache may hold, take at least; 0 where no estimate has needed the machine so far,
        as measuring it takes longer than this is worth."""
        if self._machine is None:
            return 0.0
        return max(operations / self.machine.peak, nbytes / self.machine.bandwidth / roofline.CACHED)

    def moving(self, kernel: Kernel) -> float:
        """Seconds that what a kernel reads and writes takes to move at least, from a core's own cache."""
        return max(self.machine.launch, roofline.moved(kernel) / self.machine.bandwidth / roofline.NEAR)

    def known(self, kernels: Sequence[Kernel]) -> list[tuple[float | None, float]]:
        """Of each kernel the time, None where none was met so far, and the lower bound by computation and memory traffic."""
        self._bounds |= {k: self._least(k) for k in set(kernels) if k not in self._bounds}
        return [(self._stored(k) if k in self._known else None, self._bounds[k]) for k in kernels]

    def stored(self, kernels: Sequence[Kernel]) -> list[float | None]:
        """Seconds that are known, now or from the database; None for others. Nothing is run."""
        self._look_up([*kernels, *(v for k in kernels for v in self._variants(k))])
        return [self._stored(k) if k in self._known else None for k in kernels]

    def _variants(self, kernel: Kernel) -> list[Contraction]:
        """A product in float32 with its factors rounded to each arithmetic."""
        rounds = isinstance(kernel, Contraction) and kernel.arithmetic == F32
        return [kernel.in_arithmetic(a) for a in self.arithmetics] if rounds and isinstance(kernel, Contraction) else []

    def _stored(self, kernel: Kernel) -> float:
        """The least known time of a kernel, of which one is known."""
        return min(self._known[k].median for k in (kernel, *self._variants(kernel)) if k in self._known)

    def _least(self, kernel: Kernel) -> float:
        """The roofline's time, in the arithmetic in which that is least."""
        own = roofline.estimate(kernel, self.machine, self.constant)
        peaks = [(k, self._peak(k.arithmetic)) for k in self._variants(kernel)]
        return min([own, *(roofline.estimate(k, replace(self.machine, peak=peak), self.constant) for k, peak in peaks if peak)])

    def describe(self, kernel: Kernel) -> Json:
        """The kernel's key in the database."""
        versions = {"measurement": str(MEASUREMENT)}
        match kernel:
            case EOperator() | OpaqueCall(recursion=Recursion()):
                versions["generator"] = generator_version()
                versions["tvm"] = machine.versions().get("apache-tvm", "none")
                versions.update(self._level)
            case OpaqueCall():
                versions["onnxruntime"] = machine.versions().get("onnxruntime", "none")
            case _:
                versions["vendor"] = machine.versions().get("onednn") or "onnxruntime " + machine.versions().get("onnxruntime", "none")
                versions.update(self._limit)
        return describe(kernel_key(kernel, constant_buffers(kernel, self.constant)), machine.cpu_name(), self.threads, versions)

    def like(self, plan: Plan, measure: bool = False) -> CpuCost:
        """Costs of the plan's own kernels from the same database, its constant buffers being constant; nothing is measured unless wanted."""
        found = CpuCost(self.threads, self.database, measure, constant=lambda name: name in plan.constants)
        found._machine, found.objects, found._peaks = self.machine, self.objects, self._peaks
        return found

    def in_float32(self) -> CpuCost:
        """Costs of kernels whose products round nothing, from the same database."""
        found = CpuCost(self.threads, self.database, self._measures, constant=self.constant, budget_s=self._budget)
        found._machine, found.objects, found._known = self._machine, self.objects, self._known
        return found

    def place(self) -> Json:
        """Where times were measured: the device and the versions of what runs there."""
        return self.place_with(self.arithmetics)

    def place_with(self, arithmetics: Sequence[Arithmetic]) -> Json:
        """The place where products have these arithmetics to choose from."""
        generated = {"measurement": str(MEASUREMENT), "generator": generator_version(), **self._level, **self._limit}
        rounded = {"arithmetics": [a.name for a in arithmetics]} if arithmetics else {}
        return {"device": machine.cpu_name(), "versions": {**generated, **machine.versions()}, **rounded}

    @property
    def _level(self) -> dict[str, str]:
        """For which processors kernels are generated, where that is not this one."""
        return {} if self.objects.cpu == NATIVE else {"code": self.objects.cpu}

    @property
    def _limit(self) -> dict[str, str]:
        """Which instructions the vendor library keeps to, where these are not all that the processor has."""
        return {"instructions": limit} if (limit := dnnl.limit()) else {}

    @property
    def machine(self) -> roofline.Machine:
        """Peak, bandwidth and launch time, measured once and kept in the database."""
        if self._machine is None:
            self._machine = self._stored_machine()
        return self._machine

    def _stored_machine(self) -> roofline.Machine:
        names = ("peak", "bandwidth", "launch")
        versions = {"measurement": str(MEASUREMENT), "vendor": machine.versions().get("onednn", "none"), **self._limit}
        keys = [describe(name, machine.cpu_name(), self.threads, versions) for name in names]
        stored = self.database.get_many(keys)
        if all(stored):
            return roofline.Machine(*(t.median for t in stored if t))
        found, clean = roofline.measure_machine(self.threads)
        values = (found.peak, found.bandwidth, found.launch)
        self.database.put_many((key, Timing(value, 0.0, 1, clean)) for key, value in zip(keys, values, strict=True))
        return found

    def _learn(self, found: Mapping[Kernel, Timing]) -> None:
        """A product that is faster than the machine was measured to be at best shows that it was disturbed then: its peak is what was seen. So it is
        with each arithmetic."""
        self._peaks.update({a: max(peak, seen(found, a)) for a, peak in self._peaks.items()})
        peak = seen(found, F32)
        if peak and self._machine is None:
            self._machine = self._stored_machine()
        if self._machine and peak > self._machine.peak:
            self._machine = replace(self._machine, peak=peak)
            self._bounds.clear()

    def _look_up(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Fill what is known from the database; the distinct kernels."""
        distinct = list(dict.fromkeys(kernels))
        unknown = [k for k in distinct if k not in self._known]
        stored = self.database.get_many(self.describe(k) for k in unknown)
        found = {kernel: timing for kernel, timing in zip(unknown, stored, strict=True) if timing}
        self._known |= found
        self._learn(found)
        return distinct

    def secure(self, kernels: Sequence[Kernel], hurry: Callable[[], None]) -> None:
        """Have the code of those that are generated at hand; `hurry` is called before each is compiled, and may raise."""
        self.objects.ahead([k for k in kernels if isinstance(k, EOperator)], hurry)

    def runs(self, kernel: Kernel) -> bool:
        """There is code for the kernel, however slow; known without running it."""
        try:
            return not self.refuses(kernel) and bool(not isinstance(kernel, EOperator) or self.objects.get([kernel]))
        except NotGenerated:
            return False

    def refuses(self, kernel: Kernel) -> bool:
        """The vendor library has no fast implementation."""
        return refused(kernel, self.constant, self.threads)

    def implementations(self, kernel: VendorKernel) -> list[str]:
        """What the library may do the kernel by beside what it takes first."""
        if dnnl.available() is not None or self.refuses(kernel):
            return []
        with limited(self.threads):
            return implementations(kernel, constant_buffers(kernel, self.constant))

    def _estimate(self, kernel: Kernel) -> float:
        return inf if self.refuses(kernel) else self._least(kernel)
