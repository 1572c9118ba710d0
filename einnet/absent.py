"""Libraries that another one would import although nobody here asks for them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Absent:
    """A finder of modules that says of one library, to one thread, that there is none."""

    def __init__(self, library: str) -> None:
        self._library, self._thread = library, threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """None: others are asked. Raises ModuleNotFoundError for the library."""
        if name.partition(".")[0] == self._library and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not to be imported here", name=name)
        return None


@contextmanager
def absent(library: str) -> Iterator[None]:
    """What this thread imports does not find the library, unless it is imported already: a library that can do without it does.

    TVM imports torch where it is installed, to convert tensors: three times as long as TVM itself takes, and 200 MB.
    """
    if library in sys.modules:
        yield
        return
    finder = _Absent(library)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
