"""The time of single kernels: weights cold, as in a network whose weights do not fit the cache; activations as warm as their size lets them be.

Every sample is taken inside native code. Between samples the cache lines of the constant operands are dropped; where they are larger than
the last-level cache anyway, they are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from math import inf
from pathlib import Path

import numpy as np

from einnet.expr.nodes import tensors
from einnet.graph.dtypes import dtype_name
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, OpaqueCall, Plan, VendorKernel, View
from einnet.runtime.arena import fill_random, span, storage_dtype
from einnet.runtime.capacity import fits
from einnet.runtime.contention import CORES, waited
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl import Refused
from einnet.runtime.cpu.dnnl_kernels import refusal
from einnet.runtime.cpu.native.linked import Native
from einnet.runtime.cpu.objects import Objects
from einnet.runtime.cpu.program import Code, Executable, objects_of
from einnet.runtime.cpu.threads import limited
from einnet.runtime.ort import Session
from einnet.runtime.timing import TOLERATED, AtLeast, Timing, summarize

IsConstant = Callable[[str], bool]

BUDGET_S = 0.04
MEASURING_S = 0.05
"""Seconds that measuring takes at least, beside compiling."""
SLOW_S = 1.0
"""Seconds of samples that a slow kernel gets; what runs longer runs once."""
ITEM = 4
"""Bytes of most elements."""
AGREED = 0.02
"""Share by which two samples in a row may differ that are enough for a kernel which takes long."""
COLD = 2.0
"""Times what a kernel takes may be taken by its first run."""
WARM_S = 2e-3
"""Seconds of samples after which a kernel is warm: the first ones of what takes microseconds may take several times more."""
_FEWEST, _MOST, _PATIENCE = 5, 300, 4
_FORBIDDEN = Timing(float("inf"), 0.0, 1)


@cache
def last_level_cache() -> int:
    """Bytes of the largest cache of the first core, 32 MB where the system does not tell."""
    return max(_cache_sizes(), default=32 << 20)


def own_cache() -> int:
    """Bytes of the largest cache but one of the first core, which is its own; 1 MB where the system does not tell."""
    sizes = sorted(set(_cache_sizes()))
    return sizes[-2] if len(sizes) > 1 else 1 << 20


@cache
def _cache_sizes() -> tuple[int, ...]:
    """Bytes of each cache of the first core."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.endswith("K") and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) * 1024)
    return tuple(sizes)


def constant_buffers(kernel: Kernel, constant: IsConstant | None = None) -> frozenset[str]:
    """The buffers of a kernel that hold weights: those that `constant` says, and an eOperator's weight tensors.

    Where nobody says, a convolution's weights are taken for constants.
    """
    found = {v.buffer for v in kernel.operand_views if constant and constant(v.buffer)}
    if isinstance(kernel, VendorKernel) and constant is None:
        found |= {v.buffer for v in kernel.weights}
    if isinstance(kernel, EOperator):
        declared = tensors(kernel.scope)
        found |= {v.buffer for name, v in kernel.operands if name in declared and declared[name].weight}
    return frozenset(found - {v.buffer for v in kernel.result_views})


def single(kernel: Kernel, constants: frozenset[str], dtypes: Mapping[str, str] | None = None) -> Plan:
    """A plan of one kernel over random constants; its other operands are inputs and its results outputs."""
    sizes: dict[str, int] = {}
    for v in (*kernel.operand_views, *kernel.result_views):
        sizes[v.buffer] = max(sizes.get(v.buffer, 1), span(v))
    written = {v.buffer for v in kernel.result_views}
    role = {name: "constant" if name in constants else "output" if name in written else "input" for name in sizes}
    kind = {name: (dtypes or {}).get(name, "f32") for name in sizes}
    views = {name: View(name, (size,), (1,)) for name, size in sizes.items()}
    read = {v.buffer for v in kernel.operand_views}
    values = {name: np.empty(sizes[name], storage_dtype(kind[name])) for name in constants}
    for value in values.values():
        fill_random(value)
    return Plan(
        tuple(Buffer(name, size, kind[name], role[name]) for name, size in sizes.items()), (kernel,),
        tuple((name, v) for name, v in views.items() if role[name] == "input" or (role[name] == "output" and name in read)),
        tuple((name, v) for name, v in views.items() if role[name] == "output"),
        values,
    )  # fmt: skip


class Unmeasured(Enum):
    """Why a kernel was not measured."""

    TIME = "no time was left"
    MEMORY = "it needs more memory than there is"


def measure(
    kernels: Sequence[Kernel], threads: int, constant: IsConstant | None = None, budget_s: float = BUDGET_S, *,
    objects: Objects | None = None, expected: Sequence[float] | None = None, until: float = inf, patient: bool = True,
    timer: Callable[[Kernel, frozenset[str]], Timing | AtLeast] | None = None, limit: float = inf,
) -> list[Timing | Unmeasured | AtLeast]:  # fmt: skip
    """The time of each kernel; infinite for one that is refused or that cannot be generated. Of one that takes longer than `limit` seconds it is
    enough to see that.

    Generated kernels are compiled by `objects`, if given. A kernel that, by the seconds that are `expected` of it, would not be done before
    time.monotonic() is `until` is not measured, nor one whose operands do not fit into memory. Another `timer` times a kernel with these
    constant buffers elsewhere.
    """
    objects = objects or Objects(threads)
    found: list[Timing | Unmeasured | AtLeast] = []
    for kernel, seconds in zip(kernels, expected or [0.0] * len(kernels), strict=True):
        if timer is None and refused(kernel, constant, threads):
            found.append(_FORBIDDEN)
            continue
        compiling = objects.seconds(kernel) if isinstance(kernel, EOperator) and not timer else 0.0
        if until < inf and time.monotonic() + compiling + max(2 * seconds, MEASURING_S) > until:
            found.append(Unmeasured.TIME)
            continue
        constants = constant_buffers(kernel, constant)
        if not fits(bytes_of(kernel, constants)):
            found.append(Unmeasured.MEMORY)
        else:
            try:
                found.append(timer(kernel, constants) if timer else _time(kernel, threads, constants, objects, budget_s, until, patient, limit))
            except (Refused, codegen.NotGenerated):
                found.append(_FORBIDDEN)
    return found


def refused(kernel: Kernel, constant: IsConstant | None, threads: int) -> bool:
    """The vendor library has no fast implementation of the kernel: that is known without running it, however little time there is."""
    if not isinstance(kernel, VendorKernel) or dnnl.available() is not None:
        return False
    return _refused(kernel, constant_buffers(kernel, constant), threads)


@lru_cache(maxsize=1 << 14)
def _refused(kernel: VendorKernel, constants: frozenset[str], threads: int) -> bool:
    with limited(threads):
        return refusal(kernel, constants) is not None


def bytes_of(kernel: Kernel, constants: frozenset[str]) -> int:
    """What measuring takes: the buffers, and those of weights once more as the library packs them."""
    sizes: dict[str, int] = {}
    for v in (*kernel.operand_views, *kernel.result_views):
        sizes[v.buffer] = max(sizes.get(v.buffer, 0), span(v))
    return sum(ITEM * size * (3 if name in constants else 1) for name, size in sizes.items())


def _time(
    kernel: Kernel, threads: int, constants: frozenset[str], objects: Objects, budget_s: float, until: float, patient: bool, limit: float
) -> Timing | AtLeast:
    native = Native(objects.support(), objects_of([kernel], objects))
    program = Executable(single(kernel, constants, _types(kernel, threads)), threads, code=Code(b""), native=native, strict=True)
    program.randomize()
    cold = program.constant_bytes < 2 * last_level_cache()
    return sample(lambda: float(sum(program.sample())), budget_s, lambda: program.settle(cold), until, patient, limit)


def _types(kernel: Kernel, threads: int) -> dict[str, str]:
    """Element types of a kernel's buffers: as it reads and writes them, and of an opaque node as its model declares them."""
    if not isinstance(kernel, OpaqueCall):
        return {view.buffer: kind for view, kind in kernel.elements}
    session = Session(kernel.model, threads, title=kernel.origin)
    pairs = zip((*session.inputs, *session.outputs), (*kernel.inputs, *kernel.outputs), strict=True)
    return {view.buffer: dtype_name(a.dtype) or "f32" for a, view in pairs if a.dtype is not None}


def sample(
    run: Callable[[], float], budget_s: float, before: Callable[[], None] = lambda: None, until: float = inf, patient: bool = True, limit: float = inf
) -> Timing | AtLeast:
    """The median of as many samples as the budget and time.monotonic() < `until` allow; `before` is called before each and not timed.

    The first run warms up and does not count, unless it takes so long that there is no second, or that the second, which takes as long, shows that
    it was warm. Where the budget is used up, two samples in a row that agree are enough. Samples during which other programs kept the
    threads of this one from running do not count, if there are others: the budget is then exceeded up to fourfold by who is `patient`, and further
    where a kernel takes long, until two agree. If there are too few, the fastest sample counts and the timing is not clean. No more are taken where
    all are longer than `limit`, what was waited for others set aside, and they are `WARM_S` together.
    """
    taken = _Samples(run, before, budget_s, until, patient)
    CORES.settle()
    undisturbed = taken.take()
    if undisturbed > max(COLD * limit, WARM_S):
        return AtLeast(undisturbed / COLD)
    taken.begin()
    least, whole = inf, 0.0
    while taken.wanted() and taken.possible():
        undisturbed = taken.take()
        least, whole = min(least, undisturbed or inf), whole + undisturbed
        if limit < least < inf and whole >= WARM_S:
            return AtLeast(least)
        if taken.enough():
            break
    return taken.summary()


class _Samples:
    """Samples of a kernel: those that count, those during which others kept its threads waiting or cores were far apart, and when they suffice."""

    def __init__(self, run: Callable[[], float], before: Callable[[], None], budget_s: float, until: float, patient: bool) -> None:
        self._run, self._before, self._budget_s, self._until = run, before, budget_s, until
        self._patience = _PATIENCE if patient else 1
        self._start = time.perf_counter()
        self._first, self._fewest = 0.0, 0
        self._clean: list[float] = []
        self._disturbed: list[float] = []
        self._near: list[float] = []
        """Those on cores near each other, without what was waited for others."""
        self._warming: list[float] = []
        """The first run, until there is a second that it agrees with or not."""

    def take(self) -> float:
        """Take a sample; the seconds of it in which no thread can have waited for others. Of one on cores that are far from each other nothing is
        known."""
        self._before()
        waited_before, began = waited(), time.perf_counter()
        seconds = self._run()
        kept_waiting = waited() - waited_before
        late, apart = kept_waiting > TOLERATED * (time.perf_counter() - began), CORES.apart()
        (self._disturbed if late or apart else self._clean).append(seconds)
        if apart:
            return 0.0
        self._near.append(seconds)
        return seconds - kept_waiting

    def begin(self) -> None:
        """The sample that was taken warmed up, if there is time for a second."""
        (self._first,) = self._clean or self._disturbed
        self._fewest = min(_FEWEST, int(SLOW_S / max(self._first, 1e-9)))
        if self._fewest and time.monotonic() + self._first < self._until:
            self._warming, self._clean = self._clean, []
            self._disturbed.clear()

    def wanted(self) -> bool:
        """There are too few, or the budget is not used up."""
        more = self._patience if len(self._clean) < self._fewest else 1
        return len(self._clean) + len(self._disturbed) < self._fewest or self._spent() < self._budget_s * more

    def possible(self) -> bool:
        """There is room and time for another."""
        late = self._spent() > max(20 * self._budget_s, SLOW_S) or time.monotonic() + self._first >= self._until
        return len(self._clean) < _MOST and not late

    def enough(self) -> bool:
        """The budget is used up and the last two agree; asked once after each sample. The first run counts where it agrees with the second."""
        warming, self._warming = self._warming, []
        spent = self._spent()
        if spent >= self._budget_s and agree([*warming, *self._clean]):
            self._clean, self._fewest = [*warming, *self._clean], 0
            return True
        return spent >= self._budget_s * self._patience and agree(self._near)

    def summary(self) -> Timing:
        """The median of those that count, or where they are too few the fastest of all, which is not clean."""
        if len(self._clean) >= min(3, max(self._fewest, 1)):
            return summarize(self._clean)
        every = sorted(self._clean + self._disturbed) or [self._first]
        return Timing(every[0], every[len(every) // 2] - every[0], len(every), clean=False)

    def _spent(self) -> float:
        return time.perf_counter() - self._start


def agree(samples: Sequence[float]) -> bool:
    """The last two samples differ by no more than `AGREED`."""
    return len(samples) > 1 and abs(samples[-1] - samples[-2]) <= AGREED * min(samples[-2:])
