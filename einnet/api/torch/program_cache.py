"""Programs of earlier processes, in the cache folder: a part that was optimized once is loaded and not searched again.

The name of a file is a digest of what the part computes (weights included), of the settings, of the machine and of all versions that decide. The
oldest go where they take more than `LIMIT`. They hold machine code: the folder is as trusted as the user's own programs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from einnet import environment
from einnet.errors import ArtifactError
from einnet.records import as_json
from einnet.search.settings import Settings

if TYPE_CHECKING:
    from einnet.api.load import Stored
    from einnet.compile.target import Optimization

FOLDER = "torch"
LIMIT = 8 << 30
"""Bytes of all programs together."""

ASIDE = ("fresh", "progress", "workers", "scheduler")
"""Settings that do not decide what is found."""


def path_of(digest: str, settings: Settings, seconds: float) -> Path:
    """Where the program of a part stands, if it does, of a graph that has so many seconds."""
    from einnet.evidence.report.versions import versions
    from einnet.runtime import machine
    from einnet.search.recall import search_version

    asked = {f.name: repr(getattr(settings, f.name)) for f in fields(settings) if f.name not in ASIDE}
    key = [digest, asked, seconds, search_version(), versions(), torch.__version__, as_json(machine.description())]
    name = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=16).hexdigest()
    return environment.cache() / FOLDER / f"{name}.einnet"


def recalled(path: Path) -> Stored | None:
    """The program that stands there, None where none does that can be read."""
    from einnet.api.load import load

    if not path.exists():
        return None
    try:
        found = load(path)
    except ArtifactError:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return found


def remember(result: Optimization, path: Path) -> str | None:
    """Write a program, and let the oldest go; why it could not be written, None where it was."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        result.save(path)
        trim(path.parent, LIMIT)
    except (ArtifactError, OSError) as error:
        return str(error)
    return None


def trim(folder: Path, limit: int) -> None:
    """Remove what was used longest ago until the programs of a folder take no more than `limit` bytes. Others may remove them at the same time."""
    found = []
    for file in folder.glob("*.einnet"):
        with contextlib.suppress(OSError):
            state = file.stat()
            found.append((state.st_mtime, state.st_size, file))
    total = sum(size for _, size, _ in found)
    for _, size, file in sorted(found)[:-1]:
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            file.unlink()
        total -= size
