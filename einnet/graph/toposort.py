"""A topological order that keeps to the given one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush


def order(before: Sequence[Collection[int]]) -> list[int] | None:
    """Positions, each behind those that have to come before it, else as they are; None if there is a cycle."""
    after: dict[int, list[int]] = {}
    for k, sources in enumerate(before):
        for source in sources:
            after.setdefault(source, []).append(k)
    waiting = [len(sources) for sources in before]
    ready = [k for k, count in enumerate(waiting) if not count]
    result: list[int] = []
    while ready:
        k = heappop(ready)
        result.append(k)
        for follower in after.get(k, ()):
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(ready, follower)
    return result if len(result) == len(before) else None
