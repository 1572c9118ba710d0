"""What lies in a file and is read there when it is needed: weights on the memory of a file, and whole models."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from einnet.errors import ModelError


@dataclass(frozen=True)
class ModelFile:
    """A serialised model in a file, as it was at a time of change in nanoseconds with so many bytes."""

    path: Path
    changed: int
    nbytes: int

    @classmethod
    def at(cls, path: Path) -> ModelFile:
        """The model that is there now. Raises ModelError where none is."""
        try:
            found = path.stat()
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from error
        return cls(path.absolute(), found.st_mtime_ns, found.st_size)

    def there(self) -> Path:
        """Where it is. Raises ModelError if it has changed since, or is gone."""
        if ModelFile.at(self.path) != self:
            raise ModelError(f"{self.path} has changed since it was optimized")
        return self.path

    def read(self) -> bytes:
        """Its bytes. Raises ModelError as `there` does."""
        return self.there().read_bytes()


def model_bytes(model: bytes | ModelFile) -> bytes:
    """A serialised model itself. Raises ModelError as `ModelFile.there` does."""
    return model.read() if isinstance(model, ModelFile) else model


def model_key(model: bytes | ModelFile) -> str:
    """32 hex digits of a serialised model, wherever it is. Raises ModelError as `ModelFile.there` does."""
    if isinstance(model, bytes):
        return hashlib.blake2b(model, digest_size=16).hexdigest()
    with model.there().open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


class FileMemory(mmap.mmap):
    """The bytes of a file as memory that is read when it is needed; `source` is the file."""

    source: ModelFile


def memory_of(path: Path) -> memoryview:
    """The bytes of a file. Raises OSError, and ModelError where it is not there."""
    source = ModelFile.at(path)
    with path.open("rb") as file:
        memory = FileMemory(file.fileno(), 0, access=mmap.ACCESS_READ)
    memory.source = source
    return memoryview(memory)


def file_memory(values: np.ndarray[Any, np.dtype[Any]] | memoryview) -> FileMemory | None:
    """The memory of a file on which values lie; None where they lie elsewhere."""
    held: object = values
    while isinstance(held, np.ndarray):
        held = held.base
    held = held.obj if isinstance(held, memoryview) else held
    return held if isinstance(held, FileMemory) else None


def let_go(values: np.ndarray[Any, np.dtype[Any]] | memoryview) -> None:
    """Give back the memory in which values of a file were read; they are read again when they are needed. What lies elsewhere stays."""
    memory = file_memory(values)
    if memory is not None and hasattr(memory, "madvise"):
        memory.madvise(mmap.MADV_DONTNEED)
