"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a file at that stands at `path` when the block is over, on the disk; where the block raises, all stays as it was.

    It lies in a folder of its own beside `path`: other files that are written there come along, before it. Raises OSError.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:40]}.") as folder:
        draft = Path(folder) / path.name
        yield draft
        for file in sorted(Path(folder).iterdir(), key=lambda f: f == draft):
            with file.open("r+b") as written:
                os.fsync(written.fileno())
            file.replace(path.with_name(file.name))
