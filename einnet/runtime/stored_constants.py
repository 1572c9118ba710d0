"""Constants of stored programs: flat arrays in numpy's file format, read out of an archive when they are asked for."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Iterator, Mapping
from math import prod
from typing import IO, Any

import numpy as np

from einnet.errors import ArtifactError
from einnet.graph.dtypes import dtype_name
from einnet.graph.in_file import let_go, still_there

Array = np.ndarray[Any, np.dtype[Any]]


def array_bytes(values: Array) -> bytes:
    """The values, flat, in numpy's file format."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(values).reshape(-1), allow_pickle=False)
    return buffer.getvalue()


def write_array(archive: zipfile.ZipFile, member: str, values: Array) -> None:
    """The same as a member of an archive, without another copy of the values. Raises ModelError where these lie in a file that has changed since."""
    still_there((values,))
    flat = np.ascontiguousarray(values).reshape(-1)
    with archive.open(zipfile.ZipInfo(member, time.localtime()[:6]), "w", force_zip64=flat.nbytes >= 1 << 30) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(flat))
        file.write(flat.data.cast("B") if flat.size else b"")
    let_go(values)


def array_from(data: bytes) -> Array:
    """The inverse of `array_bytes`, on the memory of `data`. Raises ValueError for another shape or an element type that programs do not have."""
    file = io.BytesIO(data)
    dtype, count = _head(file, len(data))
    return np.frombuffer(data, dtype, count, file.tell())


def _head(file: IO[bytes], nbytes: int) -> tuple[np.dtype[Any], int]:
    """Element type and number of the values that follow in a file of `nbytes`. Raises ValueError as `array_from` does."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("a constant in another version of numpy's file format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if len(shape) != 1 or dtype_name(dtype) is None:
        raise ValueError(f"a constant of type {dtype} and shape {shape}")
    count = prod(shape)
    if nbytes != file.tell() + count * dtype.itemsize:
        raise ValueError(f"a constant of {count} values in {nbytes - file.tell()} bytes")
    return dtype, count


class StoredConstants(Mapping[str, Array]):
    """The constants of a stored program by name, each read when it is asked for. Raises ArtifactError where the file has changed since.

    `numbers` are their places in the archive, `members` the files there that hold them.
    """

    def __init__(self, archive: zipfile.ZipFile, numbers: Mapping[str, int]) -> None:
        self._archive, self.members = archive, {name: f"constants/{n}.npy" for name, n in numbers.items()}

    def __getitem__(self, name: str) -> Array:
        member = self.members[name]
        try:
            return array_from(self._archive.read(member))
        except (OSError, zipfile.BadZipFile, KeyError, ValueError) as e:
            raise _unreadable(name, e) from e

    def count(self, name: str) -> int:
        """How many values a constant has. The values are not read. Raises ArtifactError for what is no constant, or in part."""
        member = self.members[name]
        try:
            with self._archive.open(member) as file:
                return _head(file, self._archive.getinfo(member).file_size)[1]
        except (OSError, zipfile.BadZipFile, KeyError, ValueError) as e:
            raise _unreadable(name, e) from e

    def __contains__(self, name: object) -> bool:
        return name in self.members

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)


def _unreadable(name: str, error: Exception) -> ArtifactError:
    return ArtifactError(f"constant {name} of a stored program cannot be read: {error}")


def count(constants: Mapping[str, Array], name: str) -> int:
    """How many values a constant has; nothing is read for it where they are in a file."""
    return constants.count(name) if isinstance(constants, StoredConstants) else constants[name].size
