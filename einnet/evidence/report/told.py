"""What a check says of where it stands while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Tell = Callable[[str], None]
"""Takes in words what is being checked."""


def silent(_: str) -> None:
    """Nothing is said."""


def each(items: Sequence[T], what: str, tell: Tell) -> Iterator[T]:
    """The items, one after the other: `kernel 3 of 20`."""
    for n, item in enumerate(items, 1):
        tell(f"{what} {n} of {len(items)}")
        yield item
