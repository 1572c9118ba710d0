"""What may run: parts whose derivations hold, programs that can be compiled and that agree with ONNX Runtime.

Whatever fails here falls back to what is known to be right, a part to the model's own operators, a program to ONNX Runtime, and a note says so.
Nothing that fails ends a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from einnet.api.bundling import window_derivations
from einnet.api.certificate import proofs, worst
from einnet.derivation.check import Proof
from einnet.derivation.steps import KINDS, Derivation
from einnet.errors import EinNetError
from einnet.instantiate.build import build
from einnet.search.candidates import OUT, Candidate, Choice
from einnet.search.forms import plain

if TYPE_CHECKING:
    from einnet.api.pipeline import Outcome
    from einnet.api.settings import Settings
    from einnet.runtime.cpu.program import Executable

Verify = Callable[["Executable"], dict[str, Any]]
"""Errors of a program against ONNX Runtime, with "passed"."""


def keep_proven(outcome: Outcome, settings: Settings, known: Mapping[Derivation, tuple[Proof, ...]] = MappingProxyType({})) -> None:
    """Let every subprogram whose derivation is not accepted run as the model has it, with a note: where a step does not hold, where it is tested
    and not proven unless the settings allow that, and where it is of a class that they do not allow, as far as the checker can tell."""
    if any(unproven(d, settings, known) for b in outcome.bundles for d in window_derivations(b)):
        outcome.keep_original()
        outcome.notes.append("parts that are computed together are not proven to be windows of the whole: the model's own operators are kept")
    failed: dict[str, str] = {}
    for r in {r.subprogram.key: r for r in outcome.results}.values():
        why = unproven(r.choice.original.form.derivation, settings, known)
        if why:
            as_written(r.choice)
            outcome.notes.append(f"{r.subprogram.output.name}: how its expression was simplified is not proven ({why}): it runs as it is written")
        why = unproven(r.candidate.form.derivation, settings, known, settings.kinds) if r.changed else None
        if why:
            failed[r.subprogram.key] = why
            outcome.notes.append(f"{r.subprogram.output.name}: what was derived is not proven ({why}): the model's own operators are kept")
    outcome.keep_originals(outcome.kept | failed.keys())


def unproven(
    derivation: Derivation, settings: Settings, known: Mapping[Derivation, tuple[Proof, ...]], kinds: Collection[str] = KINDS
) -> str | None:  # fmt: skip
    """Why a derivation is not accepted; None if it is."""
    try:
        found = known.get(derivation) or proofs(derivation)
    except Exception as error:  # whatever the checker fails at, nothing is proven then
        return next(iter(str(error).splitlines()), "") or type(error).__name__
    if not settings.tested and any(p.method != "inline" for p in found):
        return "a step is tested only; --allow tested takes such steps"
    kind = worst(p.kind for p in found)
    return None if kind in kinds else f"a step is of class {kind} as far as the checker can tell"


def as_written(choice: Choice) -> None:
    """Let generated code compute the expression without a single step."""
    form = plain(choice.expression)
    choice.original = choice.best = Candidate(form, build(form.tree, {}, OUT))
    choice.candidates.append(choice.original)


def verified(program: Executable, verify: Verify) -> dict[str, Any] | None:
    """What verification says of a program that passes; None for one that does not, or that fails when it runs."""
    try:
        found = verify(program)
    except EinNetError:
        return None
    return found if found["passed"] else None


def agreeing(
    outcome: Outcome, programs: Mapping[str, Executable], verify: Verify, rebuilt: Callable[[], Executable], until: float
) -> tuple[dict[str, Executable], dict[str, dict[str, Any]]]:  # fmt: skip
    """The programs that pass verification, with what it says of them; none where the model's own operators do not pass either.

    Of a derived program that does not pass, the parts that are at fault run as the model has them, as far as they are found before
    time.monotonic() is `until`; `rebuilt` gives the program of the outcome as it is then.
    """
    found = {name: v for name, program in programs.items() if (v := verified(program, verify))}
    kept = {name: programs[name] for name in found}
    if "optimized" not in programs or "optimized" in found:
        return kept, found
    without = faultless(outcome, verify, rebuilt, until) if "original" in found else None
    if without is None:
        outcome.notes.append("the derived program failed verification: the model's own operators are kept")
        outcome.keep_original()
        return kept, found
    program, verification = without
    return {"optimized": program, **kept}, {"optimized": verification, **found}


def faultless(
    outcome: Outcome, verify: Verify, rebuilt: Callable[[], Executable], until: float
) -> tuple[Executable, dict[str, Any]] | None:  # fmt: skip
    """The derived program without the parts at fault, with what verification says of it; None where nothing derived is left."""
    changed, before = {r.subprogram.key for r in outcome.results if r.changed}, outcome.kept

    def tried(keys: Collection[str]) -> tuple[Executable, dict[str, Any]] | None:
        outcome.keep_originals(before | (changed - set(keys)))
        try:
            program = rebuilt()
        except EinNetError:
            return None
        found = verified(program, verify)
        return None if found is None else (program, found)

    right = passing(sorted(changed), lambda keys: time.monotonic() < until and tried(keys) is not None)
    found = tried(right) if right else None
    if found is not None:
        failed = f"what was derived for {len(changed) - len(right)} distinct subprograms failed verification"
        outcome.notes.append(f"{failed}: there the model's own operators are kept")
    return found


def passing(keys: list[str], passes: Callable[[list[str]], bool]) -> list[str]:
    """The keys that pass, found by halves: few that fail among many cost few trials."""
    if not keys:
        return []
    middle = len(keys) // 2
    halves = [keys[:middle], keys[middle:]] if middle else [keys]
    return [key for half in halves for key in (half if passes(half) else passing(half, passes) if len(half) > 1 else [])]
