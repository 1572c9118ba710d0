"""How much kernels do, by counts that are the same on every machine: what may be drawn at random is bounded by them, as no clock could."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from einnet.errors import BackendError
from einnet.instantiate.codegen.executed import MANY, executed
from einnet.instantiate.codegen.operation_counts import moved_bytes
from einnet.instantiate.codegen.schedule import LANES
from einnet.instantiate.kernels import EOperator, Kernel, VendorKernel
from einnet.instantiate.kernels.views import distinct_elements
from einnet.search.work import BYTES, MACHINE

A_SECOND = LANES * MANY
"""Operations that take a second or so on one thread."""


def counted_work(kernels: Sequence[Kernel]) -> list[float]:
    """Operations of each kernel, its traffic counted as so many where that is more; inf where no code is written for it.

    Those of generated code are counted from its nests, as an expression does not tell what is computed again at every point.
    """
    return [max(_operations(k), MACHINE.balance * _moved(k)) for k in kernels]


def _operations(kernel: Kernel) -> float:
    if isinstance(kernel, VendorKernel):
        return kernel.flops
    try:
        return LANES * executed(kernel) if isinstance(kernel, EOperator) else 0.0
    except BackendError:
        return inf


def _moved(kernel: Kernel) -> int:
    """Bytes that are read and written at least."""
    if isinstance(kernel, EOperator):
        return moved_bytes(kernel.scope)
    return BYTES * sum(map(distinct_elements, (*kernel.operand_views, *kernel.result_views)))
