"""Nodes that are computed along time: the calls of a schedule, at addresses, as native steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from einnet.instantiate.kernels import OpaqueCall
from einnet.instantiate.recursions.time_schedule import Call, Lane, Schedule, schedule
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu.compiler.machine_code import entry_symbol
from einnet.runtime.cpu.native.linked import Native, Step

FLOAT = 4
"""Bytes of an element."""


def stepped(call: OpaqueCall) -> Schedule | None:
    """How a node is computed along time; None where ONNX Runtime runs it."""
    return None if call.recursion is None else schedule(call.recursion)


def settled(s: Schedule, constants: Collection[str]) -> dict[str, Call]:
    """What is known before any run, as panels of weights are: tensors that are made of constants alone before the first time, by what makes them."""
    known, found = {*constants, *(t.name for t in s.tables)}, dict[str, Call]()
    for call in s.before:
        *read, made = (p.tensor for p in call.places)
        if made in s.sizes and known.issuperset(read):
            found[made] = call
            known.add(made)
    return found


@dataclass(frozen=True)
class Steps:
    """Native steps: those `once`, which make what is settled, and those of every run; and what is to be kept for them."""

    once: list[Step]
    each: list[Step]
    keep: list[object]


def calls(s: Schedule, places: Mapping[str, int], native: Native, once: Mapping[str, Call]) -> Steps:
    """Native steps for tensors at these addresses."""
    making = _Calls(s, places, native)
    steps = [making.one(c) for c in s.before if c not in once.values()]
    for lane in s.lanes:
        steps += making.lane(lane)
    return Steps([making.one(c) for c in once.values()], [*steps, *(making.one(c) for c in s.after)], making.keep)


class _Calls:
    def __init__(self, s: Schedule, places: Mapping[str, int], native: Native) -> None:
        names = codegen.stepwise_names(s.operators)
        self.entries = {o: native.image.address(entry_symbol(name)) for o, name in zip(s.operators, names, strict=True)}
        self.repeat = native.repeat
        tables = {t.name: np.array(list(map(float, t.values or ())), np.float32) for t in s.tables}
        self.places = {**places, **{name: int(array.ctypes.data) for name, array in tables.items()}}
        self.keep: list[object] = [*tables.values()]

    def words(self, call: Call) -> list[int]:
        """The addresses of a call's operands and of its result."""
        return [self.places[p.tensor] + FLOAT * p.offset for p in call.places]

    def one(self, call: Call) -> Step:
        """A call by itself."""
        return self.entries[call.operator], self.words(call)

    def lane(self, lane: Lane) -> list[Step]:
        """The first times, the loop as one step, and the rest."""
        rows = [self.row(c) for c in lane.loop] if lane.count else []
        table = self.kept([word for row in rows for word in row])
        loop = [(self.repeat, [lane.count, len(rows), table])] if rows else []
        return [*map(self.one, lane.first), *loop, *map(self.one, lane.rest)]

    def row(self, call: Call) -> list[int]:
        """A call in a loop: the function, the number of its words, these, and what they grow by."""
        words, deltas = self.words(call), [FLOAT * p.delta for p in call.places]
        return [self.entries[call.operator], len(words), self.kept(words), self.kept(deltas)]

    def kept(self, values: Sequence[int]) -> int:
        """The address of some words."""
        array = np.array(values, np.int64)
        self.keep.append(array)
        return int(array.ctypes.data)
