"""A limit on the memory that a program takes: derived forms whose weights or intermediate tensors are large are given up."""

from __future__ import annotations

from math import prod

from einnet.instantiate.build import Build
from einnet.instantiate.kernels import Plan
from einnet.runtime.arena import lifetimes, place, sizes
from einnet.search.outcome import Outcome, Result

BYTES = 4
"""Bytes of an element (f32)."""


def footprint(plan: Plan) -> int:
    """Bytes that a program takes: its arena, and its constants once (a packed copy stands in for what is packed)."""
    nbytes = sizes(plan)
    return place(lifetimes(plan)).nbytes + sum(nbytes[name] for name in plan.constants)


def restrain(outcome: Outcome, limit: int) -> Outcome:
    """The outcome in which subprograms run as the model has them until the program takes at most `limit` bytes, or nothing derived is left.

    Those that gain the least time for the bytes that they take go first; a note says how many.
    """
    given_up: set[str] = set()
    before = outcome.kept
    while outcome.changed:
        excess = footprint(outcome.plan()) - limit
        if excess <= 0:
            break
        for alike in by_worth(outcome):
            given_up.add(alike[0].key)
            excess -= sum(map(extra, alike))
            if excess <= 0:
                break
        outcome = outcome.keeping(before | given_up)
    told = f"the memory limit of {limit / 1e6:g} MB forbade what was derived for {len(given_up)} distinct subprograms"
    return outcome.noting(told) if given_up else outcome


def by_worth(outcome: Outcome) -> list[tuple[Result, ...]]:
    """Changed subprograms, equal ones together: those that take no more than the original last, the others by seconds gained per byte."""

    def worth(alike: tuple[Result, ...]) -> tuple[bool, float]:
        choice, more = alike[0].choice, extra(alike[0])
        return more <= 0, (choice.original.cost - choice.best.cost) / max(more, 1)

    return sorted(outcome.changed.values(), key=worth)


def extra(r: Result) -> int:
    """Bytes of weights and temporaries of the chosen candidate beyond those of the original."""
    return held(r.choice.best.build) - held(r.choice.original.build)


def held(build: Build) -> int:
    """Bytes of the constants that are computed for it, and of its temporaries."""
    return BYTES * (sum(prod(s.shape) for s in build.weights.values()) + sum(b.size for b in build.temporaries.values()))
