"""A vendor kernel as the library has it ready: the implementation, what it reads where, what is packed, and its scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from einnet.instantiate.kernels import View
from einnet.runtime.arena import align_up
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl import Desc
from einnet.runtime.cpu.threads import limited


@dataclass(frozen=True)
class Packed:
    """An operand that the primitive reads in a layout of its own, and with elements of a type of its own."""

    view: View
    source: Desc
    target: Desc

    def among(self, others: Sequence[Packed]) -> int | None:
        """Which of some packed operands is the same copy; None where none is."""
        return next((n for n, p in enumerate(others) if p.view == self.view and p.target == self.target), None)

    def bind(self, source: int, target: int) -> list[tuple[int, Desc, int]]:
        """The arguments of a copy to the address `target`, from the buffer that starts at the address `source`."""
        return [(dnnl.ARG_SRC, self.source, source + self.source.item * self.view.offset), (dnnl.ARG_DST, self.target, target)]

    def fill(self, source: int, target: int) -> None:
        """Write the packed copy at the address `target`, from the buffer that starts at the address `source`."""
        copy = dnnl.reorder(self.source, self.target)
        pair = self.bind(source, target)
        scratch = copy.desc(dnnl.QUERY_SCRATCHPAD)
        space = np.empty(scratch.nbytes + 1, np.uint8)
        if scratch.nbytes:
            pair.append((dnnl.ARG_SCRATCHPAD, scratch, space.ctypes.data))
        dnnl.execute(dnnl.Primitive.of(copy), dnnl.new_stream(), dnnl.Arguments(pair))


@dataclass(frozen=True)
class Prepared:
    """A kernel without memory: arguments that read buffers, at most one packed operand, and scratch memory.

    `rounded` are operands by their arguments of which every run first makes a copy in the kernel's arithmetic, in scratch memory.
    `repeats`: the same arguments for further executions, where one cannot do the whole of the kernel. Each then runs on one thread, and
    `shares` threads share them, every share with scratch memory of its own.
    """

    description: dnnl.PrimitiveDesc
    implementation: str
    operands: tuple[tuple[int, Desc, View], ...]
    packed: Packed | None
    scratch: Desc
    repeats: tuple[tuple[tuple[int, Desc, View], ...], ...] = ()
    shares: int = 1
    rounded: tuple[tuple[int, Packed], ...] = ()

    def create(self) -> dnnl.Primitive:
        """The code, for the number of threads that is set now; it should be the one that was set for `prepare`."""
        if not self.repeats:
            return dnnl.Primitive.of(self.description)
        with limited(1):
            return dnnl.Primitive.of(self.description)

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory of all shares, and the copies of operands that are rounded."""
        return self._copies(0)[-1]

    def _copies(self, scratch: int) -> list[int]:
        """Where the copies of operands begin, behind the shares' scratch memory, and where the last one ends."""
        sizes = [self.shares * align_up(self.scratch.nbytes), *(align_up(p.target.nbytes) for _, p in self.rounded)]
        return [scratch + end for end in accumulate(sizes)]

    def roundings(self, address: Callable[[str], int], scratch: int) -> list[tuple[dnnl.Primitive, dnnl.Arguments]]:
        """What has to run before the kernel: copies of operands in its arithmetic."""
        pairs = [(p, p.bind(address(p.view.buffer), at)) for (_, p), at in zip(self.rounded, self._copies(scratch))]
        return [(dnnl.Primitive.of(dnnl.reorder(p.source, p.target)), dnnl.Arguments(pair)) for p, pair in pairs]

    def bind(self, address: Callable[[str], int], packed: int = 0, scratch: int = 0) -> dnnl.Arguments:
        """The arguments for buffers that start at `address(name)`, the packed operand's copy and the scratch memory."""
        every = (self.operands, *self.repeats)
        bound = []
        for n, operands in enumerate(every):
            one = [(arg, desc, address(view.buffer) + desc.item * view.offset) for arg, desc, view in operands]
            one += [(argument, p.target, at) for (argument, p), at in zip(self.rounded, self._copies(scratch))]
            if self.packed:
                one.append((dnnl.ARG_WEIGHTS, self.packed.target, packed))
            if self.scratch.nbytes:
                share = ((n + 1) * self.shares - 1) // len(every)
                one.append((dnnl.ARG_SCRATCHPAD, self.scratch, scratch + share * align_up(self.scratch.nbytes)))
            bound.append(one)
        return dnnl.Arguments(*bound)

    def reads(self) -> Iterator[tuple[int, View, int]]:
        """The arguments of `bind` that lie in buffers: their numbers, their views, and the bytes from the buffer's start on."""
        others, first = len(self.rounded) + bool(self.packed) + bool(self.scratch.nbytes), 0
        for operands in (self.operands, *self.repeats):
            for n, (_, desc, view) in enumerate(operands, first):
                yield n, view, desc.item * view.offset
            first += len(operands) + others
