"""What a search over whole expressions without fingerprints would visit, counted without visiting it.

Such a search applies every rule to every scope of every state and meets the same expression once for every order of the steps to it. The states
below an expression depend on the expression alone, so they are counted once for each distinct one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from einnet.derivation.normalise import normalise
from einnet.derivation.rules import RULES
from einnet.derivation.steps import Path, replace_at, subscope
from einnet.expr.nodes import Scope, nested
from einnet.search.space import Options, Space
from einnet.search.work import BYTES, elements, flops, moved


class OutOfTime(Exception):
    """The count is not done."""


@dataclass
class Counter:
    """Counts states; the rules, the cut and the scopes that are explored are those of the search."""

    options: Options
    until: float
    known: dict[tuple[str, int], int] = field(default_factory=dict)
    rewritten: dict[Scope, tuple[Scope, ...]] = field(default_factory=dict)

    def states(self, whole: Scope, depth: int) -> int:
        """States of derivations of at most `depth` steps from an expression, itself included. Raises OutOfTime."""
        if depth == 0:
            return 1
        found = self.known.get((whole.key, depth))
        if found is None:
            if time.monotonic() > self.until:
                raise OutOfTime
            following = (replace_at(whole, path, new) for path in paths(whole) for new in self.after(subscope(whole, path)))
            found = self.known[whole.key, depth] = 1 + sum(self.states(w, depth - 1) for w in following)
        return found

    def after(self, scope: Scope) -> tuple[Scope, ...]:
        """What the rules make of a scope, normalised and not cut."""
        if scope not in self.rewritten:
            self.rewritten[scope] = tuple(self._after(scope)) if Space(self.options).worth(scope) else ()
        return self.rewritten[scope]

    def _after(self, scope: Scope) -> Iterator[Scope]:
        balance = self.options.weights.balance
        limit = self.options.slack * (flops(scope) + balance * BYTES * elements(scope))
        for rule in RULES:
            if rule.name in self.options.rules and rule.kind in self.options.kinds:
                for rewrite in rule.rewrites(scope):
                    normal, _ = normalise(rewrite.scope)
                    if moved(normal) * balance <= limit:
                        yield normal


def paths(scope: Scope) -> Iterator[Path]:
    """The paths of all scopes."""
    yield ()
    for n, s in enumerate(nested(scope)):
        yield from ((n, *p) for p in paths(s))


def unpruned(scope: Scope, options: Options, seconds: float) -> tuple[int, int]:
    """The states of the greatest depth that can be counted in `seconds`, and that depth: a lower bound for the depths beyond."""
    counter = Counter(options, time.monotonic() + seconds)
    start, _ = normalise(scope)
    counted, depth = 1, 0
    try:
        for deeper in range(1, options.max_depth + 1):
            counted, depth = counter.states(start, deeper), deeper
    except OutOfTime:
        pass
    return counted, depth
