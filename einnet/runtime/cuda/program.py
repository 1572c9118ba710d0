"""A program for a CUDA device as plain data: steps over buffers at fixed places of one arena and one region of constants.

Nothing here needs CUDA. `lower` makes programs from plans, `store` writes and reads them, `device` runs them, `host` runs them on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Union

import numpy as np

from einnet.expr.nodes import Scope
from einnet.instantiate.kernels import Conv, EOperator, Matmul, OpaqueCall, Post, View
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32, Arithmetic

ALIGNMENT = 256
"""Bytes: what CUDA libraries want of a buffer's start."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies: `offset` bytes from the start of the arena or of the constants; `size` elements of `dtype`."""

    constant: bool
    offset: int
    size: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Launch:
    """A generated CUDA function on pointers: element `offset` of each buffer."""

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Generated:
    """An eOperator, and the launches of generated code that compute it. `text` is the name of the code."""

    operator: EOperator
    text: str
    launches: tuple[Launch, ...]

    @property
    def kernel(self) -> EOperator:
        """What the step computes."""
        return self.operator


@dataclass(frozen=True, slots=True)
class Matrix:
    """Element (i, j) lies `offset + i·row + j·column` elements after the buffer's start; one of the strides is 1."""

    buffer: str
    offset: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch dimension: so many products, and the elements between their operands; 0 is a broadcast, and a, b may overlap."""

    count: int
    a: int
    b: int
    c: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """c[i, j] = Σ_k a[i, k] b[k, j] for every batch, outermost first; then + bias along c's unit stride, then max(0, ·).

    Factors are rounded to numbers of the `arithmetic`, by its name.
    """

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    batches: tuple[Batch, ...] = ()
    bias: tuple[str, int] | None = None
    relu: bool = False
    arithmetic: str = F32.name

    @property
    def factors(self) -> Arithmetic:
        """The arithmetic to whose numbers a and b are rounded."""
        return ARITHMETICS[self.arithmetic]

    @property
    def scattered(self) -> bool:
        """No stride leads from each product of the batch to the next: a launch is told where every operand lies."""
        return len(self.batches) > 1

    @property
    def count(self) -> int:
        """Products of the batch."""
        return prod(b.count for b in self.batches)

    @property
    def kernel(self) -> Matmul:
        """What the product computes, as a batched product of views."""
        counts = tuple(b.count for b in self.batches)

        def operand(m: Matrix, rows: int, columns: int, strides: tuple[int, ...]) -> View:
            return View(m.buffer, (*counts, rows, columns), (*strides, m.row, m.column), m.offset)

        posts: list[Post] = []
        if self.bias is not None:
            buffer, offset = self.bias
            ones, by_column = (1,) * len(counts), self.c.column == 1
            shape = (*ones, 1, self.n) if by_column else (*ones, self.m, 1)
            posts.append(Post("add", View(buffer, shape, (*(0 for _ in ones), int(not by_column), int(by_column)), offset)))
        if self.relu:
            posts.append(Post("relu"))
        a = operand(self.a, self.m, self.k, tuple(b.a for b in self.batches))
        b = operand(self.b, self.k, self.n, tuple(b.b for b in self.batches))
        c = operand(self.c, self.m, self.n, tuple(b.c for b in self.batches))
        return Matmul(a, b, c, tuple(posts), self.factors)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """None of ours: the library launches."""
        return ()


@dataclass(frozen=True, slots=True)
class Rounded:
    """A product whose factors lie in 16 bits: launches of generated code, by texts of their names, that round those which change, and the product of
    what they left (`inner`). `product` is the same as the plan has it, over float32 and over constants of 16 bits."""

    product: Gemm
    inner: Gemm
    launches: tuple[Launch, ...]

    @property
    def kernel(self) -> Matmul:
        """What the step computes."""
        return self.product.kernel


Step = Union[Generated, Gemm, Rounded, Conv, OpaqueCall]
"""A Conv's posts are at most: add (1, channels, 1...), add of a tensor like the result, relu with slope 0, in that order; none if transposed."""


@dataclass(frozen=True)
class CudaProgram:
    """What runs, in order, and where. `texts` is CUDA C by name, self-contained behind `text.PRELUDE`; `constants` are flat arrays."""

    places: Mapping[str, Place]
    arena_bytes: int
    constant_bytes: int
    steps: tuple[Step, ...]
    texts: Mapping[str, str]
    inputs: tuple[tuple[str, View], ...]
    outputs: tuple[tuple[str, View], ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    expressions: Mapping[str, Scope] = field(default_factory=dict)
    """What constants were computed from, and where tensors without a buffer stand (`held`), as a plan says it."""
    held: Mapping[str, View] = field(default_factory=dict)

    @property
    def launches(self) -> int:
        """Kernels of an inference: generated ones, and one for each call of a library."""
        return sum(calls(step) for step in self.steps)


def calls(step: Step) -> int:
    """Kernels that the step launches."""
    return len(step.launches) + isinstance(step, Rounded) if isinstance(step, (Generated, Rounded)) else 1


def texts_of(step: Step) -> tuple[str, ...]:
    """The names of the generated texts that a step runs."""
    if isinstance(step, Rounded):
        return tuple(x.function for x in step.launches)
    return (step.text,) if isinstance(step, Generated) and step.launches else ()


def short_constants(program: CudaProgram) -> dict[str, Arithmetic]:
    """The constants that lie in 16 bits as factors, and the arithmetic whose numbers they are."""
    steps = [s.inner for s in program.steps if isinstance(s, Rounded)]
    return {m.buffer: s.factors for s in steps for m in (s.a, s.b) if program.places[m.buffer].constant}
