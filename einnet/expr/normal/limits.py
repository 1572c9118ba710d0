"""How a normal form is made, and how much of it may be: what is out of reach or out of time, and which of two ways the order of numbers is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

from einnet.expr.nodes import Scope
from einnet.expr.normal.terms import Term

MOST_TERMS = 512


class OutOfReach(Exception):
    """The expression expands to more terms than the normal form handles, or to itself."""


_BENDS: ContextVar[bool] = ContextVar("bends", default=False)


@contextmanager
def by_bends() -> Iterator[None]:
    """Within, normal forms have maxima, minima and comparisons by where they bend (`einnet.expr.normal.piecewise`), and not as lattices (`order`).

    Each of the two proves what the other does not: common shifts and scales, compositions along one direction, and what leaves a reduction here,
    maxima of minima there.
    """
    token = _BENDS.set(True)
    try:
        yield
    finally:
        _BENDS.reset(token)


_LEFT: ContextVar[list[int] | None] = ContextVar("left", default=None)


@contextmanager
def at_most(terms: int) -> Iterator[None]:
    """Within, what takes more canonical terms than so many, all together, is out of reach; what is known already takes none."""
    token = _LEFT.set([terms])
    try:
        yield
    finally:
        _LEFT.reset(token)


_SETTLING: ContextVar[frozenset[Scope]] = ContextVar("settling", default=frozenset())


@contextmanager
def settling(form: Scope) -> Iterator[None]:
    """Within, what a reduction became is expanded. Raises OutOfReach where that is under way: the reductions in it lead back to itself.

    In which direction the sums of a reduction run is told by its text, and what leaves it is told by how it is written: two forms of one may each
    be a multiple of the other. No such form is ever finished, whichever of them is asked for first, so that what is known already has no say.
    """
    known = _SETTLING.get()
    if form in known:
        raise OutOfReach("a reduction whose forms lead to each other")
    token = _SETTLING.set(known | {form})
    try:
        yield
    finally:
        _SETTLING.reset(token)


class OutOfTime(Exception):
    """A normal form was not made in time: nothing is known of the expression, and what is made another time may be."""


_UNTIL: ContextVar[float] = ContextVar("until", default=inf)


@contextmanager
def until(moment: float) -> Iterator[None]:
    """Within, no more normal forms are made once time.monotonic() is a moment, or that of a block around it."""
    token = _UNTIL.set(min(moment, _UNTIL.get()))
    try:
        yield
    finally:
        _UNTIL.reset(token)


def one_less() -> None:
    """Count a canonical term. Raises OutOfReach where no more are allowed, and OutOfTime where it is too late."""
    moment = _UNTIL.get()
    if moment < inf and time.monotonic() >= moment:
        raise OutOfTime("no time is left for a normal form")
    left = _LEFT.get()
    if left is None:
        return
    left[0] -= 1
    if left[0] < 0:
        raise OutOfReach("too many terms on the way")


def bending() -> bool:
    """Whether normal forms are made by bends here."""
    return _BENDS.get()


def limited(terms: list[Term]) -> list[Term]:
    """The same terms. Raises OutOfReach where they are too many."""
    if len(terms) > MOST_TERMS:
        raise OutOfReach(f"more than {MOST_TERMS} terms")
    return terms
