"""One search shared by several processes: others look ahead at the scopes that it will come to, in its order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice

from einnet.compile.garbage import collection_on_demand
from einnet.compile.workers import Crew
from einnet.expr.nodes import Scope
from einnet.search.ahead.answers import Answer, Answered
from einnet.search.ahead.letters import answer, question
from einnet.search.ahead.sights import Moves, Successor

AT_ONCE = 8
"""Scopes of a question: looking at them takes some hundredths of a second, many times what sending them takes."""

AHEAD = 3
"""Questions for each worker that wait for answers: one that it is at, and what keeps it busy until the next one.
What a budget ends in vain is bounded by that."""

Asked = tuple[Scope, float]


def look(text: str) -> str:
    """Answer a question; the answers of one search hold few cycles."""
    with collection_on_demand():
        return answer(text)


@dataclass(frozen=True)
class Question:
    """Scopes with the limits within which they were asked for, and the answer to come."""

    asked: tuple[Asked, ...]
    answer: Future[str]


class FarSights(Answered):
    """What a search asks for was found by a crew, or is found here: where a worker died, or where there is no time to wait for it."""

    def __init__(self, moves: Moves, crew: Crew) -> None:
        super().__init__(moves)
        self._crew, self._until = crew, 0.0
        self._due: Iterator[Asked] = iter(())
        self._open: deque[Question] = deque()
        self._found: dict[Asked, tuple[Answer, int]] = {}

    def expect(self, due: Iterable[Asked], until: float) -> None:
        for waiting in self._open:
            waiting.answer.cancel()
        self._open.clear()
        self._found.clear()
        self.forget()
        self._due, self._until = iter(due), until
        self._ask()

    def successors(self, scope: Scope, limit: float) -> Iterable[Successor]:
        asked = scope, limit
        while asked not in self._found and any(asked in waiting.asked for waiting in self._open):
            self._take(self._open.popleft())
        if asked not in self._found:
            return super().successors(scope, limit)
        found, place = self._found.pop(asked)
        return found.successors(place)

    def _ask(self) -> None:
        """Keep the crew busy."""
        while len(self._open) < AHEAD * self._crew.size and (asked := tuple(islice(self._due, AT_ONCE))):
            future = self._crew.submit(look, question(self.moves, asked, self.known))
            if future is None:
                self._due = iter(())
                return
            self._open.append(Question(asked, future))

    def _take(self, waiting: Question) -> None:
        """Read what was answered, if that comes in time, and ask for more."""
        self._ask()
        text = self._crew.result(waiting.answer, self._until)
        self._ask()
        if text is not None:
            found = Answer(text)
            self.learn(found)
            self._found.update({asked: (found, place) for place, asked in enumerate(waiting.asked)})
