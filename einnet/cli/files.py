"""Files that commands read and write. What is written is whole or not there."""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from einnet.cli.arguments import once
from einnet.errors import UsageError
from einnet.evidence.report.plain import plain
from einnet.runtime.files import replacing


def check_writable(path: Path) -> None:
    """Raise UsageError unless a file can be put at `path`. Leaves nothing behind."""
    if path.is_dir():
        raise UsageError(f"{path}: cannot be written (it is a folder)")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: cannot be written (it is no regular file)")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:40]}."):
            pass
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that nobody sees half of. Raises UsageError where that fails."""
    check_writable(path)
    try:
        with replacing(path) as draft, draft.open("wb") as file:
            write(file)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from error


def is_file(path: Path) -> bool:
    """There is such a file; a text that is no name is none."""
    try:
        return path.is_file()
    except OSError:  # an expression may be too long for a name
        return False


def is_program(path: Path) -> bool:
    """The file is an archive, as stored programs are."""
    return is_file(path) and zipfile.is_zipfile(path)


def read_text(path: str) -> str:
    """A text file, or standard input for "-". Raises UsageError."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError:
        hint = "; it is a model, and `einnet optimize` makes a program of it" if Path(path).suffix == ".onnx" else ""
        raise UsageError(f"{path}: not a text file in UTF-8{hint}") from None


def subject_text(subject: str) -> str:
    """An expression or a derivation as text: of a file, of standard input for "-", or the argument itself.

    Raises UsageError for what is neither a file nor an expression.
    """
    if subject == "-" or is_file(Path(subject)):
        return read_text(subject)
    if subject.strip() and "[" not in subject:
        raise UsageError(f"{subject!r} is neither a file nor an expression; an expression is L[i<4] A[i] or so")
    return subject


def write_json(target: str, data: object) -> None:
    """JSON to a file, or to standard output for "-"."""
    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        write_whole(Path(target), lambda file: file.write(text.encode()))


def read_array(path: Path) -> np.ndarray[Any, Any]:
    """A .npy file. Raises UsageError."""
    try:
        value = np.load(path, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path}: not a .npy file of numbers, or a truncated one") from error
    if not isinstance(value, np.ndarray):
        raise UsageError(f"{path}: holds several arrays; expected one, as numpy.save writes it")
    return value


def read_arrays(given: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of `name=file` arguments; a name may hold an equals sign, the file's may not. Raises UsageError."""
    pairs = [text.rpartition("=") for text in given]
    paths = once([(name, Path(file)) for name, _, file in pairs], lambda name: f"--input {name} is given twice")
    return {name: read_array(path) for name, path in paths.items()}
