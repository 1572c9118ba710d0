"""Looking at scopes for another process: text in, text out. What was found is read when it is asked for, as some of it is known already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import groupby
from typing import Any

from einnet.expr.nodes import Scope
from einnet.instantiate.registry import TABLES
from einnet.search.ahead.sights import Moves, Sights, Successor
from einnet.search.bases import Sight
from einnet.search.encoding import Json, Reader, Writer
from einnet.search.work import Weights

REMEMBERED = 1 << 12
"""Scopes whose sights a process keeps: what steps lead to reads the same groups again and again."""


DIGITS = 8
"""Of a key, which tell whether a scope is known: two that have them in common cost no more than that one is looked at later."""


class Known:
    """The scopes that a search has looked at, and those whose groups it has started, by the first digits of their keys."""

    def __init__(self, looked: str = "", started: str = "") -> None:
        self.looked, self.started = (dict.fromkeys(t[n : n + DIGITS] for n in range(0, len(t), DIGITS)) for t in (looked, started))

    @property
    def texts(self) -> tuple[str, str]:
        """What makes the same again."""
        return "".join(self.looked), "".join(self.started)


def written(moves: Moves) -> dict[str, Json]:
    """What may be done, as plain data: tables by name."""
    given = {f.name: getattr(moves, f.name) for f in fields(moves)}
    weights = {f.name: getattr(moves.weights, f.name) for f in fields(Weights)}
    return {**given, "tables": [t.name for t in moves.tables], "weights": weights}


def read(given: Mapping[str, Json]) -> dict[str, Any]:
    """The arguments of what `written` has written."""
    chosen: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return {**chosen, "tables": tuple(t for t in TABLES if t.name in chosen["tables"]), "weights": Weights(**chosen["weights"])}


def question(moves: Moves, members: Sequence[tuple[Scope, float]], known: Known) -> str:
    """A letter that asks for the successors of scopes within limits, and for how all that these reach and that is not known can be run."""
    writer = Writer()
    asked = [[writer.scope(scope), limit] for scope, limit in members]
    names = {f.name for f in fields(Moves)}
    given = {name: value for name, value in written(moves).items() if name in names}
    return json.dumps({"moves": json.dumps(given), "asked": asked, "known": list(known.texts), **writer.tables})


def answer(text: str) -> str:
    """The letter that answers a question."""
    asked = json.loads(text)
    reader = Reader(asked, TABLES)
    return _Answering(_remembering(asked["moves"]), Known(*asked["known"])).letter([(reader.scopes[n], limit) for n, limit in asked["asked"]])


class Remembered(Sights):
    """Sights that look at a scope once, as long as they have room for it."""

    def __init__(self, moves: Moves) -> None:
        super().__init__(moves)
        self.start = lru_cache(REMEMBERED)(self.start)  # type: ignore[method-assign]
        self.bases = lru_cache(REMEMBERED)(self.bases)  # type: ignore[method-assign]


@lru_cache(maxsize=2)
def _remembering(moves: str) -> Sights:
    return Remembered(Moves(**read(json.loads(moves))))


class _Answering:
    """Collects what is found; what is met twice is written once."""

    def __init__(self, sights: Sights, known: Known) -> None:
        self.sights, self.writer, self.known = sights, Writer(), known
        self.starts: dict[Scope, Json] = {}
        self.bases: dict[Scope, Json] = {}

    def letter(self, members: Sequence[tuple[Scope, float]]) -> str:
        successors = [[self.successor(found) for found in self.sights.successors(*member)] for member in members]
        return json.dumps({"successors": successors, "starts": _by_key(self.starts), "bases": _by_key(self.bases), **self.writer.tables})

    def successor(self, found: Successor) -> Json:
        if not found.cut:
            self.look(found.scope)
        return [self.writer.step(found.step), [self.writer.step(s) for s in found.forced], self.writer.scope(found.scope), found.cut]

    def look(self, scope: Scope) -> None:
        """How a scope can be run, and the same of what that reads."""
        if scope in self.bases or scope.key[:DIGITS] in self.known.looked:
            return
        found = self.sights.bases(scope)
        by_form = ((alike[0].form, alike) for alike in (list(g) for _, g in groupby(found, key=lambda sight: id(sight.form))))
        self.bases[scope] = [self.writer.scope(scope), [[self.writer.form(form), [self.sight(s) for s in alike]] for form, alike in by_form]]
        for opened in dict.fromkeys(s for sight in found for s, _ in sight.opens):
            self.begin(opened)

    def sight(self, sight: Sight) -> Json:
        opens = [[self.writer.scope(s), fed] for s, fed in sight.opens]
        return [opens, sight.cost, sight.spare, sight.structure, sight.kind]

    def begin(self, scope: Scope) -> None:
        """Where the group of a scope starts, and what there is to be seen there."""
        if scope not in self.starts and scope.key[:DIGITS] not in self.known.started:
            start = self.sights.start(scope)
            steps = [self.writer.step(s) for s in start.steps]
            self.starts[scope] = [self.writer.scope(scope), self.writer.scope(start.first), steps, start.limit]
            self.look(start.first)


def _by_key(found: Mapping[Scope, Json]) -> dict[str, list[Json]]:
    """Found by the keys of scopes: equal ones may have other names."""
    entries: dict[str, list[Json]] = {}
    for scope, entry in found.items():
        entries.setdefault(scope.key, []).append(entry)
    return entries
