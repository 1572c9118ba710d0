"""Rounds wait until the cores are near each other: on a virtual machine they are not always, and then some programs take three times as long."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial

from einnet.runtime.contention import Cores
from einnet.runtime.cpu.native.linked import Native
from einnet.runtime.cpu.objects import Objects

WAIT_S, BETWEEN_S = 20.0, 0.2
"""Seconds that a round waits at most, and between two looks."""

LOOKS = 40
"""Looks by which is known how near the cores get."""

TRIES = 10
"""Times that a look is tried: a thread that has slept begins on the core of the one that wakes it, and is moved a few milliseconds later."""


@lru_cache(maxsize=4)
def watched(threads: int) -> Cores:
    """What tells it, after some looks. With one thread nothing does."""
    cores = Cores()
    cores.watch(partial(told, partial(Native(Objects(threads).support()).together, threads)))
    for _ in range(LOOKS):
        cores.apart()
        time.sleep(BETWEEN_S / LOOKS)
    return cores


def told(probe: Callable[[], float]) -> float:
    """What a probe says when it can first tell; 0 where it never can."""
    return next(filter(None, (probe() for _ in range(TRIES))), 0.0)


def near(cores: Cores, wait_s: float = WAIT_S) -> bool:
    """The cores are near each other, now or before so many seconds are over."""
    end = time.monotonic() + wait_s
    while cores.apart():
        if time.monotonic() >= end:
            return False
        time.sleep(BETWEEN_S)
    return True
