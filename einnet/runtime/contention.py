"""What disturbs a measurement: time that threads were ready to run but had no core, and cores that are not what they were.

The cores of a virtual machine are where its host puts them. From one second to the next two of them may be far from each other, so that what one
writes takes five times as long to get to the other, or be threads of one core. A program whose threads hand data to each other then takes two or
three times as long, and other programs may not: what is measured there says nothing of the next minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

_TASKS = Path("/proc/self/task")

APART, FAR_APART = 1.4, 1.8
"""Times the least that this process has seen, and that any has on this machine, beyond which a probe of two cores says that they are not what they
were: another day clocks may be slower."""

BETWEEN_S = 0.05
"""Seconds between two looks at the cores."""

CROWDED, LOOKS, LOOKS_S = 1.3, 3, 0.02
"""Times as long that a thread works while another one does, beyond which they share a core: 1.0 with a core for each. It is the least of some looks,
as others interrupt one or the other, and is asked again after so many seconds."""


def waited() -> float:
    """Seconds that the threads of this process have spent waiting for a core, all together; 0 where the system does not tell."""
    total = 0
    try:
        for task in os.listdir(_TASKS):
            try:
                total += int((_TASKS / task / "schedstat").read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue
    except OSError:
        return 0.0
    return total * 1e-9


@dataclass
class Cores:
    """What tells whether the cores of this process are near each other: seconds of a `probe` of two of them, 0 where it could not tell."""

    probe: Callable[[], float] | None = None
    shares: Callable[[], float] | None = None
    """How many times as long two threads take to work as one of them alone, 0 where it could not tell."""
    process: int = 0
    least: float = 0.0
    known: float = 0.0
    """The least that earlier processes have seen, 0 where nobody has told."""
    waits_s: float = 3.0
    """Seconds that measurements may still wait for cores that are near each other."""
    own: bool = False
    """Each thread has been seen to have a core of its own."""
    crowded: bool = False
    """They were seen not to, when that was looked at last, and when that was."""
    looked: float = -inf

    def watch(self, probe: Callable[[], float], shares: Callable[[], float] | None = None) -> None:
        """Ask this from now on."""
        self.probe, self.shares, self.process = probe, shares, os.getpid()

    def apart(self) -> bool:
        """The cores are farther from each other, or fewer, than they were. False where nothing tells, as in a child that was forked."""
        if self.probe is None or self.process != os.getpid():
            return False
        if self.shared():
            return True
        seconds = self.probe() or self.probe()
        if seconds > 0:
            self.least = min(self.least or seconds, seconds)
        return seconds > APART * self.least or seconds > FAR_APART * self.known > 0

    def shared(self) -> bool:
        """Threads share a core, as far as the last look tells, where they need not: each has been seen to have one of its own, or that may still be
        waited for.

        It is told from the first measurement of a process on, when nothing is known yet of what cores there are.
        """
        now = time.monotonic()
        if self.shares is not None and now - self.looked >= LOOKS_S:
            self.looked = now
            found = [ratio for ratio in (self.shares() for _ in range(LOOKS)) if ratio > 0]
            self.crowded = bool(found) and min(found) > CROWDED
            self.own |= bool(found) and not self.crowded
        return self.crowded and (self.own or self.waits_s > 0)

    def settle(self) -> None:
        """Wait until the cores are near each other, as long as that may be waited for."""
        while self.waits_s > 0 and self.apart():
            time.sleep(BETWEEN_S)
            self.waits_s -= BETWEEN_S


CORES = Cores()
"""Those of this process."""
