"""What is written as JSON and read back, as records with typed fields. The library that checks and converts them is reached through this module."""

from __future__ import annotations

import json
from typing import Any, TypeVar, dataclass_transform

import msgspec

T = TypeVar("T")
R = TypeVar("R", bound="Record")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Kind(msgspec.StructMeta):
    """Makes every class of records what `Record` says, so that none has to repeat it."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        return super().__new__(cls, name, bases, namespace, frozen=True, kw_only=True, omit_defaults=True)


class Record(msgspec.Struct, metaclass=_Kind):
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
    return json_form(msgspec.to_builtins(value, str_keys=True, enc_hook=str))


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
