"""The threads of a warp: where each stands in a block's box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
