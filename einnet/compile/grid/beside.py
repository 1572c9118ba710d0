"""Plans that were made when their sizes were first used: a folder beside the artifact, `NAME.einnet.plans`, with a stored program for each."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from einnet.compile.grid.domain import Sizes, key, sizes_of
from einnet.compile.targets.stored import StoredProgram, load
from einnet.errors import ArtifactError
from einnet.runtime.sealed import seal

if TYPE_CHECKING:
    from einnet.compile.target import Optimization

MOST = 32
"""Plans that are kept: where there are more, the one that was not used for longest goes. Each has weights of its own."""


class Beside:
    """The folder of an artifact's later plans. Those of another artifact that stood at the same path are not taken: their names tell its digest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.with_name(f"{path.name}.plans")

    @cached_property
    def _seal(self) -> str:
        return seal(self.path)

    def file(self, sizes: Sizes) -> Path:
        """Where the plan for some sizes is kept."""
        return self.folder / f"{self._seal}-{key(sizes)}.einnet"

    @property
    def sizes(self) -> list[Sizes]:
        """The sizes of which there is a plan."""
        named = re.compile(rf"{self._seal}-(\d+(?:x\d+)*)\.einnet")
        return sorted(sizes_of(m[1]) for f in self.folder.glob("*.einnet") if (m := named.fullmatch(f.name)))

    def plan(self, sizes: Sizes, make: Callable[[], Optimization]) -> StoredProgram:
        """The plan for some sizes, from the folder, or made and kept there; where the folder cannot be written, in this process alone."""
        file = self.file(sizes)
        with suppress(ArtifactError):  # none, or one that was damaged: it is made again
            found = load(file)
            with suppress(OSError):
                os.utime(file)
            return found
        made = make()
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True)
        try:
            made.save(file)
        except ArtifactError:
            return unkept(made)
        self.tidy()
        return load(file)

    def tidy(self) -> None:
        """Remove what was not used for longest, beyond the most that is kept, and what belongs to an artifact that is no longer there."""
        with suppress(OSError):
            files = sorted(self.folder.glob("*.einnet"), key=lambda f: (f.name.startswith(f"{self._seal}-"), f.stat().st_mtime_ns))
            for file in files[: max(len(files) - MOST, 0)]:
                file.unlink(missing_ok=True)


def unkept(made: Optimization) -> StoredProgram:
    """A plan that no file keeps."""
    with tempfile.TemporaryDirectory() as folder:
        return load(made.save(Path(folder) / "plan.einnet"))
