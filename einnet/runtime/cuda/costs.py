"""Costs of kernels on a CUDA device: recorded times where there are some, else estimates from the card's figures. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from einnet.instantiate.kernels import EOperator, Kernel, Matmul, OpaqueCall
from einnet.runtime.cpu.roofline import flops, moved
from einnet.runtime.cuda.fit import parts
from einnet.runtime.cuda.gemm import gemm
from einnet.runtime.cuda.profile import Card, Profile
from einnet.runtime.cuda.program import calls

VENDOR_SHARE, GENERATED_SHARE = 0.6, 0.2
"""Guessed shares of the peak that library kernels and generated ones reach when memory does not bind them."""


class CudaCost:
    """Seconds of kernels by a profile. `unmeasured` collects the kernels that it has no time of."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.unmeasured: dict[Kernel, None] = {}

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        """Recorded or estimated seconds."""
        return [self.seconds(k) for k in kernels]

    def measured(self, kernels: Sequence[Kernel], until: float = inf) -> list[float | None]:
        """The same: what was not recorded cannot be measured here, and its estimate stands for it."""
        return [self.seconds(k) for k in kernels]

    def seconds(self, kernel: Kernel) -> float:
        recorded = self.profile.time(kernel)
        if recorded is not None:
            return recorded
        self.unmeasured[kernel] = None
        return sum(estimate(part, self.profile.card) for part in parts(kernel))


def estimate(kernel: Kernel, card: Card) -> float:
    """Seconds of one kernel as the libraries run it: the largest of launches, computation and memory traffic.

    An opaque node runs on the host: its operands travel there and back.
    """
    if isinstance(kernel, OpaqueCall):
        return card.wait + moved(kernel) / card.host_bandwidth
    share = GENERATED_SHARE if isinstance(kernel, EOperator) else VENDOR_SHARE
    launches = calls(gemm(kernel)) if isinstance(kernel, Matmul) else 1
    return max(launches * card.launch, flops(kernel) / (share * card.peak), moved(kernel) / card.bandwidth)
