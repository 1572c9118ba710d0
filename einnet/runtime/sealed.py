"""Files that are written whole or not at all and read with a digest: a magic number, the digest of what follows, a zip archive."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from einnet.errors import ArtifactError
from einnet.runtime.files import replacing

_MAGIC, _DIGEST = b"EINNET\x01\n", 32
_PART = 1 << 20
"""Bytes that are digested at once."""


@contextmanager
def sealed_archive(target: Path) -> Iterator[zipfile.ZipFile]:
    """An archive that stands at `target` when the block is over, behind the magic number and its digest, whole or not at all. What is written goes to
    the disk at once: it is not in memory, too. Raises ArtifactError."""
    first = len(_MAGIC) + _DIGEST
    try:
        with replacing(target) as draft, draft.open("wb+") as file:
            file.write(bytes(first))
            with zipfile.ZipFile(_Behind(file, first), "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]
                yield archive
            digest = hashlib.sha256()
            file.seek(first)
            while part := file.read(_PART):
                digest.update(part)
            file.seek(0)
            file.write(_MAGIC + digest.digest())
    except OSError as e:
        raise ArtifactError(f"{target} cannot be written: {e.strerror or e}") from e


class _Behind:
    """A file from some place on, for writing."""

    def __init__(self, file: IO[bytes], begin: int) -> None:
        self._file, self._begin = file, begin
        self.write, self.flush = file.write, file.flush

    def tell(self) -> int:
        return self._file.tell() - self._begin

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset + (self._begin if whence == io.SEEK_SET else 0), whence) - self._begin

    def seekable(self) -> bool:
        return True


def write_sealed(target: Path, data: memoryview) -> None:
    """Write bytes behind the magic number and their digest, whole or not at all. Raises ArtifactError."""
    try:
        with replacing(target) as draft, draft.open("wb") as file:
            file.write(_MAGIC + hashlib.sha256(data).digest())
            file.write(data)
    except OSError as e:
        raise ArtifactError(f"{target} cannot be written: {e.strerror or e}") from e


class _Body(io.RawIOBase):
    """An open file from some place on, read by position: threads and forked processes do not move each other."""

    def __init__(self, source: Path, begin: int) -> None:
        self._file, self._begin, self._at = source.open("rb", buffering=0), begin, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._at, os.fstat(self._file.fileno()).st_size - self._begin)[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._file.fileno(), [buffer], self._begin + self._at)
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def open_sealed(source: Path) -> zipfile.ZipFile:
    """The archive that `write_sealed` wrote, read from the open file. Raises ArtifactError as `read_sealed` does."""
    digest, first = hashlib.sha256(), len(_MAGIC) + _DIGEST
    try:
        with source.open("rb") as file:
            head = file.read(first)
            while part := file.read(_PART):
                digest.update(part)
        _check_seal(source, head, digest.digest())
        return zipfile.ZipFile(_Body(source, first))
    except OSError as e:
        raise ArtifactError(f"{source} cannot be read: {e.strerror or e}") from e
    except zipfile.BadZipFile as e:
        raise ArtifactError(f"{source} cannot be read: {e}") from e


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Inside the block the content of a file is read: what is written by somebody else fails in many ways, all of them told as ArtifactError."""
    try:
        yield
    except ArtifactError:
        raise
    except Exception as e:
        raise ArtifactError(f"{source} cannot be read: {e or type(e).__name__}") from e


def peek(source: Path) -> frozenset[str]:
    """What the manifest of an archive names, its digest not checked yet: it says which reader takes it. Nothing where it cannot be read."""
    try:
        with zipfile.ZipFile(source) as archive:
            return frozenset(json.loads(archive.read("manifest.json")))
    except Exception:  # what is written by somebody else fails in many ways
        return frozenset()


def seal(source: Path) -> str:
    """The first 16 hex digits of the digest that a sealed file has. Raises ArtifactError where it cannot be read."""
    try:
        with source.open("rb") as file:
            return file.read(len(_MAGIC) + _DIGEST)[len(_MAGIC) :].hex()[:16]
    except OSError as e:
        raise ArtifactError(f"{source} cannot be read: {e.strerror or e}") from e


def read_sealed(source: Path) -> memoryview:
    """What `write_sealed` wrote. Raises ArtifactError if the file is missing, damaged, or none of this format."""
    try:
        data = source.read_bytes()
    except OSError as e:
        raise ArtifactError(f"{source} cannot be read: {e.strerror or e}") from e
    first = len(_MAGIC) + _DIGEST
    body = memoryview(data)[first:]
    _check_seal(source, data[:first], hashlib.sha256(body).digest())
    return body


def _check_seal(source: Path, head: bytes, digest: bytes) -> None:
    if head[: len(_MAGIC)] != _MAGIC:
        raise ArtifactError(f"{source} is no program of this version of einnet (the file does not start with {_MAGIC[:6].decode()})")
    if digest != head[len(_MAGIC) :]:
        raise ArtifactError(f"{source} is damaged or incomplete: its content does not match its digest")
