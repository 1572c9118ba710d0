"""Acceptance part by part: what was chosen by times of kernels alone is weighed again by what its kernels take inside the whole program."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from einnet.compile.memory_limit import footprint
from einnet.evidence.comparison.verify import NOISE
from einnet.runtime.capacity import fits
from einnet.runtime.cpu.program import Executable, build_code
from einnet.runtime.timing import SLOW_S, Comparison

if TYPE_CHECKING:
    from einnet.runtime.cpu.objects import Objects
    from einnet.runtime.cpu.program import Executable
    from einnet.search.outcome import Outcome

MOST, LEAST = 30, 3
"""Runs of each program at most and at least."""

QUARTILE = 25
"""The percentile of a kernel's samples that counts: what other programs do only adds to a time, and the median holds it on a busy machine."""


@dataclass(frozen=True)
class InPlace:
    """What the kernels of changed subprograms take in their places: the keys of those that gain nothing there, and whether the others surely gain."""

    losers: frozenset[str] = frozenset()
    gains: bool = False


def weighed(outcome: Outcome, objects: Objects, until: float) -> InPlace:
    """The changed subprograms whose kernels take no less time in the derived program than those of the model's own operators in theirs, and whether
    those of the others surely take less: round by round, so that no kernel that both programs have adds its noise.

    Both programs run in turns, each kernel timed in its place, until time.monotonic() is `until`. Subprograms that are computed together are
    not among the losers, and nothing is known where both programs do not fit into memory.
    """
    assembled = [outcome.assemble(original) for original in (False, True)]
    if not fits(sum(footprint(plan) for plan, _ in assembled)):
        return InPlace()
    programs = [Executable(plan, objects.threads, code=build_code(plan, objects.threads, objects)) for plan, _ in assembled]
    rounds = in_turns(programs, until)
    derived, original = (Rounds(rows, owners) for rows, (_, owners) in zip(rounds, assembled, strict=True))
    lost = frozenset(slower_parts(outcome, derived.usual, original.usual))
    kept = {r.subprogram.output.name for r in outcome.results if r.changed and r.key not in lost}
    return InPlace(lost, not outcome.bundles and surely_gain(kept, derived, original))


@dataclass(frozen=True)
class Rounds:
    """Seconds of every kernel of a program by round, and the parts that the kernels belong to."""

    rows: Sequence[Sequence[float]]
    owners: Sequence[str]

    @cached_property
    def usual(self) -> dict[str, float]:
        """Seconds of each part that count."""
        return by_part([float(s) for s in np.percentile(self.rows, QUARTILE, axis=0)], self.owners)

    def of(self, names: Collection[str]) -> tuple[float, ...]:
        """Seconds of some parts together, by round."""
        return tuple(sum(s for s, owner in zip(row, self.owners, strict=True) if owner in names) for row in self.rows)

    def beside(self, names: Collection[str]) -> float:
        """Seconds of all other parts that count."""
        return sum(s for name, s in self.usual.items() if name not in names)


def surely_gain(names: Collection[str], derived: Rounds, original: Rounds) -> bool:
    """These parts surely take less in the derived program than in that of the model's own operators, and what all else takes more there is less than
    half of that."""
    before = original.of(names)
    if not all(before):
        return False
    found = Comparison({"original": before, "derived": derived.of(names)}, before)
    gain = sum(original.usual.get(name, 0.0) - derived.usual.get(name, 0.0) for name in names)
    return found.faster("derived", "original", NOISE) and derived.beside(names) - original.beside(names) < gain / 2


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


def in_turns(programs: Sequence[Executable], until: float) -> list[list[Sequence[float]]]:
    """For each program the seconds of every kernel, round by round; the programs run in turns, each once before it is timed, a slow one before its
    first time."""
    samples: list[list[Sequence[float]]] = [[] for _ in programs]
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
    return samples
