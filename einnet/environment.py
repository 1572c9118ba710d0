"""What a user can set in the environment. There are no other variables.

| variable | meaning |
|---|---|
| `EINNET_DEBUG` | 1 shows the traceback of an error |
| `EINNET_CACHE` | folder of the profile database |
| `EINNET_BACKEND` | backend where none is named |
| `EINNET_DNNL` | path of a oneDNN 3 shared library |
"""

from __future__ import annotations

import os
from pathlib import Path

from einnet.errors import UsageError


def _level(name: str, default: int, highest: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) > highest:
        raise UsageError(f"{name}={text}: expected an integer from 0 to {highest}")
    return int(text)


def debug() -> int:
    """`EINNET_DEBUG`, 0 by default."""
    return _level("EINNET_DEBUG", 0, 1)


def backend() -> str:
    """`EINNET_BACKEND`, "cpu" by default."""
    return os.environ.get("EINNET_BACKEND") or "cpu"


def dnnl() -> str | None:
    """`EINNET_DNNL`, None if unset."""
    return os.environ.get("EINNET_DNNL") or None


def cache() -> Path:
    """`EINNET_CACHE`, else `einnet` in the user's cache folder (XDG_CACHE_HOME, ~/.cache). The folder need not exist."""
    given = os.environ.get("EINNET_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "einnet"
