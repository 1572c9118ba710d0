"""What may run: parts whose derivations hold, programs that can be compiled and that agree with ONNX Runtime.

Whatever fails here falls back to what is known to be right, a part to the model's own operators, a program to ONNX Runtime, and a note says so.
Nothing that fails ends a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from einnet.derivation.checker.check import Proof, Untested
from einnet.derivation.steps import KINDS, Derivation, Step, worst
from einnet.errors import EinNetError
from einnet.evidence.certificate import by_forms, proofs, window_derivations
from einnet.evidence.report.schema import Verification
from einnet.instantiate.build import build
from einnet.search.choosing.candidate import GAIN, OUT, Candidate, Choice
from einnet.search.forms import plain
from einnet.search.outcome import Outcome, gained
from einnet.search.settings import Settings

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable

Verify = Callable[[Outcome, "Executable"], Verification]
"""Errors of the program of an outcome against ONNX Runtime, with "passed"."""

UNPROVEN = "no normal form shows that a step is right; --allow tested takes such steps where they are at points"
"""Of a derivation that is not accepted."""

OWN = "the model's own operators are kept"
NEXT = "what is next in time and proven is kept"

MOST_ASKED = 6
"""Candidates whose proofs are looked at in the place of one that is not proven."""


def keep_proven(
    outcome: Outcome,
    settings: Settings,
    known: Mapping[Derivation, tuple[Proof, ...]] = MappingProxyType({}),
    late: Callable[[], bool] = lambda: False,
    hurry: Callable[[], None] = lambda: None,
) -> Outcome:
    """The outcome in which every subprogram whose derivation is not accepted runs as the model has it, with a note: where a step does not hold,
    where it is tested and not proven unless the settings allow that, and where it is of a class that they do not allow, as far as the checker can
    tell. Where another candidate that was measured to be faster than those is accepted, that runs in its place. What was derived and is not looked
    at before it is `late` runs as the model has it, too; what gains most is looked at first. What is needed in any case calls `hurry`, which may
    raise."""

    def refused(derivation: Derivation) -> str | None:
        hurry()
        return unproven(derivation, settings, known)

    if any(refused(d) for b in outcome.bundles for d in window_derivations(b)):
        outcome = outcome.original(f"parts that are computed together are not proven to be windows of the whole: {OWN}")
    for r in {r.key: r for r in outcome.results}.values():
        if why := refused(r.choice.original.form.derivation):
            outcome = outcome.choosing({r.key: as_written(r.choice)})
            simplified = f"{r.subprogram.output.name}: how its expression was simplified is not proven ({why})"
            outcome = outcome.noting(f"{simplified}: it runs as it is written")
    failed: set[str] = set()
    untold: list[str] = []
    for alike in sorted(outcome.changed.values(), key=lambda alike: len(alike) * gained(alike[0].choice), reverse=True):
        r, name = alike[0], alike[0].subprogram.output.name
        if late():
            untold.append(name)
            failed.add(r.key)
            continue
        derivation = r.candidate.form.derivation
        why, count = judged(derivation, settings, known, settings.kinds)
        if why is None:
            continue
        other = next_proven(r.choice, derivation.steps[:count], settings, known, late)
        outcome = outcome.noting(f"{name}: what was derived is not proven ({why}): {OWN if other is None else NEXT}")
        if other is None:
            failed.add(r.key)
        else:
            outcome = outcome.choosing({r.key: replace(r.choice, best=other)})
    if untold:
        outcome = outcome.noting(f"there was no time to prove what was derived for {', '.join(untold)}: {OWN}")
    return outcome.keeping(outcome.kept | failed)


def next_proven(
    choice: Choice, first: tuple[Step, ...], settings: Settings, known: Mapping[Derivation, tuple[Proof, ...]], late: Callable[[], bool]
) -> Candidate | None:  # fmt: skip
    """The fastest candidate whose derivation is accepted where that of the best is not, if it is faster than the model's own operators.

    One that begins with steps like the `first` of the best, of which the last was not accepted, is not asked for; and no more are than `MOST_ASKED`.
    """
    faster = [c for c in choice.candidates if not c.original and c is not choice.best and c.measured < (1 - GAIN) * choice.original.cost]
    refused = [first]
    for c in sorted(faster, key=lambda c: c.measured):
        steps = c.form.derivation.steps
        if late() or len(refused) > MOST_ASKED:
            return None
        if any(steps[: len(wrong)] == wrong for wrong in refused):
            continue
        why, count = judged(c.form.derivation, settings, known, settings.kinds)
        if why is None:
            return c
        refused.append(steps[:count])
    return None


def unproven(
    derivation: Derivation, settings: Settings, known: Mapping[Derivation, tuple[Proof, ...]], kinds: Collection[str] = KINDS
) -> str | None:  # fmt: skip
    """Why a derivation is not accepted; None if it is."""
    return judged(derivation, settings, known, kinds)[0]


def judged(
    derivation: Derivation, settings: Settings, known: Mapping[Derivation, tuple[Proof, ...]], kinds: Collection[str]
) -> tuple[str | None, int]:  # fmt: skip
    """Why a derivation is not accepted, None if it is; and how many steps there are up to the first at fault, all where that is not told."""
    every = len(derivation.steps)
    try:
        found = known.get(derivation) or (proofs if settings.tested else by_forms)(derivation)
    except Exception as error:  # whatever the checker fails at, nothing is proven then
        return next(iter(str(error).splitlines()), "") or type(error).__name__, every
    if isinstance(found, Untested):
        return UNPROVEN, found.step
    if not settings.tested and any(p.method != "inline" for p in found):
        return UNPROVEN, next(n for n, p in enumerate(found, 1) if p.method != "inline")
    kind = worst(p.kind for p in found)
    count = next((n for n, p in enumerate(found, 1) if p.kind not in kinds), every)
    return (None if kind in kinds else f"a step is of class {kind} as far as the checker can tell"), count


def as_written(choice: Choice) -> Choice:
    """The choice by which generated code computes the expression without a single step."""
    form = plain(choice.expression)
    written = Candidate(form, build(form.tree, {}, OUT))
    return replace(choice, original=written, best=written, candidates=[*choice.candidates, written])


def verified(outcome: Outcome, program: Executable, verify: Verify) -> Verification | None:
    """What verification says of a program that passes; None for one that does not, or that fails when it runs."""
    try:
        found = verify(outcome, program)
    except EinNetError:
        return None
    return found if found.passed else None


Programs = dict[str, "Executable"]
Verified = dict[str, Verification]


def agreeing(
    outcome: Outcome, programs: Mapping[str, Executable], verify: Verify, rebuilt: Callable[[Outcome], Executable], until: float
) -> tuple[Outcome, Programs, Verified]:
    """The programs that pass verification, with what it says of them; none where the model's own operators do not pass either.

    Of a derived program that does not pass, the parts that are at fault run as the model has them, as far as they are found before
    time.monotonic() is `until`; `rebuilt` gives the program of an outcome.
    """
    found = {name: v for name, program in programs.items() if (v := verified(outcome, program, verify))}
    kept = {name: programs[name] for name in found}
    if "optimized" not in programs or "optimized" in found:
        return outcome, kept, found
    without = faultless(outcome, verify, rebuilt, until) if "original" in found else None
    if without is None:
        return outcome.original(f"the derived program failed verification: {OWN}"), kept, found
    outcome, program, verification = without
    return outcome, {"optimized": program, **kept}, {"optimized": verification, **found}


def faultless(
    outcome: Outcome, verify: Verify, rebuilt: Callable[[Outcome], Executable], until: float
) -> tuple[Outcome, Executable, Verification] | None:
    """The outcome without the parts at fault, its program, and what verification says of it; None where nothing derived is left."""
    changed = set(outcome.changed)

    def tried(keys: Collection[str]) -> tuple[Outcome, Executable, Verification] | None:
        without = outcome.keeping(outcome.kept | (changed - set(keys)))
        try:
            program = rebuilt(without)
        except EinNetError:
            return None
        found = verified(without, program, verify)
        return None if found is None else (without, program, found)

    right = passing(sorted(changed), lambda keys: time.monotonic() < until and tried(keys) is not None)
    found = tried(right) if right else None
    if found is None:
        return None
    failed = f"what was derived for {len(changed) - len(right)} distinct subprograms failed verification"
    return found[0].noting(f"{failed}: there {OWN}"), *found[1:]


def passing(keys: list[str], passes: Callable[[list[str]], bool]) -> list[str]:
    """The keys that pass, found by halves: few that fail among many cost few trials."""
    if not keys:
        return []
    middle = len(keys) // 2
    halves = [keys[:middle], keys[middle:]] if middle else [keys]
    return [key for half in halves for key in (half if passes(half) else passing(half, passes) if len(half) > 1 else [])]
