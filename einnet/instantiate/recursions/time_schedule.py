"""A recursion as kernels in order: those before, for each lane the first times and a loop over the others, and those after.

Tensors over time that nobody else reads have only as many slots as times are looked back. Equations that hold at each place of a dimension by itself
are computed lane by lane along it, so that the states of a lane stay in a near cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import lcm, prod
from typing import NamedTuple

from einnet.derivation.fewer_equations import inlined
from einnet.expr.index import Index, Range, substitute, value, var
from einnet.expr.nodes import Read, Scope, Tensor, reads
from einnet.expr.recursions.recursion import Equation, Recursion, lags
from einnet.instantiate.kernels import EOperator, dense_view
from einnet.instantiate.recursions.lanes import Lanes, lanes_of, systems
from einnet.instantiate.recursions.panels import relaid
from einnet.instantiate.recursions.stripped import NotStepped, Start, Stripped, stripped

MOST_PHASES = 8
"""Times that are written out in a loop over times, at most."""


class Place(NamedTuple):
    """So many elements after the first of a tensor's, and so many more in each round of a loop."""

    tensor: str
    offset: int
    delta: int = 0


class Call(NamedTuple):
    """A kernel, with its operands and then its result."""

    operator: EOperator
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Lane:
    """Kernels `first`, then `count` rounds of the `loop`, then the `rest`."""

    first: tuple[Call, ...]
    count: int
    loop: tuple[Call, ...]
    rest: tuple[Call, ...]


@dataclass(frozen=True)
class Schedule:
    """The recursion as calls; `sizes` are the elements of tensors that are neither given nor asked for, `tables` carry their values."""

    before: tuple[Call, ...]
    lanes: tuple[Lane, ...]
    after: tuple[Call, ...]
    sizes: Mapping[str, int]
    tables: tuple[Tensor, ...] = ()

    @property
    def operators(self) -> tuple[EOperator, ...]:
        """The distinct kernels."""
        calls = (c for lane in self.lanes for part in (lane.first, lane.loop, lane.rest) for c in part)
        return tuple(dict.fromkeys(c.operator for c in (*self.before, *calls, *self.after)))


@lru_cache(maxsize=64)
def schedule(r: Recursion) -> Schedule | None:
    """The schedule of a recursion; None where one of its equations is no kernel at one time."""
    try:
        return _Scheduling(relaid(inlined(r))).schedule()
    except NotStepped:
        return None


class _Scheduling:
    def __init__(self, r: Recursion) -> None:
        self.r = r
        self.steps = {e.tensor.name: e for e in r.steps}
        self.depth = max(0, *map(looks_back, r.steps))
        self.slots = {name: slots for name in self.steps if (slots := self.slots_of(name)) < r.count}
        self.phases = lcm(*self.slots.values())
        if self.phases > MOST_PHASES or self.depth > MOST_PHASES:
            raise NotStepped("it looks back far")

    def slots_of(self, name: str) -> int:
        """How many times of a tensor are kept: all of one that is asked for or read afterwards, but for its last."""
        found = [lag.const for e in self.r.steps for other, lag in lags(e, [name]) if other == name]
        whole = name in self.r.outputs or any(not self.last(r) for e in self.r.after for r in reads_of(e.scope, name))
        return self.r.count if whole else max(found, default=0) + 1

    def last(self, read: Read) -> bool:
        """The read is of the last time."""
        return bool(read.index) and read.index[0] == Index((), self.r.count - 1)

    def schedule(self) -> Schedule:
        lanes = tuple(lane for steps in systems(self.r.steps) for lane in self.system(steps))
        return Schedule(tuple(self.whole(self.r.before)), lanes, tuple(self.whole(self.r.after)), self.sizes(), self.r.tables)

    def system(self, steps: tuple[Equation, ...]) -> Iterator[Lane]:
        """The lanes of equations that read one another."""
        lanes, early = lanes_of(steps), min(self.depth, self.r.count)
        firsts = [[self.kernel(e, (time, time + 1), lanes) for e in steps] for time in range(early)]
        each = [self.kernel(e, (early, self.r.count), lanes) for e in steps] if early < self.r.count else []
        rounds, left = divmod(self.r.count - early, self.phases)
        for lane in lanes.points:
            first = tuple(self.call(k, time, lane) for time, kernels in enumerate(firsts) for k in kernels)
            loop = tuple(self.call(k, early + phase, lane, self.phases) for phase in range(self.phases) for k in each)
            rest = tuple(self.call(k, self.r.count - left + n, lane) for n in range(left) for k in each)
            yield Lane(first, rounds, loop, rest)

    def kernel(self, e: Equation, times: Range, lanes: Lanes) -> Stripped:
        """What computes the equation at one of these times, in one lane."""
        t, *_ = e.scope.loops
        outer = {t.name: times, **lanes.outer(e)}
        found = stripped(e.tensor, e.scope, outer, self.ring)
        names = {t.name: TIME} | {name: f"{LANE}{n}" for n, name in enumerate(lanes.outer(e))}
        return Stripped(found.operator, tuple(Start(s.tensor, tuple((a, renamed(ix, names)) for a, ix in s.fixed)) for s in found.starts))

    def whole(self, equations: tuple[Equation, ...]) -> Iterator[Call]:
        """Kernels of equations that are computed at once."""
        for e in equations:
            found = stripped(e.tensor, e.scope, {}, self.ring)
            yield self.call(found, 0, ())

    def ring(self, tensor: Tensor, axis: int, ix: Index) -> bool:
        """The dimension is one of slots, of which one is meant."""
        return axis == 0 and tensor.name in self.slots

    def call(self, kernel: Stripped, time: int, lane: tuple[int, ...], step: int = 0) -> Call:
        """The kernel at a time in a lane; in a loop that goes on by `step` times."""
        now = {TIME: time, **{f"{LANE}{n}": at for n, at in enumerate(lane)}}
        return Call(kernel.operator, tuple(self.place(s, now, step) for s in kernel.starts))

    def place(self, start: Start, now: Mapping[str, int], step: int) -> Place:
        """Where a tensor begins at a time."""
        strides = dense_view(start.tensor.name, start.tensor.shape).strides
        offset = delta = 0
        for axis, ix in start.fixed:
            at = int(value(ix, now))
            if self.ring(start.tensor, axis, ix):
                offset += at % self.slots[start.tensor.name] * strides[axis]
                continue
            offset += at * strides[axis]
            delta += ix.coefficient(TIME) * step * strides[axis]
        return Place(start.tensor.name, offset, delta)

    def sizes(self) -> dict[str, int]:
        """Elements of all tensors that are neither given nor asked for."""
        inner = [e.tensor for e in self.r.equations if e.tensor.name not in self.r.outputs]
        return {t.name: prod((self.slots.get(t.name, t.shape[0]), *t.shape[1:])) if t.shape else 1 for t in inner}


def looks_back(e: Equation) -> int:
    """How long before its own time an equation reads anything."""
    t = var(e.scope.loops[0].name)
    return max((-ix.const for r in reads(e.scope.body) for ix in r.index if ix - ix.const == t), default=0)


TIME, LANE = "time", "lane"


def renamed(ix: Index, names: Mapping[str, str]) -> Index:
    """The index function of other iterators."""
    return substitute(ix, {old: var(new) for old, new in names.items()})


def reads_of(scope: Scope, name: str) -> Iterator[Read]:
    """The reads of a tensor, in scopes within as well."""
    for r in reads(scope.body):
        if isinstance(r.base, Scope):
            yield from reads_of(r.base, name)
        elif r.base.name == name:
            yield r
