"""Forms found at one size of a dimension, at another size."""

from __future__ import annotations

from dataclasses import replace

from einnet.derivation.moves.rule import Refused
from einnet.derivation.steps import Step
from einnet.expr.resize import Resize, doubtful
from einnet.instantiate.matching.types import Match
from einnet.instantiate.registry import TABLES
from einnet.search.forms import Form


def resized_step(step: Step, resize: Resize) -> Step:
    """The step at another size; what it claims is to be proven there."""
    return replace(step, before=resize.scope(step.before), after=resize.scope(step.after), parameters=resize.text(step.parameters))


def resized_form(form: Form, resize: Resize) -> Form | Refused:
    """The form at another size, its operators matched again; refused where none matches there or its steps do not fit together.

    A batch of one is no batch: there, a plain product may stand for a batched one.
    """
    number = doubtful(form.tree, resize.old)
    if number is not None:
        return Refused(f"it holds the number {number}, of which nobody can tell whether it follows the size")
    try:
        start, tree = resize.scope(form.start), resize.scope(form.tree)
        steps = tuple(resized_step(step, resize) for step in form.steps)
        scopes = [(resize.scope(s), m.table) for s, m in form.matches]
    except ValueError as error:
        return Refused(str(error))
    matches = []
    for scope, table in scopes:
        found = sorted((m for m in (t.match(scope) for t in TABLES) if isinstance(m, Match)), key=lambda m: m.table != table)
        if not found:
            return Refused(f"at {resize.new}, {scope.text()} is no {table} and no other operator")
        matches.append((scope, found[0]))
    made = Form(start, tree, tuple(matches), steps)
    try:
        whole = made.derivation.end == tree
    except IndexError:
        whole = False
    return made if whole else Refused(f"at {resize.new}, its steps do not fit together")
