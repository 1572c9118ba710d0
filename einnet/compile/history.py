"""What earlier runs have found, by subprogram: forms and measured times, from the profile database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Protocol

from einnet.errors import CertificateError
from einnet.evidence.certificate import proofs
from einnet.evidence.report.assemble import reported
from einnet.expr.nodes import Scope
from einnet.search.candidates import Choice, Estimate
from einnet.search.recall import choice_from, choice_json, search_version
from einnet.search.settings import Settings

DECIDING = ("max_depth", "allow", "converge", "fingerprint", "rules", "threads", "finite")
"""The settings that decide what can be found."""

Json = Any


class Database(Protocol):
    """Results by a JSON value that describes them."""

    def recall(self, what: Iterable[Json]) -> list[Json | None]: ...

    def remember(self, rows: Iterable[tuple[Json, Json]]) -> None: ...


class Memory:
    """Choices of earlier runs with these settings, on this device, by this version of the search, within at least this time budget.

    What is recalled is proven like what is found: a derivation that does not hold counts as forgotten.
    """

    earlier = True

    def __init__(self, database: Database, settings: Settings, place: Json) -> None:
        self.database, self.settings = database, settings
        self._told: dict[Scope, Json] = {}
        self._place = {"place": place, "search": search_version(), **{name: getattr(settings, name) for name in DECIDING}}

    def recall(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """The choices that are known, by the subprograms' keys."""
        return self._recalled(expressions, estimate, self.settings.allow, self.settings.time_budget)

    def narrower(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """What runs of narrower classes have found, in whatever time, by the subprograms' keys: a search of a wider class finds no less."""
        found: dict[str, Choice] = {}
        for allow in self.settings.kinds[:-1]:
            for key, choice in self._recalled(expressions, estimate, allow, 0.0).items():
                if choice.best.measured < (found[key].best.measured if key in found else inf):
                    found[key] = choice
        return found

    def _recalled(self, expressions: Mapping[str, Scope], estimate: Estimate, allow: str, budget: float) -> dict[str, Choice]:
        """What was found for a class within at least so many seconds."""
        if self.settings.fresh or not self.settings.derive:
            return {}
        found: dict[str, Choice] = {}
        asked = [{**self._what(e), "allow": allow} for e in expressions.values()]
        for (key, expression), value in zip(expressions.items(), self.database.recall(asked)):
            found_in, told = (value.get("budget"), value.get("choice")) if isinstance(value, dict) else (None, None)
            if not isinstance(found_in, (int, float)) or found_in < budget:
                continue
            choice = choice_from(told, expression, estimate)
            if choice is not None and proven(choice):
                found[key] = choice
        return found

    def remember(self, choices: Sequence[Choice]) -> None:
        """Store what was found."""
        if self.settings.derive:
            budget = self.settings.time_budget
            self.database.remember((self._what(c.expression), {"budget": budget, "choice": choice_json(c, reported(c))}) for c in choices)

    def _what(self, expression: Scope) -> Json:
        """Each is written once: those of large graphs are long, and asked for again when they are stored."""
        if expression not in self._told:
            self._told[expression] = {**self._place, "expression": str(expression)}
        return self._told[expression]


def proven(choice: Choice) -> bool:
    """The derivations of what would run, and of the original, hold."""
    try:
        for c in (choice.best, choice.original):
            proofs(c.form.derivation)
    except CertificateError:
        return False
    return True
