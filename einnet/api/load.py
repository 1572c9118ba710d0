"""Stored programs of every target: what `einnet.load` reads and `einnet run` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Union

from einnet.compile.grid.served import GridProgram
from einnet.compile.ranges.served import RangedProgram
from einnet.compile.targets import registry
from einnet.compile.targets.cuda.stored import StoredCuda
from einnet.compile.targets.stored import StoredProgram
from einnet.errors import ArtifactError
from einnet.runtime.pool import GRID, RANGED
from einnet.runtime.sealed import peek

Stored = Union[StoredProgram, RangedProgram, GridProgram, StoredCuda]


def load(path: str | Path) -> Stored:
    """Read a stored program, for one size or ranges of them, for whatever target.

    Raises ArtifactError for a file that is missing, damaged or no program. The file contains machine code: load only what you trust.
    """
    names = peek(Path(path))
    reader = RangedProgram if RANGED in names else GridProgram if GRID in names else registry.load
    stored: Stored = reader(Path(path))
    return stored


def load_told(path: str | Path) -> Stored:
    """Read a stored program with the report of its making. Raises ArtifactError as `load` does, and for a program for CUDA without a report."""
    stored = load(path)
    if isinstance(stored, StoredCuda) and not isinstance(stored.report.get("subprograms"), list):
        raise ArtifactError(f"{path} holds a program for a CUDA device but no report of an optimization: it can be run, and no more is known of it")
    return stored


def load_one(path: str | Path) -> StoredProgram | StoredCuda:
    """The same for one size. Raises ArtifactError for a program that serves a range of sizes, too."""
    stored = load_told(path)
    return registry.load(Path(path)) if isinstance(stored, (RangedProgram, GridProgram)) else stored
