"""Costs of kernels on a CUDA device: recorded times where there are some, else estimates from the card's figures. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from einnet.errors import BackendError
from einnet.expr.nodes import tensors, walk
from einnet.instantiate.codegen.ir import Nest, Reduce, expanded
from einnet.instantiate.codegen.normalise import normalise
from einnet.instantiate.codegen.resolve import TABLE_SIZE, resolve
from einnet.instantiate.codegen.rowwise import divided
from einnet.instantiate.codegen.tilesearch import tile
from einnet.instantiate.codegen.tiling import MOST_THREADS, OPERATIONS, block_cycles
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
        self._estimates: dict[Kernel, float] = {}

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
        if kernel not in self._estimates:
            self._estimates[kernel] = sum(estimate(part, self.profile.card) for part in parts(kernel))
        return self._estimates[kernel]


def estimate(kernel: Kernel, card: Card) -> float:
    """Seconds of one kernel as the libraries run it: the largest of launches, computation and memory traffic.

    An opaque node runs on the host: its operands travel there and back.
    """
    if isinstance(kernel, OpaqueCall):
        return card.wait + moved(kernel) / card.host_bandwidth
    if isinstance(kernel, EOperator):
        return generated(kernel, card)
    launches = calls(gemm(kernel)) if isinstance(kernel, Matmul) else 1
    return max(launches * card.launch, flops(kernel) / (VENDOR_SHARE * card.peak), moved(kernel) / card.bandwidth)


def generated(kernel: EOperator, card: Card) -> float:
    """Seconds of a generated kernel: of each of its launches as its tiles are modelled, where the work may bind it and not only the traffic."""
    roof = max(card.launch, moved(kernel) / card.bandwidth)
    guess = max(roof, flops(kernel) / (GENERATED_SHARE * card.peak))
    if guess == roof and sum(bool(s.sums) for s in walk(kernel.scope)) < 2:
        return roof
    known = {t.name for t in tensors(kernel.scope).values() if t.values is not None and prod(t.shape) <= TABLE_SIZE}
    try:
        nests = divided(resolve(kernel, known)).nests
    except BackendError:
        return guess
    if guess == roof:
        return max(roof, len(nests) * card.launch)
    times = [_nest_seconds(normalise(nest), card) for nest in nests]
    return max(roof, sum(t for t in times if t is not None)) if None not in times else max(guess, len(nests) * card.launch)


def _nest_seconds(nest: Nest, card: Card) -> float | None:
    """Seconds of one launch by the model of its tiles; None where there is a reduction that has none."""
    found = tile(nest)
    if found is None:
        return None if any(isinstance(e, Reduce) for e, _ in expanded(nest.expr, nest.ranges)) else card.launch
    return max(card.launch, min(found.cycles, block_cycles(found, MOST_THREADS)) * OPERATIONS / card.peak)
