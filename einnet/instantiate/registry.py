"""Every vendor operator: its kernel, and the rows by which expressions are matched to it.

To add one, write a module in `einnet.instantiate.operators` and put its `OPERATOR` into `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, OpaqueCall
from einnet.instantiate.matching.tables import BATCHED_MATMUL, CONV, CONV3, MATMUL
from einnet.instantiate.matching.types import Operator, Table
from einnet.instantiate.operators import max_pool, softmax

OPERATORS: tuple[Operator, ...] = (
    Operator(Matmul, (MATMUL, BATCHED_MATMUL)),
    Operator(Conv, (CONV, CONV3)),
    max_pool.OPERATOR,
    softmax.OPERATOR,
)  # fmt: skip

TABLES: tuple[Table, ...] = tuple(table for operator in OPERATORS for table in operator.tables)
"""All rows, in the order in which a search tries them."""

_KERNELS: tuple[type[Kernel], ...] = (EOperator, OpaqueCall, *(operator.kernel for operator in OPERATORS))

KINDS: Mapping[str, type[Kernel]] = {kernel.kind: kernel for kernel in _KERNELS}
"""The kernels by what they are called where they are stored."""


def tables_for(backend: str, finite: bool = True) -> tuple[Table, ...]:
    """The rows of the operators that the library of a backend has; without `finite` those alone that take NaN and infinities as expressions do."""
    known = (o for o in OPERATORS if (o.backends is None or backend in o.backends) and (finite or not o.kernel.loses_nan))
    return tuple(table for operator in known for table in operator.tables)
