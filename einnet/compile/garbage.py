"""Cyclic garbage is collected between subprograms, not during them.

Exploring makes objects by the million and drops few of them in cycles, so a collection on the way goes through everything that is alive, for
nothing. What a search leaves behind, a space of groups and members, is all cycles: it is collected when a subprogram is done, among the objects
made since the last one alone.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from einnet.graph.in_file import let_go
from einnet.runtime.capacity import give_back, given_back_at_once

LARGE = 1 << 26
"""Bytes of weights from which on it is worth looking for what holds as many."""


@contextmanager
def collection_on_demand() -> Iterator[None]:
    """Garbage is collected where `collect` is called; afterwards again as before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def letting_go(weights: Collection[np.ndarray]) -> Iterator[None]:
    """With a model of many bytes of weights: what was read of it goes first, as its nodes hold each other, and the weights; and what is freed on the
    way goes back to the system."""
    much = large(weights)
    let_all_go(weights)
    if much:
        gc.collect()
    with given_back_at_once(much):
        if much:
            give_back()
        yield
    if much:
        give_back()


def large(weights: Iterable[np.ndarray]) -> bool:
    """There are so many bytes of weights."""
    return sum(value.nbytes for value in weights) >= LARGE


def let_all_go(weights: Collection[np.ndarray]) -> None:
    """What was read of weights in a file is there no longer."""
    for value in weights:
        let_go(value)


def collect() -> None:
    """Free the garbage among the objects that were made since the last call."""
    gc.collect(0)
