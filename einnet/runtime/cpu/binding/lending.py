"""Memory of the caller's that a program reads its inputs from and writes its outputs to, in the place of its own: no copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from einnet.instantiate.kernels import Plan, View, dense_view
from einnet.runtime.arena import ALIGNMENT

Array = np.ndarray[Any, np.dtype[Any]]

WORTH_BYTES = 1 << 15
"""Of a buffer for each call that has its address: copying fewer is no slower than writing the address down."""


@dataclass(frozen=True)
class Use:
    """A call that has a buffer's address: `move` writes another one down, which is a multiple of `alignment`."""

    move: Callable[[int], None]
    alignment: int


class Lent:
    """A buffer whose place may be lent: its own is `home`."""

    def __init__(self, uses: Sequence[Use], home: int, nbytes: int) -> None:
        self._uses, self.home, self.nbytes, self.at = uses, home, nbytes, home
        self._alignment = max(use.alignment for use in uses)

    def move(self, address: int) -> None:
        """Read and write there from now on."""
        if address != self.at:
            for use in self._uses:
                use.move(address)
            self.at = address

    def take(self, array: Array, others: Sequence[tuple[int, int]] = (), *, written: bool = False) -> bool:
        """Lie where an array does, which can take its place and has no byte of `others`; else at home. Whether it does."""
        address: int = array.__array_interface__["data"][0]
        fits = array.flags.c_contiguous and address % self._alignment == 0 and (array.flags.writeable or not written)
        apart = not any(address < end and begin < address + self.nbytes for begin, end in others)
        self.move(address if fits and apart else self.home)
        return self.at != self.home


class Lending:
    """Which inputs and outputs of a program lie where the caller has them.

    Those are lent that are a whole buffer each, which nothing else holds than calls that can be told of another address, and which are large
    enough. An input is read in the caller's array if that is contiguous and starts where all its readers take it; an output is written into a
    result of which that is true, and of which no byte is one of an input's that is lent, or of another result's.
    """

    def __init__(self, plan: Plan, uses: Mapping[str, Sequence[Use]], held: Collection[str], places: Mapping[str, tuple[int, int]]) -> None:
        """`held` are the buffers that others have; `places` are addresses and bytes of buffers."""
        given = Counter(v.buffer for _, v in (*plan.inputs, *plan.outputs))
        sizes = {b.name: b.size for b in plan.buffers}

        def lent(view: View) -> Lent | None:
            name = view.buffer
            if view != dense_view(name, view.shape) or prod(view.shape) != sizes[name] or given[name] > 1 or name in held or name not in uses:
                return None
            home, nbytes = places[name]
            return Lent(uses[name], home, nbytes) if nbytes >= WORTH_BYTES * len(uses[name]) else None

        self.inputs = [lent(v) for _, v in plan.inputs]
        self.outputs = [lent(v) for _, v in plan.outputs]
        self.every = [one for one in (*self.inputs, *self.outputs) if one is not None]

    def home(self) -> None:
        """Everything lies in the program's own memory."""
        for one in self.every:
            one.move(one.home)

    def take(self, arrays: Sequence[Array]) -> list[bool]:
        """Read inputs where they are, as far as that can be: the others have to be copied."""
        if not self.every:
            return [False] * len(self.inputs)
        return [one is not None and one.take(array) for one, array in zip(self.inputs, arrays, strict=True)]

    def give(self, results: Sequence[Array]) -> list[bool]:
        """Write outputs into results, as far as that can be, after `take`: the others have to be copied from where they are."""
        if not self.every:
            return [False] * len(self.outputs)
        taken = [(one.at, one.at + one.nbytes) for one in self.inputs if one and one.at != one.home]
        found = []
        for one, result in zip(self.outputs, results, strict=True):
            found.append(one is not None and one.take(result, taken, written=True))
            if one and found[-1]:
                taken.append((one.at, one.at + one.nbytes))
        return found

    def results(self, outputs: Sequence[Array]) -> list[Array]:
        """New arrays for the outputs that can be written there; for the others these themselves, which have to be copied."""
        return [aligned(own) if one else own for own, one in zip(outputs, self.outputs, strict=True)]


def aligned(like: Array) -> Array:
    """A new array with the shape and type of another, which starts with a cache line: no vector of it lies in two."""
    memory = np.empty(like.nbytes + ALIGNMENT, np.uint8)
    first = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[first : first + like.nbytes].view(like.dtype).reshape(like.shape)
