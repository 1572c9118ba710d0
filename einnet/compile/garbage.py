"""Cyclic garbage is collected between subprograms, not during them.

Exploring makes objects by the million and drops few of them in cycles, so a collection on the way goes through everything that is alive, for
nothing. What a search leaves behind, a space of groups and members, is all cycles: it is collected when a subprogram is done, among the objects
made since the last one alone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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


def collect() -> None:
    """Free the garbage among the objects that were made since the last call."""
    gc.collect(0)
