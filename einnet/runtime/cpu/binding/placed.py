"""A program's memory: one arena for what is computed, one region for constants, and where everything lies in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from einnet.graph.in_file import let_go
from einnet.instantiate.kernels import View
from einnet.runtime import arena as memory
from einnet.runtime.cpu.along_time import FLOAT
from einnet.runtime.cpu.binding.asked import Asked
from einnet.runtime.cpu.prepared import Packed

Array = np.ndarray[Any, np.dtype[Any]]


def settled_name(n: int, tensor: str) -> str:
    """The place of a tensor that a kernel's constants settle."""
    return f"settled:{n}:{tensor}"


def packed_name(n: int) -> str:
    """The place of a packed copy."""
    return f"packed:{n}"


def scratch_name(n: int) -> str:
    """The place of what a kernel needs while it runs."""
    return f"scratch:{n}"


class Placed:
    """One arena by lifetimes, scratch memory included; constants that are read as they are, and one packed copy per layout, in a region.

    Constants that programs `beside` it have, too, are read where these have them, if both were given the very same ones: nothing is packed twice.
    `inner` has the addresses of what is inside the nodes that are computed along time.
    """

    def __init__(self, asked: Asked, beside: Sequence[Placed]) -> None:
        self.asked, self.plan = asked, asked.plan
        self.dtypes = {b.name: memory.storage_dtype(b.dtype) for b in self.plan.buffers}
        inner = asked.along_time()
        scratch = [inner[n].nbytes if n in inner else asked.scratch_bytes(n) for n in range(len(self.plan.kernels))]
        arena, kept = memory.place(memory.lifetimes(self.plan, scratch)), asked.kept()
        once = {settled_name(n, t): FLOAT * asked.stepped[n].sizes[t] for n, found in asked.once.items() for t in found}
        packed = {packed_name(n): p.target.nbytes for n, p in enumerate(asked.packed)}
        lent = self._lent(beside, kept)
        region = memory.stack({name: size for name, size in {**kept, **once, **packed}.items() if name not in lent})
        self.arena, self.region = memory.Block(arena.nbytes), memory.Block(region.nbytes)
        self.arena_bytes, self.constant_bytes = arena.nbytes, region.nbytes
        self._places = lent | {name: (self.arena, offset) for name, offset in arena.offsets.items()}
        self._places.update({name: (self.region, offset) for name, offset in region.offsets.items()})
        self.inner = {n: {t: self.address(scratch_name(n)) + at for t, at in found.offsets.items()} for n, found in inner.items() if found.nbytes}
        self._fill([name for name in kept if name not in lent], {n: p for n, p in enumerate(asked.packed) if packed_name(n) not in lent})

    def _lent(self, beside: Sequence[Placed], kept: Mapping[str, int]) -> dict[str, tuple[memory.Block, int]]:
        """Where programs that were given the same constants have those that are `kept` as they are, and copies that are packed as this one's are."""
        found: dict[str, tuple[memory.Block, int]] = {}
        for other in beside:
            if other.plan.constants is not self.plan.constants:
                continue
            both = {b.name for b in {*self.plan.buffers} & {*other.plan.buffers}}
            places = {name: name for name in kept if name in both}
            same = ((n, p.among(other.asked.packed)) for n, p in enumerate(self.asked.packed) if p.view.buffer in both)
            places |= {packed_name(n): packed_name(i) for n, i in same if i is not None}
            found |= {own: other._places[name] for own, name in places.items() if name in other._places}
        return found

    def _fill(self, kept: Sequence[str], packed: Mapping[int, Packed]) -> None:
        """Write the constants and the packed copies."""
        for name in kept:
            values = self.plan.constants[name].reshape(-1)
            self.array(View(name, (values.size,), (1,)))[...] = values
            let_go(values)
        for n, p in packed.items():
            values = self.plan.constants[p.view.buffer]
            source = np.require(values, self.dtypes[p.view.buffer], ["C", "A"]).reshape(-1)  # a copy where a file has them at any byte
            p.fill(source.ctypes.data, self.address(packed_name(n)))
            let_go(values)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def address(self, name: str) -> int:
        """Where a buffer, a packed copy, a settled tensor or a kernel's scratch memory begins."""
        block, offset = self._places[name]
        return block.address + offset

    def array(self, view: View) -> Array:
        """A view as a numpy array on the program's memory."""
        block, offset = self._places[view.buffer]
        dtype = self.dtypes[view.buffer]
        flat = block.bytes[offset : offset + (len(block.bytes) - offset) // dtype.itemsize * dtype.itemsize].view(dtype)[view.offset :]
        return np.lib.stride_tricks.as_strided(flat, view.shape, [s * dtype.itemsize for s in view.strides])
