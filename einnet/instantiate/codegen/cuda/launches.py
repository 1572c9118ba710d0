"""What is generated for a card: text, and how its functions are launched. Plain data; nothing here needs TVM."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GridKernel:
    """A CUDA kernel: what it is called, its launch, and the arrays that its arguments point to, in order."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudaOperator:
    """An eOperator as CUDA functions that run one after the other.

    Arrays are the operands by place ("operand 0"...), `OUT`, and those of `stages` (their elements): values that one kernel leaves for the next.
    """

    text: str
    kernels: tuple[GridKernel, ...]
    stages: tuple[tuple[str, int], ...]
