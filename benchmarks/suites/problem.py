"""One program of a suite: a module, and how its inputs are drawn."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Value = Any
"""A tensor, or what else a module takes and gives."""


@dataclass(frozen=True)
class Task:
    """What is to be run: a problem of a suite, and how its sizes are changed, if at all."""

    suite: str
    name: str
    path: Path
    largest: int | None = None
    fit: bool = False


@dataclass(frozen=True)
class Problem:
    """A module on the processor, in the mode in which its suite runs it.

    `inputs` draws its arguments by a seed; `tolerances` are those of its suite: name -> (atol, rtol).
    """


    module: Any
    inputs: Callable[[int], Sequence[Value]]
    tolerances: dict[str, tuple[float, float]]
    changed: list[str] = field(default_factory=list)
    """What is not as the suite has it, in words."""

    told: dict[str, Any] = field(default_factory=dict)
    """What its row says besides: the form of its sizes, and the work that was counted."""


class Unusable(Exception):
    """A problem that cannot be run here as it is; says why."""


class Suite(Protocol):
    """A module that reads a suite."""

    def tasks(self, folder: Path) -> dict[str, Path]:
        """The problems of a copy of the suite by name, in its order."""

    def load(self, task: Task) -> Problem:
        """One of them. Raises Unusable."""


def suite(name: str) -> Suite:
    """A suite's reader by the name of its package."""
    found: Suite = importlib.import_module(f"benchmarks.{name}.load")  # type: ignore[assignment]
    return found


def digest(path: Path) -> str:
    """Of a problem's files: what a result belongs to."""
    state = hashlib.blake2b(digest_size=8)
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        state.update(file.read_bytes())
    return state.hexdigest()
