"""Functions that a module names and another one, above it, defines: how values are printed is no part of what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


class Late(Generic[P, R]):
    """A function without a body yet. The package that holds its definition imports it, so that it is there before anybody can call it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._function: Callable[..., Any] | None = None

    def define(self, function: F) -> F:
        """Give the function its body; for use as a decorator. Raises RuntimeError where it has one already."""
        if self._function is not None:
            raise RuntimeError(f"{self._what} is defined twice")
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the definition. Raises RuntimeError where nobody has given one."""
        if self._function is None:
            raise RuntimeError(f"{self._what} is not defined yet")
        found: R = self._function(*args, **kwargs)
        return found
