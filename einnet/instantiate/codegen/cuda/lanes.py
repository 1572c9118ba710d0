"""The threads of a warp: where each stands in a block's box, and how much of memory they touch at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from einnet.expr.index import Index
from einnet.expr.nodes import Iter

WARP, SECTOR = 32, 8
"""Threads that access memory at once, and the numbers that come together."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """`count` threads; along each iterator, that in which neighbours differ first, so many stand so far apart."""

    along: tuple[tuple[str, int, int], ...]
    count: int

    def places(self, steps: Mapping[str, int]) -> list[int]:
        """How far each is from the first one, in steps of so much along each iterator."""
        found = [0]
        for n, threads, apart in self.along:
            step = apart * steps.get(n, 0)
            most = min(threads, -(-self.count // len(found)))
            found = [place + k * step for k in range(most) for place in found]
        return found[: self.count]


def touched(addresses: Sequence[Index], order: Sequence[Iter], together: int) -> int:
    """Sectors of memory that one warp touches at these addresses, where its threads differ first along the last loop of the order.

    Each thread takes so many neighbours in memory together.
    """
    points = list(_first(order))
    return sum(len({place // SECTOR for p in points for place in _places(offset(e, p), together)}) for e in addresses)


def _places(start: int, together: int) -> range:
    """One number of each sector that neighbours reach."""
    return range(start, start + together, SECTOR) if start % SECTOR + together <= SECTOR else range(start, start + together)


def _first(order: Sequence[Iter]) -> Sequence[Mapping[str, int]]:
    """Values of the loops in the first warp's threads."""
    found = []
    for number in range(WARP):
        point = {}
        for i in reversed(order):
            number, point[i.name] = divmod(number, i.extent)
        found.append(point)
    return found


def offset(e: Index, point: Mapping[str, int]) -> int:
    """The index function's value rounded down, iterators that the point does not have being 0."""
    total = e.const
    for atom, c in e.terms:
        total += c * (point.get(atom, 0) if isinstance(atom, str) else offset(atom.num, point) // atom.den)
    return total // e.den
