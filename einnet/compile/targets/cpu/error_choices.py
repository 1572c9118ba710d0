"""Which form of each part runs, and whether its products round: what takes least, of what errs no more than a limit together.

What the products of a form err, where their factors are rounded, is told by what another form of the same part was found to err in the program, and
by how many times as much this one errs for what it computes (`expr.values.mean_squares`). Errors that have nothing to do with each other add up by
their squares.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from einnet.expr.values.mean_squares import growth
from einnet.runtime.costs import CpuCost
from einnet.search.choosing.candidate import Candidate, Choice

TINY = 1e-12
"""Seconds that no exchange takes less than."""


@dataclass(frozen=True)
class Option:
    """A way to run all equal subprograms: the candidate with its seconds as its products round or not, and those of all, and the mean square of what
    these err."""

    candidate: Candidate
    rounds: bool
    seconds: float
    square: float


def options(choice: Choice, uses: int, square: float, cost: CpuCost, until: float) -> list[Option]:
    """The ways to run a subprogram that stands in a program so many times, the fastest first, each of which errs less than those before it.

    `square` is what all of them err together whose products are those of the expression as it is written. Nothing is measured after time.monotonic()
    is `until`, nor what is predicted to take longer than a way that rounds nothing.
    """
    plain = cost.in_float32()
    expected = [(sum(costs.estimates(c.kernels)), costs is not plain, n, c) for costs in (cost, plain) for n, c in enumerate(choice.candidates)]
    found: list[Option] = []
    for _, rounds, _, c in sorted(expected, key=lambda one: one[:3]):
        least = min((o.square for o in found), default=inf)
        if (found and least == 0) or time.monotonic() >= until:
            break
        errs = square * growth(c.form.start, c.form.tree) ** 2 if rounds else 0.0
        if found and errs >= least:
            continue
        seconds = [s for s in (cost if rounds else plain).measured(c.kernels, until) if s is not None]
        if len(seconds) == len(c.kernels) and sum(seconds) < inf:
            priced = replace(c, seconds=tuple(seconds), measured=sum(seconds), tried=True, assumed=frozenset())
            found.append(Option(priced, rounds, uses * sum(seconds), errs))
    return front(found)


def front(found: Iterable[Option]) -> list[Option]:
    """Those that err less than all that take no longer, the fastest first."""
    kept: list[Option] = []
    for o in sorted(found, key=lambda o: (o.seconds, o.square)):
        if not kept or o.square < kept[-1].square:
            kept.append(o)
    return kept


def picked(parts: Sequence[Sequence[Option]], limit: float) -> list[Option]:
    """An option of each part, as `front` gives them: the fastest, and where these err more than the limit together slower ones, first where most is
    gained for the time that it takes. Those that err least, where that does not suffice either."""
    places = [0] * len(parts)
    while sum(part[n].square for part, n in zip(parts, places, strict=True)) > limit * limit:
        exchanges = [
            (_gained(part[n], other) / max(other.seconds - part[n].seconds, TINY), -k, later)
            for k, (part, n) in enumerate(zip(parts, places, strict=True))
            for later, other in enumerate(part[n + 1 :], n + 1)
        ]
        if not exchanges:
            break
        _, k, later = max(exchanges)
        places[-k] = later
    return [part[n] for part, n in zip(parts, places, strict=True)]


def _gained(one: Option, other: Option) -> float:
    """What is erred less by another option."""
    return inf if one.square == inf > other.square else one.square - other.square
