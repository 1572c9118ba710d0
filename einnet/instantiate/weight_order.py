"""Weights in the order in which a generated sum reads them: what is added up next to each other, inside of it the loop that runs in vector lanes.

A model has the output channel of a convolution first. A vector over output channels is then as many loads as it has lanes, and a kernel takes four
times as long. Weights are constants: they are laid once, when a program is made. Lanes are laid in blocks, so that all that a block of the result
needs follows each other in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from einnet.derivation.rules.transitions import running
from einnet.expr.index import Floor, Index, floor_div, var
from einnet.expr.nodes import Iter, Read, Scope, Tensor, indices, reads

LANES = 4
"""Values of a loop from which on it is worth vectors."""

ALONG = 16
"""Terms that are neighbours in the weights from which on a sum runs in vectors along them."""

BLOCKS = (16, 8)
"""Lanes of a block, where they divide the loop; what a floor division in the sum divides it by goes before them."""


def in_order(r: Read, reader: Scope) -> Read | None:
    """The read of weights inside a sum as a read of a scope that holds them in the reader's order; None where they are in a good one, where the order
    gains nothing, and where an index is no iterator alone."""
    lane = next((i for i in reversed(reader.loops) if i.extent > 1), None)
    if lane is None or lane.extent < LANES or not reader.sums or not _laid_once(r) or running(reader) is not None:
        return None
    walked = _walked(r, reader)
    return None if walked is None or lane not in walked or _good(walked, lane, reader) else _Order(r, reader, lane, walked).read()


@dataclass(frozen=True, slots=True)
class _Order:
    """A read of weights, the loop that runs in lanes, and the iterator that walks each dimension, None for one of extent 1."""

    source: Read
    reader: Scope
    lane: Iter
    walked: tuple[Iter | None, ...]

    def read(self) -> Read:
        """The read of the weights in order."""
        r = self.source
        places = [None, *(i for i in self.reader.loops if i != self.lane), *self.reader.sums, self.lane]
        order = sorted(range(len(self.walked)), key=lambda n: places.index(self.walked[n]))
        loops = [Iter(f"i{n}", *side) for n, side in enumerate(r.base.box)]
        last, block = order[-1], self.block()
        inner = [loops[n] for n in order[:-1]]
        index = [r.index[n] for n in order[:-1]]
        if not block:
            laid = Scope((*inner, loops[last]), (), Read(r.base, indices(loops)))
            return Read(laid, (*index, r.index[last]), r.fill)
        outside, within = Iter("block", 0, self.lane.extent // block), Iter("lane", 0, block)
        place = [block * var(outside.name) + var(within.name) if n == last else var(i.name) for n, i in enumerate(loops)]
        laid = Scope((outside, *inner, within), (), Read(r.base, tuple(place)))
        of = floor_div(r.index[last], block)
        return Read(laid, (of, *index, r.index[last] - block * of), r.fill)

    def block(self) -> int:
        """How many lanes lie together; 0 for all of them."""
        last = next(n for n, i in enumerate(self.walked) if i == self.lane)
        if self.source.fill or self.source.base.box[last] != (0, self.lane.extent) or self.source.index[last] != var(self.lane.name):
            return 0
        floors = (a for r in reads(self.reader.body) for ix in r.index for a, _ in ix.terms if isinstance(a, Floor))
        divisors = {a.den for a in floors if self.lane.name in a.num.names()}
        wanted = divisors or {b for b in BLOCKS if self.lane.extent % b == 0}
        best = max(wanted, default=0)
        return best if len(divisors) <= 1 and best and self.lane.extent % best == 0 and best < self.lane.extent else 0


def _good(walked: tuple[Iter | None, ...], lane: Iter, reader: Scope) -> bool:
    """Neighbours in the weights are those of a vector: of the lanes, or of a long sum that runs in vectors itself."""
    last = [i for i in walked if i is not None][-1]
    return last == lane or (last in reader.sums and last.extent >= ALONG)


def _laid_once(r: Read) -> bool:
    """What is read is known when a program is made, and is no table whose numbers are written into the code."""
    return r.base.weight and r.base.values is None if isinstance(r.base, Tensor) else r.base.constant


def _walked(r: Read, reader: Scope) -> tuple[Iter | None, ...] | None:
    """The iterator that each dimension of more than one element is walked by, a constant apart; None where one is walked otherwise, or two by one."""
    iters = {i.name: i for i in (*reader.loops, *reader.sums)}
    found = [_alone(ix, iters) if hi - lo > 1 else None for ix, (lo, hi) in zip(r.index, r.base.box)]
    moving = [i for i, (lo, hi) in zip(found, r.base.box) if hi - lo > 1]
    return tuple(found) if None not in moving and len(set(moving)) == len(moving) > 0 else None


def _alone(ix: Index, iters: dict[str, Iter]) -> Iter | None:
    """The iterator that an index is, a constant apart."""
    return next((i for name, i in iters.items() if ix - ix.const == var(name)), None)
