"""Mutants of stored programs: every one that changes a result is refused, and so is each of the kinds that were once let through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einnet.compile.targets.stored import StoredProgram
from einnet.errors import EinNetError
from einnet.evidence.audit import audit
from tests.evidence.mutants import Mutant, mutants, stored
from tests.models import random_inputs, tiny, two_outputs

MODELS: dict[str, Any] = {
    "two_outputs": two_outputs,
    "small": lambda: tiny("small", size=6),
    "transformer": lambda: tiny("transformer", sequence=4, hidden=8),
    "audio": lambda: tiny("audio", samples=32, channels=4),
}
SAMPLE = 9
"""Of so many mutants one is tried by default."""

ALWAYS = ("all derivations left out", "is that of another", "with another end", "left out", "times 1.001", "times 1.00005", "half is zero")


WITHIN = 16 * 2.0**-24
"""Error, relative to the greatest of an output, that element functions in generated code may have by what is stated of them: a coefficient of the
polynomial of exp may be off by a thousandth and its results are still those of exp."""


def outcome(model: Any, program: StoredProgram, mutant: Mutant) -> tuple[bool, bool]:
    """Whether a mutant's results differ (or it cannot run), those of other code by more than `WITHIN`, and whether it is refused."""
    other = StoredProgram(program.path, mutant.loaded)
    differs = False
    for seed in range(2):
        inputs = random_inputs(model, seed)
        wanted = program(inputs)
        try:
            got = other(inputs)
        except (EinNetError, AssertionError):
            return True, True
        differs = differs or any(apart(wanted[name], got[name], WITHIN if mutant.kind == "code" else 0.0) for name in wanted)
    try:
        return differs, not audit(model, other)["passed"]
    except EinNetError:
        return differs, True


def apart(wanted: Any, got: Any, share: float) -> bool:
    """The shapes differ, or some element does by more than a share of the greatest."""
    if np.shape(wanted) != np.shape(got):
        return True
    limit = share * float(np.abs(wanted).max(initial=0.0))
    return not np.allclose(got, wanted, rtol=0.0, atol=limit, equal_nan=True)


def tried(name: str, path: Path, every: int) -> Counter[str]:
    """Counts by kind and outcome; what changes a result and passes fails the test."""
    model = MODELS[name]()
    program = stored(model, path / "p.einnet")
    assert audit(model, program)["passed"]
    counts: Counter[str] = Counter()
    for n, mutant in enumerate(mutants(program)):
        if n % every:
            continue
        differs, refused = outcome(model, program, mutant)
        assert refused or not differs, f"{name}: {mutant.kind}, {mutant.what}: changes a result and passes"
        counts[f"{mutant.kind}: {'refused' if refused else 'harmless'}"] += 1
    return counts


@pytest.mark.parametrize(("name", "every"), [("two_outputs", 5), ("transformer", 12)])
def test_a_sample_of_mutants(name: str, every: int, tmp_path: Path) -> None:
    counts = tried(name, tmp_path, every * SAMPLE)
    assert sum(n for kind, n in counts.items() if kind.endswith("refused")) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_mutants(name: str, tmp_path: Path) -> None:
    counts = tried(name, tmp_path, 1)
    assert sum(counts.values()) >= 50, counts
    print(name, dict(counts))


def test_what_was_once_let_through(tmp_path: Path) -> None:
    """All derivations left out, one of another, one that ends elsewhere; a weight times 1.001, all times 1.00005; half of a result zero."""
    model = MODELS["two_outputs"]()
    program = stored(model, tmp_path / "p.einnet")
    seen: set[str] = set()
    for mutant in mutants(program):
        kind = next((k for k in ALWAYS if mutant.what.endswith(k) or k in mutant.what), None)
        key = f"{mutant.kind} {kind}"
        if kind is not None and key not in seen:
            seen.add(key)
            _, refused = outcome(model, program, mutant)
            assert refused, mutant.what
    wanted = {"derivations all derivations left out", "derivations is that of another", "derivations with another end", "constants times 1.001"}
    assert {*wanted, "constants times 1.00005", "code half is zero", "code times 1.001", "plan half is zero"} <= seen
