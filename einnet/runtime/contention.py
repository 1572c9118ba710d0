"""How much other programs disturb this one: time that its threads were ready to run but had no core."""

from __future__ import annotations

import os
from pathlib import Path

_TASKS = Path("/proc/self/task")


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
