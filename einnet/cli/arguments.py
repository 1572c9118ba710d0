"""Arguments with a syntax of their own."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from einnet.errors import UsageError

Name = TypeVar("Name")
Value = TypeVar("Value")


def names(text: str) -> tuple[str, ...]:
    """`a,b`"""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"expected names separated by commas, not {text!r}")
    return found


def size(text: str) -> int:
    """`1500000000`, `1500M`, `1.5G`: bytes, with decimal prefixes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMG]?)B?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes: expected 500M or 1.5G")
    return int(float(match[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[match[2].upper()])


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`name=1x3x224x224`; the name may hold any character, a scalar's shape is empty."""
    name, equals, sizes = text.rpartition("=")
    if not equals or not name or not re.fullmatch(r"(\d+(x\d+)*)?", sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape: expected name=1x3x224x224")
    return name, tuple(int(n) for n in sizes.split("x") if n)


def error(text: str) -> tuple[str | None, float]:
    """`1e-2`, or `name=1e-2`: of one output."""
    name, equals, number = text.rpartition("=")
    try:
        return (name if equals else None), float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no error: expected 1e-2, or output=1e-2") from None


def once(pairs: Sequence[tuple[Name, Value]], told: Callable[[Name], str]) -> dict[Name, Value]:
    """The values by name. Raises UsageError, which says what is `told` of it, for a name that is given twice."""
    found: dict[Name, Value] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(told(name))
        found[name] = value
    return found


def assignment(text: str) -> str:
    """`name=file`; where the name ends is known only with the program's input names."""
    if "=" not in text.strip("="):
        raise argparse.ArgumentTypeError(f"{text!r} is no input: expected name=file.npy")
    return text
