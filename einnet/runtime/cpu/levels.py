"""For which processors code is generated: this one, or a level of the x86-64 architecture, whose code runs wherever its features are."""

from __future__ import annotations

import platform

from einnet.errors import UsageError
from einnet.runtime import machine

NATIVE = "native"
_V2 = frozenset({"ssse3", "sse4_1", "sse4_2", "popcnt"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""Features that the code of a level may use beyond the architecture's first processors, by the system's names (x86-64 psABI, section 3.1.1)."""


def features(cpu: str) -> frozenset[str]:
    """What a processor must have to run code for `cpu`."""
    return machine.cpu_features() if cpu == NATIVE else LEVELS[cpu]


def level() -> str | None:
    """The highest level that this processor has; None for another architecture."""
    return next((name for name in reversed(LEVELS) if LEVELS[name] <= machine.cpu_features()), None)


def require(cpu: str) -> None:
    """Raise UsageError for an unknown name, or one whose code does not run here and so cannot be measured and verified."""
    if cpu == NATIVE:
        return
    if cpu not in LEVELS:
        raise UsageError(f"cpu {cpu!r} is not one of {NATIVE}, {', '.join(LEVELS)}")
    missing = sorted(LEVELS[cpu] - machine.cpu_features())
    if platform.machine() != "x86_64" or missing:
        lacks = f"lacks {' '.join(missing)}" if missing else f"is {platform.machine()}"
        raise UsageError(f"code for {cpu} cannot be measured and verified here: this processor {lacks}; einnet doctor tells its level")
