"""Choices as plain data, and back: what one run has found is there for the next.

Forms are read with their derivations, operators are matched again, kernels are built again; what does not come back is as if it had never
been found: nothing is trusted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from einnet.errors import EinNetError
from einnet.expr.nodes import Scope
from einnet.instantiate.kernels import Kernel
from einnet.instantiate.registry import TABLES
from einnet.search.choosing.candidate import Candidate, Choice, Estimate
from einnet.search.choosing.choose import choose
from einnet.search.encoding import Reader, Writer

Json = Any


@cache
def search_version() -> str:
    """A digest of the source of all that decides what is found: choices hold for one version of it."""
    folder = Path(__file__).parents[1]
    state = hashlib.blake2b(digest_size=8)
    for layer in ("expr", "derivation", "instantiate", "search"):
        for path in sorted((folder / layer).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()


def choice_json(choice: Choice, kept: Sequence[Candidate]) -> Json:
    """What is to be known of a choice: the forms of the candidates to be kept, the seconds of their kernels as far as they were measured, the kernels
    of any candidate that were refused, and the counts of the search.
    """
    writer = Writer()
    forms = [writer.form(form) for form in {c.form.key: c.form for c in kept}.values()]
    seconds = {name(k): t for c in kept for k, t in zip(c.kernels, c.seconds) if t < inf and k not in c.assumed}
    refused = sorted({name(k) for c in choice.candidates for k in c.refused})
    counts = {"states": choice.states, "found": choice.forms, "notes": choice.notes, "depth": choice.depth, "stopped_at": choice.stopped_at}
    return {"forms": forms, "seconds": seconds, "refused": refused, **counts, **writer.tables}


def choice_from(value: Json, expression: Scope, estimate: Estimate) -> Choice | None:
    """The choice among what was told, by the seconds that were told; None for what is damaged or belongs to another expression."""
    try:
        reader = Reader(value, TABLES)
        forms = [form for form in map(reader.form, value["forms"]) if form.start == expression and form.derivation.end == form.tree]
        seconds: Mapping[str, float] = {str(kernel): float(t) for kernel, t in value["seconds"].items()}
        known = {**seconds, **dict.fromkeys(map(str, value["refused"]), inf)}

        def measured(kernels: Sequence[Kernel], _: float) -> list[float | None]:
            return [known.get(name(k)) for k in kernels]

        choice = choose(expression, forms, estimate, measured, most=len(seconds) + 1, assuming=False)
        choice.states, choice.forms, choice.notes = int(value["states"]), int(value["found"]), [str(note) for note in value["notes"]]
        choice.depth, choice.stopped_at = int(value["depth"]), None if value["stopped_at"] is None else int(value["stopped_at"])
    except (EinNetError, ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None
    return choice


def name(kernel: Kernel) -> str:
    """A digest of the kernel."""
    return hashlib.blake2b(repr(kernel).encode(), digest_size=16).hexdigest()
