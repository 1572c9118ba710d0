"""A limit on the memory that a program takes: derived forms whose weights or intermediate tensors are large are given up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from einnet.api.pipeline import Outcome, Result
from einnet.instantiate.build import Build
from einnet.instantiate.kernels import Plan
from einnet.runtime.memory import lifetimes, place, sizes

BYTES = 4
"""Bytes of an element (f32)."""


def footprint(plan: Plan) -> int:
    """Bytes that a program takes: its arena, and its constants once (a packed copy stands in for what is packed)."""
    nbytes = sizes(plan)
    return place(lifetimes(plan)).nbytes + sum(nbytes[name] for name in plan.constants)


def restrain(outcome: Outcome, limit: int) -> None:
    """Let subprograms run as the model has them until the program takes at most `limit` bytes, or nothing derived is left.

    Those that gain the least time for the bytes that they take go first; a note says how many.
    """
    given_up = 0
    while any(r.changed for r in outcome.results):
        excess = footprint(outcome.plan()) - limit
        if excess <= 0:
            break
        for group in by_worth(outcome.results):
            for r in group:
                r.use_original = True
            given_up += 1
            excess -= sum(map(extra, group))
            if excess <= 0:
                break
    if given_up:
        outcome.notes.append(f"the memory limit of {limit / 1e6:g} MB forbade what was derived for {given_up} distinct subprograms")


def by_worth(results: Sequence[Result]) -> list[list[Result]]:
    """Changed subprograms, equal ones together: those that take no more than the original last, the others by seconds gained per byte."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        if r.changed:
            groups.setdefault(r.subprogram.key, []).append(r)

    def worth(group: list[Result]) -> tuple[bool, float]:
        choice, more = group[0].choice, extra(group[0])
        return more <= 0, (choice.original.cost - choice.best.cost) / max(more, 1)

    return sorted(groups.values(), key=worth)


def extra(r: Result) -> int:
    """Bytes of weights and temporaries of the chosen candidate beyond those of the original."""
    return held(r.choice.best.build) - held(r.choice.original.build)


def held(build: Build) -> int:
    """Bytes of the constants that are computed for it, and of its temporaries."""
    return BYTES * (sum(prod(s.shape) for s in build.weights.values()) + sum(b.size for b in build.temporaries.values()))
