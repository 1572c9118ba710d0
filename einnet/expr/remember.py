"""What is asked of an immutable value again and again is computed once: it is no part of the value, and neither compared nor stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T", bound="Hashed")
V = TypeVar("V")

remember = object.__setattr__
"""Put what was computed beside an immutable value."""


class Hashed:
    """A value with room for its hash."""

    __slots__ = ("_hash",)
    _hash: int


def hashed_once(cls: type[T]) -> type[T]:
    """The class with the hash of each of its values computed once."""
    compute = cls.__hash__

    def remembered(self: Hashed) -> int:
        try:
            return self._hash
        except AttributeError:
            found = compute(self)
            remember(self, "_hash", found)
            return found

    cls.__hash__ = remembered  # type: ignore[assignment, method-assign]
    return cls


def setters(cls: type) -> tuple[Callable[[object, object], None], ...]:
    """What sets each slot of a class, also where it is frozen: `dataclass` does that by name, in twice the time."""
    return tuple(vars(cls)[name].__set__ for name in cls.__slots__)  # type: ignore[attr-defined]


def hashed_in_slot(cls: type[V]) -> type[V]:
    """The class with the hash of each of its values computed once: `_hash` is None until then, where a slot without a value (`hashed_once`) would
    make the first look an exception."""
    compute = cls.__hash__

    def remembered(self: Any) -> int:
        found: int | None = self._hash
        if found is None:
            found = compute(self)
            remember(self, "_hash", found)
        return found

    cls.__hash__ = remembered  # type: ignore[method-assign]
    return cls


class kept(Generic[V]):
    """A property of a scope that is computed once (`functools.cached_property` without its lock: computed twice, it is the same)."""

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self.compute, self.__doc__, self.name = compute, compute.__doc__, compute.__name__

    @overload
    def __get__(self, scope: None, owner: type) -> kept[V]: ...

    @overload
    def __get__(self, scope: object, owner: type) -> V: ...

    def __get__(self, scope: object, owner: type) -> kept[V] | V:
        if scope is None:
            return self
        found = scope.__dict__[self.name] = self.compute(scope)
        return found
