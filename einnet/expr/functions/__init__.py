"""The scalar functions of the language: one record for each, found in `library`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

from einnet.expr.functions import library
from einnet.expr.functions.record import ScalarFunction


def _records() -> Iterator[ScalarFunction]:
    for module in iter_modules(library.__path__):
        for value in vars(import_module(f"{library.__name__}.{module.name}")).values():
            if isinstance(value, ScalarFunction):
                yield value


def _by_name(records: Iterator[ScalarFunction]) -> dict[str, ScalarFunction]:
    found: dict[str, ScalarFunction] = {}
    for f in records:
        if found.setdefault(f.name, f) is not f:
            raise ValueError(f"two functions are called {f.name}")
    return found


FUNCTIONS: Mapping[str, ScalarFunction] = _by_name(_records())
"""Every function by name."""


def named(**facts: object) -> frozenset[str]:
    """The functions of which these facts hold, each a field of the record with its value."""
    return frozenset(f.name for f in FUNCTIONS.values() if all(getattr(f, key) == value for key, value in facts.items()))


KEEPS_ZERO = named(keeps_zero=True)
"""Functions with f(0) = 0."""

PARTIAL = frozenset(f.name for f in FUNCTIONS.values() if f.exists is not None)
"""Functions without a value at some numbers."""
