"""What earlier runs have found, by subprogram: forms and measured times, from the profile database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from einnet.compile.turns import beginning
from einnet.derivation.steps import KINDS, kinds_of
from einnet.errors import CertificateError
from einnet.evidence.certificate import by_forms
from einnet.evidence.report.assemble import reported
from einnet.expr.nodes import Scope
from einnet.instantiate.kernels import Kernel
from einnet.search.choosing.candidate import Choice, Estimate
from einnet.search.recall import choice_from, choice_json, search_version
from einnet.search.settings import Settings

DECIDING = ("max_depth", "allow", "converge", "fingerprint", "rules", "threads", "finite")
"""The settings that decide what can be found."""

Json = Any


class Database(Protocol):
    """Results by a JSON value that describes them."""

    def recall(self, what: Iterable[Json]) -> list[Json | None]: ...

    def remember(self, rows: Iterable[tuple[Json, Json]]) -> None: ...


@dataclass(frozen=True)
class Places:
    """Where times were measured: this place, and those of the same device whose products have fewer or more arithmetics to choose from, where no
    kernel takes less, or more. `seconds` are the times of kernels that are known at this place, None where one is not."""

    here: Json
    fewer: Sequence[Json] = ()
    more: Sequence[Json] = ()
    seconds: Callable[[Sequence[Kernel]], Sequence[float | None]] = field(default=lambda kernels: [None] * len(kernels))


@dataclass(frozen=True)
class Asked:
    """A question that a run may have answered: the class of steps that it allowed, where it measured, and within how much time at least."""

    allow: str
    place: Json
    budget: float = 0.0


class Memory:
    """Choices of earlier runs with these settings, on this device, by this version of the search, within at least this time budget.

    A run that was allowed more, a worse class of steps or more arithmetics, has answered for those that are allowed less where what it chose is
    allowed to these, and takes no longer for them: all that they could choose it could choose, and in no more time. A run that was allowed less says
    what one that is allowed more can begin with. What is recalled is proven like what is found: a derivation that does not hold counts as forgotten.
    """

    earlier = True

    def __init__(self, database: Database, settings: Settings, place: Json | Places) -> None:
        self.database, self.settings = database, settings
        self.places = place if isinstance(place, Places) else Places(place)
        self._told: dict[Scope, str] = {}
        self._deciding = {"search": search_version(), **{name: getattr(settings, name) for name in DECIDING}}

    def recall(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """The choices that are known, by the subprograms' keys; none is slower than what a run has found that was allowed less."""
        found = self._recalled(expressions, estimate, self._asked(self.settings.time_budget))
        for wider in self._wider():
            left = {key: e for key, e in expressions.items() if key not in found}
            found |= self._recalled(left, estimate, wider) if left else {}
        narrower = self.narrower({key: expressions[key] for key in found}, estimate)
        return {key: beginning(choice, narrower.get(key)) for key, choice in found.items()}

    def narrower(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """What runs have found that were allowed less, in whatever time, by the subprograms' keys: a search that is allowed more finds no less."""
        found: dict[str, Choice] = {}
        for asked in self._narrower() if expressions else ():
            for key, choice in self._recalled(expressions, estimate, asked).items():
                if choice.best.measured < (found[key].best.measured if key in found else inf):
                    found[key] = choice
        return found

    def _asked(self, budget: float) -> Asked:
        """What these settings ask."""
        return Asked(self.settings.allow, self.places.here, budget)

    def _narrower(self) -> list[Asked]:
        """What is asked by those that are allowed less."""
        return [Asked(a, p) for p in (self.places.here, *self.places.fewer) for a in self.settings.kinds if Asked(a, p) != self._asked(0.0)]

    def _wider(self) -> list[Asked]:
        """What is asked by those that are allowed more, and have no less time."""
        own, worse = self._asked(self.settings.time_budget), KINDS[KINDS.index(self.settings.allow) :]
        return [one for p in (own.place, *self.places.more) for a in worse if (one := Asked(a, p, own.budget)) != own]

    def _recalled(self, expressions: Mapping[str, Scope], estimate: Estimate, asked: Asked) -> dict[str, Choice]:
        """What was answered to a question, as far as it is an answer here."""
        if self.settings.fresh or not self.settings.derive:
            return {}
        found: dict[str, Choice] = {}
        for (key, expression), value in zip(expressions.items(), self.database.recall([self._what(e, asked) for e in expressions.values()])):
            found_in, told = (value.get("budget"), value.get("choice")) if isinstance(value, dict) else (None, None)
            if not isinstance(found_in, (int, float)) or found_in < asked.budget:
                continue
            choice = self._holding(choice_from(told, expression, estimate), asked)
            if choice is not None and not_refuted(choice):
                found[key] = choice
        return found

    def _holding(self, choice: Choice | None, asked: Asked) -> Choice | None:
        """An answer to a question as one to what these settings ask; None where it uses more than these allow, or may take longer here."""
        if choice is None:
            return None
        runs, kinds = (choice.best, choice.original), set(self.settings.kinds)
        if asked.place in self.places.more:
            if not all(list(self.places.seconds(c.kernels)) == list(c.seconds) for c in runs):
                return None
            choice.candidates = [c for c in choice.candidates if any(c is one for one in runs)]
        choice.candidates = [c for c in choice.candidates if c.original or kinds_of(c.form.steps) <= kinds]
        return choice if any(c is choice.best for c in choice.candidates) else None

    def remember(self, choices: Sequence[Choice]) -> None:
        """Store what was found."""
        if self.settings.derive:
            budget = self.settings.time_budget
            self.database.remember((self._what(c.expression), {"budget": budget, "choice": choice_json(c, reported(c))}) for c in choices)

    def _what(self, expression: Scope, asked: Asked | None = None) -> Json:
        """What is asked of an expression, by these settings or by others. Each is written once: those of large graphs are long, and asked for
        again when they are stored."""
        if expression not in self._told:
            self._told[expression] = str(expression)
        asked = asked or self._asked(self.settings.time_budget)
        return {"place": asked.place, **self._deciding, "allow": asked.allow, "expression": self._told[expression]}


def not_refuted(choice: Choice) -> bool:
    """The derivations of what would run, and of the original, are not known not to hold: whether all of it is proven is asked before it runs."""
    try:
        for c in (choice.best, choice.original):
            by_forms(c.form.derivation)
    except CertificateError:
        return False
    return True
