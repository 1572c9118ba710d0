"""What a search over whole expressions that recognises nothing would visit, counted without visiting it.

Such a search applies every rule to every scope of every state, and takes what it gets for a new state: there is one state for every sequence of
at most so many steps, a step being a path and one of the results of the rules there. What can follow depends on the expression alone, so
sequences are counted once for each distinct expression; the numbers are integers, and exact.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from math import comb

from einnet.derivation.normalise import normalise
from einnet.derivation.steps import Path, replace_at, subscope
from einnet.expr.nodes import Scope, nested
from einnet.search.space import Options, Space


class OutOfTime(Exception):
    """The count is not done."""


@dataclass(frozen=True)
class Count:
    """At least so many states; all of them if `orders` is the greatest depth.

    Of the first `orders` steps every order was counted, of those that follow the top-down ones.
    """

    states: int
    orders: int


class Counter:
    """Counts sequences of steps. The rules and the scopes that are explored are those of a search with the options, which must cut nothing."""

    def __init__(self, options: Options, until: float) -> None:
        self.until = until
        self._space = Space(options)
        self._following: dict[str, tuple[Scope, ...]] = {}
        self._lengths: dict[tuple[str, int], tuple[int, ...]] = {}
        self._states: dict[tuple[str, int, int], int] = {}

    def states(self, whole: Scope, depth: int, orders: int) -> int:
        """Sequences of at most `depth` steps from an expression, the empty one included: in any order for `orders` steps, then top-down.

        With `orders` = `depth` these are all. Raises OutOfTime.
        """
        if orders == 0 or depth == 0:
            return sum(self.top_down(whole, depth))
        found = self._states.get((whole.key, depth, orders))
        if found is None:
            following = (replace_at(whole, path, new) for path in paths(whole) for new in self.following(subscope(whole, path)))
            found = self._states[whole.key, depth, orders] = 1 + sum(self.states(w, depth - 1, orders - 1) for w in following)
        return found

    def top_down(self, scope: Scope, depth: int) -> tuple[int, ...]:
        """Top-down sequences of 0, 1, ..., `depth` steps: those at the root come first, and so it is in every scope that is read.

        A sequence is some step at the root followed by a top-down sequence from what that gives, or it leaves the root alone. Then each
        of its steps stands in one of the scopes that the root reads; what the steps in one of them are, and what they give, depends on that scope
        alone; and they can be interleaved with those in the others in every order. Two choices of (sequences in the scopes, order) differ in
        some place in the path or in the result that is taken there, so none is counted twice, and all are sequences that a search makes
        which recognises nothing. What is left out are sequences that go back to a scope after a step inside it. Time is polynomial in the depth
        and linear in the distinct scopes, however many expressions these make.
        """
        found = self._lengths.get((scope.key, depth))
        if found is None:
            counts = list(reduce(interleaved, (self.top_down(s, depth) for s in nested(scope)), (1, *[0] * depth)))
            if depth:
                for new in self.following(scope):
                    for length, number in enumerate(self.top_down(new, depth - 1), 1):
                        counts[length] += number
            found = self._lengths[scope.key, depth] = tuple(counts)
        return found

    def following(self, scope: Scope) -> tuple[Scope, ...]:
        """What the rules make of a scope, normalised, equal results as often as they come."""
        found = self._following.get(scope.key)
        if found is None:
            if time.monotonic() > self.until:
                raise OutOfTime
            found = self._following[scope.key] = tuple(self._space.following(scope))
        return found


def interleaved(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of sequences by length, made of a sequence of each kind in every order that keeps theirs."""
    return tuple(sum(comb(n, k) * one[k] * other[n - k] for k in range(n + 1)) for n in range(len(one)))


def paths(scope: Scope) -> Iterator[Path]:
    """The paths of all scopes."""
    yield ()
    for n, s in enumerate(nested(scope)):
        yield from ((n, *p) for p in paths(s))


def unpruned(scope: Scope, options: Options, seconds: float) -> Count:
    """The greatest count that is to be had in `seconds`."""
    counter = Counter(options, time.monotonic() + seconds)
    start, _ = normalise(scope)
    counted = Count(1, 0)
    try:
        for depth in range(options.max_depth):
            counted = Count(counter.states(start, depth, 0), 0)
        for orders in range(options.max_depth + 1):
            counted = Count(counter.states(start, options.max_depth, orders), orders)
    except OutOfTime:
        pass
    return counted
