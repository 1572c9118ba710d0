"""What is written as JSON and read back, as records with typed fields. The library that checks and converts them is reached through this module."""

from __future__ import annotations

import json
import numbers
from typing import Annotated, Any, TypeVar, dataclass_transform

import msgspec
import numpy as np

T = TypeVar("T")
R = TypeVar("R", bound="Record")

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
"""Numbers that are checked as they are read: neither NaN nor truth values are among them."""


def added(value: Any) -> Any:
    """A field that older files do not have: this value is taken for them, and it is always written."""
    return msgspec.field(default_factory=lambda: value)


def renamed(name: str) -> Any:
    """A field whose name in the file is a word of Python."""
    return msgspec.field(name=name)


class _Kind(msgspec.StructMeta):
    """Makes every class of records what `Record` says, so that none has to repeat it."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], frozen: bool = True) -> Any:
        return super().__new__(cls, name, bases, namespace, frozen=frozen, kw_only=True, omit_defaults=True)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field, added, renamed))
class Record(msgspec.Struct, metaclass=_Kind, frozen=True):
    """A record, frozen: its fields in the order in which they are written. One that is None by default is left out where it is None."""


def read(kind: type[T], value: object) -> T:
    """A JSON value as a record, a dataclass or what else `kind` says; fields that it does not have are passed over.

    Raises ValueError, which says where, for a value that is none.
    """
    return msgspec.convert(value, kind)


def read_text(kind: type[T], text: str | bytes) -> T:
    """The same of a text. Python's own reader takes NaN and infinities, which standard JSON does not have."""
    return read(kind, json.loads(text))


def as_json(value: object) -> Any:
    """Records and dataclasses as mappings, sequences as lists, anything else that JSON does not have by its text."""
    return json_form(msgspec.to_builtins(value, str_keys=True, enc_hook=_told))


def _told(value: object) -> Any:
    """A number of a class of its own, as those of numpy are, as Python's; anything else by its text."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)


def json_form(value: Any) -> Any:
    """Tuples as lists."""
    if isinstance(value, dict):
        return {name: json_form(v) for name, v in value.items()}
    return [json_form(v) for v in value] if isinstance(value, (list, tuple)) else value


def as_text(value: object, indent: int | None = 1) -> str:
    """The text of `as_json`, as files hold it."""
    return json.dumps(as_json(value), ensure_ascii=False, indent=indent)


def changed(record: R, **fields: Any) -> R:
    """The record with other values of some fields."""
    return msgspec.structs.replace(record, **fields)


def fields_of(record: Record) -> dict[str, Any]:
    """The values by field, those that are records left as they are."""
    return msgspec.structs.asdict(record)
