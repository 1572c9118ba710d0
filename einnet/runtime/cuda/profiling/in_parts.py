"""Large products priced by recorded times of their parts: at once a product takes no longer than its parts do one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, prod

from einnet.instantiate.kernels import Matmul, View, anchored
from einnet.runtime.cuda.profiling.laws import UNIT
from einnet.runtime.cuda.profiling.profile import Profile


def at_most(kernel: Matmul, profile: Profile, processors: int) -> float:
    """Seconds of the recorded parts of a product, one after the other, where that is least; infinite where the profile has no time of any."""
    if not profile.seconds:
        return inf
    known = ((count, profile.time(part)) for count, part in halves(kernel, processors * UNIT))
    return min((count * t for count, t in known if t is not None), default=inf)


def halves(kernel: Matmul, least: int) -> Iterator[tuple[int, Matmul]]:
    """The first half, quarter and so on of a product's rows, or of its columns, and of how many it is one.

    No part has fewer than `least` elements: smaller ones do not occupy the card, and would run beside each other.
    """
    for dimension in range(len(kernel.c.shape) - 2, len(kernel.c.shape)):
        count = 2
        while kernel.c.shape[dimension] % count == 0 and prod(kernel.c.shape) >= least * count:
            yield count, part(kernel, dimension, count)
            count *= 2


def part(kernel: Matmul, dimension: int, count: int) -> Matmul:
    """The first of so many equal parts of a product along a dimension of its result."""
    along = kernel.along(dimension)
    assert along is not None, "a product is divided along any dimension of its result"
    cut = {kernel.c: dimension, **dict(zip(kernel.inputs, along, strict=True)), **{p.operand: dimension for p in kernel.post if p.operand}}

    def narrow(view: View) -> View:
        at = cut[view]
        whole = at is None or view.shape[at] == 1
        return view if whole else replace(view, shape=tuple(n // count if d == at else n for d, n in enumerate(view.shape)))

    return anchored(kernel.map_views(narrow))
