"""Contractions by another of a library's implementations, where that is measured to take less time.

A library takes the first of its implementations that can do what is asked for, and their order is one for all processors and sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from einnet.instantiate.kernels import Kernel, Plan, VendorKernel
from einnet.instantiate.kernels.contractions import Contraction

Measured = Callable[[Sequence[Kernel]], Sequence[float | None]]
"""Seconds of kernels, inf for one that cannot run well, None for one that could not be measured."""

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
    chosen: dict[Kernel, Kernel] = {}
    vain: Counter[tuple[str, ...]] = Counter()
    kernels = [k for k in dict.fromkeys(plan.kernels) if isinstance(k, Contraction) and not k.by and k.flops > SMALL]
    for kernel in sorted(kernels, key=lambda k: -k.flops):
        others = names(kernel)
        kind = (kernel.kind, *others)
        if not others or vain[kind] == IN_VAIN:
            continue
        best = fastest(kernel, [kernel.made_by(name) for name in others], measured)
        vain[kind] = 0 if best is not kernel else vain[kind] + 1
        chosen[kernel] = best
    return replace(plan, kernels=tuple(chosen.get(k, k) for k in plan.kernels))


def fastest(kernel: Kernel, others: Sequence[Kernel], measured: Measured) -> Kernel:
    """The one of the others that is surely faster than a kernel; the kernel itself where none is, and where its own time is not known."""
    own, *times = (inf if s is None else s for s in measured([kernel, *others]))
    least, best = min(zip(times, range(len(others)), strict=True))
    return others[best] if own < inf and least < (1 - GAIN) * own else kernel
