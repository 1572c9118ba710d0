"""Contractions by another of a library's implementations, where that is measured to take less time.

A library takes the first of its implementations that can do what is asked for, and their order is one for all processors and sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

from einnet.instantiate.kernels import Kernel, Plan, VendorKernel
from einnet.instantiate.kernels.contractions import Contraction

K = TypeVar("K", bound=Kernel)

Timed = Callable[[Sequence[K]], Sequence[float | None]]
"""Seconds of kernels, inf for one that cannot run well, None for one that could not be measured."""

Measured = Timed[Kernel]

Names = Callable[[VendorKernel], Sequence[str]]
"""What the library may do a kernel by beside what it takes first."""

GAIN = 0.03
"""Share of its time by which another implementation has to be faster."""

IN_VAIN = 12
"""After so many kernels of a kind and of the same other implementations that gain nothing, those of most operations first, others are not tried."""

SMALL = 1 << 20
"""Operations of a kernel up to which starting it is most of its time."""


def best_made(plan: Plan, measured: Measured, names: Names) -> Plan:
    """The same plan with the implementations that take least time; what it computes is the same whatever `measured` says."""
    chosen = best_of([k for k in plan.kernels if isinstance(k, Contraction)], measured, names)
    return replace(plan, kernels=tuple(chosen.get(k, k) if isinstance(k, Contraction) else k for k in plan.kernels))


def best_of(kernels: Sequence[Contraction], measured: Timed[Contraction], names: Names) -> dict[Contraction, Contraction]:
    """Kernels by the implementations that take least time, those for which others than the first were tried."""
    chosen: dict[Contraction, Contraction] = {}
    vain: Counter[tuple[str, ...]] = Counter()
    asked = [k for k in dict.fromkeys(kernels) if not k.by and k.flops > SMALL]
    for kernel in sorted(asked, key=lambda k: -k.flops):
        others = names(kernel)
        kind = (kernel.kind, *others)
        if not others or vain[kind] == IN_VAIN:
            continue
        best = fastest(kernel, [kernel.made_by(name) for name in others], measured)
        vain[kind] = 0 if best is not kernel else vain[kind] + 1
        chosen[kernel] = best
    return chosen


def fastest(kernel: K, others: Sequence[K], measured: Timed[K]) -> K:
    """The one of the others that is surely faster than a kernel; the kernel itself where none is, and where its own time is not known."""
    own, *times = (inf if s is None else s for s in measured([kernel, *others]))
    least, best = min(zip(times, range(len(others)), strict=True))
    return others[best] if own < inf and least < (1 - GAIN) * own else kernel
