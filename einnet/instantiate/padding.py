"""Padding of batched products: kernels that walk all matrices of a batch at once need them to start in different cache sets.

A transform touches one line of every matrix at a time. Matrices that lie a multiple of a page apart fall into one set of the first-level
cache, which holds few of them. One more row to each matrix spreads them, and the batch stays dense, as vendor kernels want it: the product
computes that row too, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

from einnet.instantiate.kernels import LINE, Buffer, Kernel, VendorKernel, View

SETS = 64
"""Sets of a first-level cache."""

ROOM = 8
"""Matrices that a set has room for, beside what else is read and written."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Dense row-major matrices behind each other in a buffer: `count` of `rows` rows with `row` elements."""

    buffer: str
    count: int
    rows: int
    row: int

    @property
    def size(self) -> int:
        return self.rows * self.row

    @property
    def crowded(self) -> bool:
        """Some sets get more first lines of matrices than they have room for."""
        return self.count > ROOM * (SETS // self.overlap)

    @property
    def overlap(self) -> int:
        """How many times fewer sets the first lines fall into than there are."""
        return gcd(self.size // LINE, SETS) if self.size % LINE == 0 else 1


def padded(kernels: list[Kernel], temporaries: Mapping[str, Buffer]) -> tuple[list[Kernel], dict[str, Buffer]]:
    """The same kernels with another row in the matrices of products between crowded temporaries, where that spreads them."""
    buffers = dict(temporaries)
    for product in dict.fromkeys(k.stacked for k in kernels if isinstance(k, VendorKernel) and k.stacked and not k.posts):
        stacks = [stack for v in product if v.buffer in buffers for stack in (stack_of(v, buffers[v.buffer]),) if stack]
        if len(stacks) == 2 and any(s.crowded and replace(s, rows=s.rows + 1).overlap < s.overlap for s in stacks):
            wider = widened(kernels, product, stacks)
            if wider is not None:
                kernels = wider
                buffers.update({s.buffer: replace(buffers[s.buffer], size=s.count * (s.size + s.row)) for s in stacks})
    return kernels, buffers


def stack_of(view: View, buffer: Buffer) -> Stack | None:
    """The matrices that an operand or result of a batched product is, if they fill its buffer."""
    *_, rows, columns = view.shape
    row = view.strides[-2]
    count = prod(view.shape[:-2])
    dense = view.strides[-1] == 1 and columns == row and view.offset == 0 and count * rows * row == buffer.size
    return Stack(view.buffer, count, rows, row) if dense and rows > 1 and count > 1 else None


def widened(kernels: list[Kernel], product: tuple[View, View], stacks: list[Stack]) -> list[Kernel] | None:
    """The kernels with one more row in both stacks; None where something else views them in a way that crosses their matrices."""
    by_name = {s.buffer: s for s in stacks}

    def views(kernel: Kernel) -> list[View]:
        return [v for v in (*kernel.operand_views, *kernel.result_views) if v.buffer in by_name]

    def moved(v: View) -> View:
        stack = by_name.get(v.buffer)
        return v if stack is None else restrided(v, stack.size, stack.size + stack.row) or v

    if any(restrided(v, by_name[v.buffer].size, by_name[v.buffer].size + by_name[v.buffer].row) is None for k in kernels for v in views(k)):
        return None
    made: list[Kernel] = []
    for kernel in kernels:
        new = kernel.map_views(moved)
        if isinstance(new, VendorKernel) and isinstance(kernel, VendorKernel) and kernel.stacked and views(kernel):
            if kernel.stacked != product or kernel.posts or any(v.buffer in by_name for v in kernel.inputs[1:]):
                return None
            new = new.with_row()
        made.append(new)
    return made


def restrided(view: View, size: int, wanted: int) -> View | None:
    """The view where address q·size + r has become q·wanted + r; None if a dimension of it crosses from r to q."""
    moving = [(s, n) for s, n in zip(view.strides, view.shape) if n > 1]
    inside = sum(s * (n - 1) for s, n in moving if s < size)
    if any(s >= size and s % size for s, _ in moving) or view.offset % size + inside >= size or prod(view.shape) == 0:
        return None

    def moved(address: int) -> int:
        return address // size * wanted + address % size

    return replace(view, strides=tuple(moved(s) for s in view.strides), offset=moved(view.offset))
