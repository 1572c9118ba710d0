"""What lies in a file and is read there when it is needed: weights on the memory of a file, and whole models."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Union

import numpy as np

from einnet.errors import ModelError

PART = 1 << 24
"""Bytes that are read at once."""


class FileMemory(mmap.mmap):
    """The bytes of a file as memory that is read when it is needed. The file stays open: it may be replaced or removed, but not written."""

    path: Path
    file: IO[bytes]
    stamp: tuple[int, int]

    def __del__(self) -> None:
        """Close the file, which nobody else has."""
        if hasattr(self, "file"):
            self.file.close()

    def check(self) -> None:
        """Raise ModelError where the file was written since."""
        if stamp(os.fstat(self.file.fileno())) != self.stamp:
            raise ModelError(f"{self.path} has changed since it was optimized")


def stamp(found: os.stat_result) -> tuple[int, int]:
    """When a file was written, in nanoseconds, and how many bytes it has."""
    return found.st_mtime_ns, found.st_size


def memory_of(path: Path) -> FileMemory:
    """The bytes of a file. Raises OSError, and ValueError for an empty one."""
    file = path.open("rb")
    memory = FileMemory(file.fileno(), 0, access=mmap.ACCESS_READ)
    memory.path, memory.file, memory.stamp = path.absolute(), file, stamp(os.fstat(file.fileno()))
    return memory


Pieces = Iterator[Union[bytes, memoryview]]


@dataclass(frozen=True)
class ModelFile:
    """A serialised model in a file, as it was at some time; or one whose weights lie in others, of which `pieces` are the serialisation."""

    path: Path
    stamp: tuple[int, int]
    memory: FileMemory = field(compare=False, repr=False)
    others: tuple[FileMemory, ...] = field(default=(), compare=False, repr=False)
    pieces: Callable[[], Pieces] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def at(cls, path: Path, others: tuple[FileMemory, ...] = (), pieces: Callable[[], Pieces] | None = None) -> ModelFile:
        """The model that is there now. Raises OSError."""
        memory = memory_of(path)
        return cls(memory.path, memory.stamp, memory, others, pieces)

    def source(self) -> Path | bytes:
        """Where it is, or if another stands there now its bytes. Raises ModelError where it was written since."""
        files = ((self.path, self.stamp), *((memory.path, memory.stamp) for memory in self.others))
        same = all(path.exists() and stamp(path.stat()) == known for path, known in files)
        return self.path if same else self.read()

    def read(self) -> bytes:
        """Its bytes, read from the file and not by its memory, which would hold them once more. Raises ModelError where it was written since."""
        if self.pieces is not None:
            return b"".join(self.looked_through())
        self.memory.check()
        parts, left = list[bytes](), len(self.memory)
        while left:  # the system gives 2 GB at a time
            parts.append(os.pread(self.memory.file.fileno(), left, len(self.memory) - left))
            if not parts[-1]:
                break
            left -= len(parts[-1])
        self.memory.check()
        return b"".join(parts)

    def looked_through(self) -> Pieces:
        """Its bytes in pieces, each of which is let go before the next one. Raises ModelError where it was written since."""
        for memory in (self.memory, *self.others):
            memory.check()
        if self.pieces is not None:
            yield from self.pieces()
        else:
            data = memoryview(self.memory)
            for at in range(0, len(data), PART):
                yield data[at : at + PART]
                release(self.memory)
        for memory in (self.memory, *self.others):
            memory.check()


def model_bytes(model: bytes | ModelFile) -> bytes:
    """A serialised model itself. Raises ModelError as `ModelFile.read` does."""
    return model.read() if isinstance(model, ModelFile) else model


def model_key(model: bytes | ModelFile) -> str:
    """32 hex digits of a serialised model, wherever it is. Raises ModelError as `ModelFile.read` does."""
    if isinstance(model, bytes):
        return hashlib.blake2b(model, digest_size=16).hexdigest()
    found = hashlib.blake2b(digest_size=16)
    for piece in model.looked_through():
        found.update(piece)
    return found.hexdigest()


def file_memory(values: np.ndarray[Any, np.dtype[Any]] | memoryview) -> FileMemory | None:
    """The memory of a file on which values lie; None where they lie elsewhere."""
    held: object = values
    while isinstance(held, np.ndarray):
        held = held.base
    held = held.obj if isinstance(held, memoryview) else held
    return held if isinstance(held, FileMemory) else None


def still_there(weights: Iterable[np.ndarray[Any, np.dtype[Any]]]) -> None:
    """Raise ModelError where a file in which some of the weights lie was written since: they would be others, or end the process."""
    memories = {id(memory): memory for memory in map(file_memory, weights) if memory is not None}
    for memory in memories.values():
        memory.check()


def let_go(values: np.ndarray[Any, np.dtype[Any]] | memoryview) -> None:
    """Give back the memory in which values of a file were read; they are read again when they are needed. What lies elsewhere stays."""
    memory = file_memory(values)
    if memory is not None:
        release(memory)


def release(memory: FileMemory) -> None:
    """Give back the memory in which a file was read, where the system can."""
    if hasattr(memory, "madvise"):
        memory.madvise(mmap.MADV_DONTNEED)
