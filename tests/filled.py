"""Records of which a test says a part: what it leaves out is empty, 0 or None."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from einnet.records import Record, read

R = TypeVar("R", bound=Record)


def filled(kind: type[R], given: dict[str, Any]) -> R:
    """The record with these values, by the names in the file; those of records in it may leave out fields, too."""
    return read(kind, whole(kind, given))


def whole(kind: Any, given: Any) -> Any:
    """A JSON value of a type, completed."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        others = [part for part in parts if part is not NoneType]
        return None if given is None else whole(others[0], given)
    if origin is list:
        return [whole(parts[0], value) for value in given or ()]
    if origin is dict:
        return {name: whole(parts[1], value) for name, value in (given or {}).items()}
    if not (isinstance(kind, type) and issubclass(kind, Record)):
        return kind() if given is None and kind in (str, int, float, bool) else given
    hints = get_type_hints(kind)
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__))
    return {name: whole(hints[field], (given or {}).get(name)) for field, name in names.items()}
