"""Acceptance part by part: what was chosen by times of kernels alone is weighed again by what its kernels take inside the whole program."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from einnet.compile.memory_limit import footprint
from einnet.runtime.capacity import fits
from einnet.runtime.cpu.program import Executable, build_code
from einnet.runtime.timing import SLOW_S

if TYPE_CHECKING:
    from einnet.runtime.cpu.objects import Objects
    from einnet.runtime.cpu.program import Executable
    from einnet.search.outcome import Outcome

MOST, LEAST = 30, 3
"""Runs of each program at most and at least."""

QUARTILE = 25
"""The percentile of a kernel's samples that counts: what other programs do only adds to a time, and the median holds it on a busy machine."""


def losers(outcome: Outcome, objects: Objects, until: float) -> set[str]:
    """Keys of changed subprograms whose kernels take no less time in the derived program than those of the model's own operators in theirs.

    Both programs run in turns, each kernel timed in its place, until time.monotonic() is `until`. Subprograms that are computed together are
    not among them, and none is where both programs do not fit into memory.
    """
    assembled = [outcome.assemble(original) for original in (False, True)]
    if not fits(sum(footprint(plan) for plan, _ in assembled)):
        return set()
    programs = [Executable(plan, objects.threads, code=build_code(plan, objects.threads, objects)) for plan, _ in assembled]
    derived, original = (by_part(t, o) for t, (_, o) in zip(in_turns(programs, until), assembled, strict=True))
    return slower_parts(outcome, derived, original)


def slower_parts(outcome: Outcome, derived: Mapping[str, float], original: Mapping[str, float]) -> set[str]:
    """Keys of the changed subprograms, equal ones together, that gain nothing by these seconds of their parts in either program."""
    gained: dict[str, float] = {}
    for r in outcome.results:
        name = r.subprogram.output.name
        if r.changed and name in original:
            gained[r.subprogram.key] = gained.get(r.subprogram.key, 0.0) + original[name] - derived.get(name, 0.0)
    return {key for key, seconds in gained.items() if seconds <= 0}


def by_part(seconds: Sequence[float], owners: Sequence[str]) -> dict[str, float]:
    """Seconds of each part's kernels."""
    found: dict[str, float] = {}
    for s, owner in zip(seconds, owners, strict=True):
        found[owner] = found.get(owner, 0.0) + s
    return found


def in_turns(programs: Sequence[Executable], until: float) -> list[list[float]]:
    """Seconds of every kernel of each program, the programs run in turns; each runs once before it is timed, a slow one before its first time."""
    samples: list[list[list[float]]] = [[] for _ in programs]
    for program in programs:
        program.randomize()
    for n in count(1):
        for program, rows in zip(programs, samples, strict=True):
            if not rows or sum(rows[-1]) < SLOW_S:
                program.execute()
            rows.append(program.sample())
        if n >= MOST or (n >= LEAST and time.monotonic() >= until):
            break
    for program in programs:
        program.release()
    return [[float(s) for s in np.percentile(rows, QUARTILE, axis=0)] for rows in samples]
