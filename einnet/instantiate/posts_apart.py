"""Functions that a vendor kernel applies to its result, by a generated kernel in place where that is measured to be faster.

A library has one form of a function such as x·sigmoid(x) for all its kernels. Where that costs more than reading the result again, which a cache
still holds, and code that is made for the function, the library computes its operator alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from einnet.instantiate.epilogue_kernels import posted
from einnet.instantiate.kernels import EOperator, Kernel, Plan, VendorKernel
from einnet.instantiate.kernels.posts import QUANTISED

Measured = Callable[[Sequence[Kernel]], Sequence[float | None]]
"""Seconds of kernels, inf for one that cannot run well, None for one that could not be measured."""

Least = Callable[[Kernel], float]
"""Seconds that a generated kernel takes at least; nothing is run for that."""

Pair = tuple[VendorKernel, EOperator]

GAIN = 0.03
"""Share of its time by which two kernels have to be faster than one."""

IN_VAIN = 2
"""After so many kernels of a kind with operations of the same kinds that gain nothing, the largest first, smaller ones are not tried."""


def posts_apart(plan: Plan, measured: Measured, least: Least) -> Plan:
    """The same plan with functions of results by kernels of their own, where that gains; what it computes is the same whatever `measured` says."""
    pairs = _Trials(measured, least).pairs(plan.kernels)
    return replace(plan, kernels=tuple(k for kernel in plan.kernels for k in pairs.get(kernel, (kernel,)))) if pairs else plan


@dataclass(frozen=True)
class _Trials:
    """What is tried, and how often kernels of a kind were tried in vain since one of them gained."""

    measured: Measured
    least: Least
    vain: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def pairs(self, kernels: Sequence[Kernel]) -> dict[Kernel, Pair]:
        """The kernels that are better two, with these."""
        found: dict[Kernel, Pair] = {}
        candidates = [(k, pair) for k in dict.fromkeys(kernels) if isinstance(k, VendorKernel) and (pair := apart(k))]
        for kernel, pair in sorted(candidates, key=lambda c: -prod(c[0].result.shape)):
            kinds = (kernel.kind, *(p.kind for p in kernel.posts))
            if self.vain[kinds] == IN_VAIN:
                continue
            if self.gains(kernel, pair):
                found[kernel] = pair
                self.vain[kinds] = 0
            else:
                self.vain[kinds] += 1
        return found

    def gains(self, kernel: VendorKernel, pair: Pair) -> bool:
        """Two kernels are measured to take less time than the one. What has to be compiled is measured last, and only where it may gain."""
        product, function = pair
        whole, rest = self.measured([kernel, product])
        if whole is None or rest is None:
            return False
        left = (1 - GAIN) * whole - rest
        if left <= self.least(function):
            return False
        (seconds,) = self.measured([elsewhere(function)])
        return seconds is not None and seconds < left


def apart(kernel: VendorKernel) -> Pair | None:
    """The kernel with its operations before the first function, and the others in place.

    None where there is no function, where bytes are stored, and where a later operation takes what stood in the result before.
    """
    posts, out = kernel.posts, kernel.result
    first = next((n for n, p in enumerate(posts) if p.operand is None and p.kind != "linear"), None)
    if first is None or any(p.kind in QUANTISED or (p.operand and p.operand.buffer == out.buffer) for p in posts[first:]):
        return None
    return kernel.with_posts(posts[:first]), posted(out, posts[first:], out)


def elsewhere(kernel: EOperator) -> EOperator:
    """A kernel in place that reads another buffer: measured in place, it is applied to its own results, again and again, until these are denormal."""
    place = kernel.out.buffer
    return replace(kernel, operands=tuple((name, replace(v, buffer=f"{place} before") if v.buffer == place else v) for name, v in kernel.operands))
