"""The targets by name: the one place that lists them. A target's modules are imported when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from einnet.compile.target import Target
from einnet.errors import UsageError
from einnet.runtime.sealed import peek
from einnet.search.settings import Settings


@dataclass(frozen=True)
class Registered:
    """Where a target is defined.

    `made` is a module with `target(settings, **options)`: the target of some settings and of what is asked for beside them. `stored` is a module
    with `load(path)`, which reads a program that was stored for it and raises ArtifactError for a file that is missing, damaged or no program;
    `entry` is what the manifests of such files have and no others; those of programs for the processor need none.
    """

    made: str
    stored: str
    entry: str | None = None


TARGETS = {
    "cpu": Registered("einnet.compile.targets.cpu.target", "einnet.compile.targets.stored"),
    "cuda": Registered("einnet.compile.targets.cuda.target", "einnet.compile.targets.cuda.stored", "cuda"),
    "onnx": Registered("einnet.compile.targets.onnx.target", "einnet.compile.targets.stored"),
}


def target_of(settings: Settings, **options: Any) -> Target[Any]:
    """The target that settings ask for. Raises UsageError for what it does not have, BackendError for a missing library."""
    if settings.backend not in TARGETS:
        raise UsageError(f"backend {settings.backend!r} is not one of {', '.join(t for t in TARGETS if t != 'onnx')}")
    name = "onnx" if settings.target == "onnx" else settings.backend
    made: Target[Any] = import_module(TARGETS[name].made).target(settings, **options)
    return made


def load(path: Path) -> Any:
    """A stored program of any target. Raises ArtifactError for a file that is missing, damaged or no program."""
    names = peek(path)
    found = next((t for t in TARGETS.values() if t.entry and t.entry in names), TARGETS["cpu"])
    return import_module(found.stored).load(path)
