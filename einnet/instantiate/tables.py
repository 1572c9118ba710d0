"""Iterator mapping tables (paper table 2): which iterators of a vendor operator stand in which of its operands A, B and its result.

A table is data. What an iterator's group means is decided by membership alone; how many dimensions a group may spread over, and what its
index functions may look like, are the table's other columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Group = tuple[bool, bool, bool]
"""Membership in (A, B, result)."""

A_OUT: Group = (True, False, True)
B_OUT: Group = (False, True, True)
A_B: Group = (True, True, False)
ALL: Group = (True, True, True)


@dataclass(frozen=True, slots=True)
class Table:
    """One vendor operator with two operands.

    `roles` names the groups; `windows`: A may be read at loop·stride + tap·dilation - pad, outside its box too, for taps among the A,B
    group; `batched`: roles may spread over several strided dimensions beside the main one; `taps`: most taps of a window, 0 for any number.
    """

    name: str
    roles: tuple[tuple[str, Group], ...]
    windows: bool
    batched: bool
    attributes: str
    taps: int = 0


MATMUL = Table("Matmul", (("m", A_OUT), ("n", B_OUT), ("k", A_B)), False, False, "leading dimensions, transposes")
BATCHED_MATMUL = Table(
    "BatchedMatmul", (("m", A_OUT), ("n", B_OUT), ("k", A_B), ("b", ALL)), False, True, "leading dimensions, transposes, batch strides (broadcast)"
)
CONV = Table(
    "Conv", (("n, spatial", A_OUT), ("f", B_OUT), ("c, taps", A_B), ("g", ALL)), True, False,
    "stride, dilation, asymmetric padding, groups, transposed",
)  # fmt: skip

CONV3 = replace(CONV, name="Conv of 3 taps", taps=3)
"""Windows of three taps, for which libraries have their fastest algorithms; longer ones are cut into such."""

TABLES: tuple[Table, ...] = (MATMUL, BATCHED_MATMUL, CONV, CONV3)
