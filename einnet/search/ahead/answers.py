"""Answers to the questions of a search, as sights: what others have found ahead is read, what they have not is looked at here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from einnet.derivation.steps import Step
from einnet.expr.nodes import Scope
from einnet.instantiate.registry import TABLES
from einnet.search.ahead.letters import DIGITS, Known
from einnet.search.ahead.sights import Moves, Sights, Start, Successor
from einnet.search.bases import Sight
from einnet.search.encoding import Json, Reader


class Answer:
    """A letter that answers a question. What is in it is made when it is asked for: the search knows most scopes that are met twice."""

    def __init__(self, text: str) -> None:
        self._letter = json.loads(text)
        self._reader = Reader(self._letter, TABLES, at_once=False)
        self.keys = frozenset((*self._letter["starts"], *self._letter["bases"]))

    def successors(self, place: int) -> Iterator[Successor]:
        """Those of the member at a place of the question."""
        for step, forced, scope, cut in self._letter["successors"][place]:
            yield Successor(self._reader.steps[step], self._steps(forced), self._reader.scopes[scope], cut)

    def start(self, scope: Scope) -> Start | None:
        """Where its group starts, if that is in the letter."""
        for first, steps, limit in self._entries("starts", scope):
            return Start(self._reader.scopes[first], self._steps(steps), limit)
        return None

    def bases(self, scope: Scope) -> Sequence[Sight] | None:
        """How it can be run, if that is in the letter."""
        for (forms,) in self._entries("bases", scope):
            return [sight for form, alike in forms for sight in self._sights(form, alike)]
        return None

    def _entries(self, table: str, scope: Scope) -> Iterator[list[Json]]:
        """What is told of a scope: of those with its key the one that is it."""
        return (rest for number, *rest in self._letter[table].get(scope.key, ()) if self._reader.scopes[number] == scope)

    def _sights(self, form: Json, alike: Json) -> Iterator[Sight]:
        made = self._reader.form(form)
        for opens, cost, spare, structure, kind in alike:
            opened = tuple((self._reader.scopes[n], fed) for n, fed in opens)
            yield Sight(made, opened, cost, spare, tuple(structure), tuple(map(tuple, kind)))

    def _steps(self, numbers: Iterable[int]) -> tuple[Step, ...]:
        return tuple(self._reader.steps[n] for n in numbers)


class Answered(Sights):
    """Sights that look into answers first."""

    def __init__(self, moves: Moves) -> None:
        super().__init__(moves)
        self.known = Known()
        self._answers: dict[str, list[Answer]] = {}

    def learn(self, answer: Answer) -> None:
        """There is one more answer."""
        for key in answer.keys:
            self._answers.setdefault(key, []).append(answer)

    def forget(self) -> None:
        """What was answered will be asked for no more."""
        self._answers.clear()

    def start(self, scope: Scope) -> Start:
        self.known.started[scope.key[:DIGITS]] = None
        known = (answer.start(scope) for answer in self._answers.get(scope.key, ()))
        return next((start for start in known if start), None) or super().start(scope)

    def bases(self, scope: Scope) -> Sequence[Sight]:
        self.known.looked[scope.key[:DIGITS]] = None
        known = (answer.bases(scope) for answer in self._answers.get(scope.key, ()))
        return next((bases for bases in known if bases), None) or super().bases(scope)
