"""Models without the weights: what is large of these stays in the file, beside it, or where else it is, and is read there where it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from einnet.graph.dtypes import dtype_name
from einnet.graph.in_file import let_go, memory_of

LARGE_FILE, LARGE_WEIGHT = 1 << 24, 1 << 16
"""Bytes of a model's file from which on its weights stay there, and of a weight."""

LARGEST = 1 << 31
"""Bytes that a serialised protobuf has less than."""

PAGE = 4096
"""Bytes at whose multiples the weights of a file of their own begin, so that it can be mapped into memory (the ONNX standard, ExternalData.md)."""

GRAPH, WEIGHTS, VALUES = (
    onnx.ModelProto.GRAPH_FIELD_NUMBER,
    onnx.GraphProto.INITIALIZER_FIELD_NUMBER,
    onnx.TensorProto.RAW_DATA_FIELD_NUMBER,
)
"""The numbers of the fields that lead to a weight's values."""

LENGTH = 2
"""What a field's head says where the number of its bytes follows."""

FIXED = {1: 8, 5: 4}
"""Bytes of a field that a head of another kind leads."""


_TYPES = frozenset(ir.DataType) - {ir.DataType.UNDEFINED}


class Mapped(NamedTuple):
    """A model without the values of some weights, and these by name, which lie in its file, in others, or elsewhere in memory."""

    proto: onnx.ModelProto
    values: Mapping[str, memoryview]


def mapped(path: Path) -> Mapped | None:
    """The model of a file without its large weights; None for a small one, for one of another format, and for what is no model, which others tell
    more of. Raises OSError."""
    if path.suffix != ".onnx" or path.stat().st_size < LARGE_FILE:
        return None
    data, values = memoryview(memory_of(path)), dict[str, memoryview]()
    try:
        proto = onnx.ModelProto.FromString(b"".join(_model(data, values)))
    except Exception:  # what is no model fails in many ways
        return None
    return Mapped(proto, values) if values else None


def beside(proto: onnx.ModelProto, folder: Path) -> Iterator[tuple[str, memoryview]]:
    """The names and values of weights that lie in other files of a folder or of one within it, as the model says.

    What it says of a file that is not there, that is too short or that is elsewhere is left to others, which tell more of it.
    """
    files = dict[str, memoryview | None]()
    for weight in proto.graph.initializer:
        if not (is_beside(weight) and weight.name and weight.data_type in _TYPES):
            continue
        told, dtype = {entry.key: entry.value for entry in weight.external_data}, _dtype(weight)
        place = told.get("location", "")
        if place not in files:
            files[place] = _inside(folder, place)
        data, size = files[place], prod(weight.dims) * dtype.itemsize
        begin, length = _bytes_told(told, "offset", 0), _bytes_told(told, "length", size)
        if data is not None and length == size and 0 <= begin <= len(data) - size and dtype_name(dtype) is not None:
            yield weight.name, data[begin : begin + size]


def is_beside(weight: onnx.TensorProto) -> bool:
    """Its values lie in another file than the model's."""
    return bool(weight.data_location == onnx.TensorProto.EXTERNAL)


def forget_place(weight: onnx.TensorProto) -> None:
    """Say no more that its values lie in another file."""
    weight.ClearField("data_location")
    weight.ClearField("external_data")


def _inside(folder: Path, place: str) -> memoryview | None:
    """The bytes of a file of a folder; None for what is none, for an empty one, and for one that a path or a link has elsewhere."""
    path = folder / place
    try:
        return memoryview(memory_of(path)) if path.is_file() and path.resolve().is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):
        return None


def _bytes_told(told: Mapping[str, str], key: str, otherwise: int) -> int:
    """A number of bytes; -1 for what is no number."""
    text = told.get(key) or str(otherwise)
    return int(text) if text.isdecimal() else -1


def parted(model: ir.Model) -> Mapped:
    """A model in memory; the values of its large weights stay where they are."""
    values, held = dict[str, memoryview](), dict[str, ir.TensorProtocol]()
    for name, value in model.graph.initializers.items():
        weight = value.const_value
        if weight is None or weight.nbytes < LARGE_WEIGHT or dtype_name(weight.dtype.numpy()) is None:
            continue
        array: np.ndarray[Any, np.dtype[Any]] = np.ascontiguousarray(weight.numpy())
        held[name], values[name] = weight, array.reshape(-1).view(np.uint8).data
        value.const_value = ir.ExternalTensor("", 0, weight.nbytes, weight.dtype, shape=ir.Shape(weight.shape.numpy()), name=name)
    try:
        proto = ir.to_proto(model)
    finally:
        for name, weight in held.items():
            model.graph.initializers[name].const_value = weight
    for apart in proto.graph.initializer:
        if apart.name in values:
            forget_place(apart)
    return Mapped(proto, values)


def tensor(proto: onnx.TensorProto, values: memoryview) -> InFile:
    """A weight on the memory of its file."""
    array: np.ndarray[Any, np.dtype[Any]] = np.ndarray(tuple(proto.dims), _dtype(proto), values)
    return InFile(array, ir.DataType(proto.data_type), name=proto.name)


class InFile(ir.Tensor):  # type: ignore[type-arg]
    """Values that lie in a file, which nobody writes: they need no copy."""


def head(field: int, length: int) -> bytes:
    """What stands before a message of so many bytes in another one, as its field of that number: both numbers by sevens of bits, the least first."""
    found = bytearray()
    for number in (field << 3 | LENGTH, length):
        while number > 127:
            found.append(number & 127 | 128)
            number >>= 7
        found.append(number)
    return bytes(found)


def _model(data: memoryview, values: dict[str, memoryview]) -> Iterator[bytes]:
    """The pieces of a model; the values that are left out are put aside."""
    for number, whole, inner in _fields(data):
        if number == GRAPH and inner is not None:
            yield _enclosed(GRAPH, _graph(inner, values))
        else:
            yield bytes(whole)


def _graph(data: memoryview, values: dict[str, memoryview]) -> Iterator[bytes]:
    for number, whole, inner in _fields(data):
        if number == WEIGHTS and inner is not None and len(inner) >= LARGE_WEIGHT:
            yield _enclosed(WEIGHTS, _weight(inner, values))
        else:
            yield bytes(whole)


def _weight(data: memoryview, values: dict[str, memoryview]) -> Iterator[bytes]:
    """A weight without its values, if they are numbers one after the other of a type that numpy knows, and it has a name of its own."""
    fields = list(_fields(data))
    held = [inner for number, _, inner in fields if number == VALUES and inner is not None]
    rest = [bytes(whole) for number, whole, _ in fields if number != VALUES]
    proto = onnx.TensorProto.FromString(b"".join(rest))
    if len(held) == 1 and proto.name and proto.name not in values and _plain(proto, len(held[0])):
        values[proto.name] = held[0]
        yield from rest
    else:
        yield bytes(data)


def _plain(proto: onnx.TensorProto, nbytes: int) -> bool:
    inside = not proto.HasField("data_location") or proto.data_location == onnx.TensorProto.DEFAULT
    dtype = _dtype(proto) if inside and proto.data_type else None
    return dtype is not None and dtype_name(dtype) is not None and prod(proto.dims) * dtype.itemsize == nbytes


def _dtype(proto: onnx.TensorProto) -> np.dtype[Any]:
    return np.dtype(ir.DataType(proto.data_type).numpy())


def _enclosed(field: int, pieces: Iterator[bytes]) -> bytes:
    data = b"".join(pieces)
    return head(field, len(data)) + data


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview, memoryview | None]]:
    """The fields of a message: the number, the bytes with the head, and those behind it where their number stands in it. Raises ValueError."""
    at = 0
    while at < len(data):
        begin = at
        key, at = _number(data, at)
        kind, inner = key & 7, None
        if kind == LENGTH:
            length, at = _number(data, at)
            inner, at = data[at : at + length], at + length
        elif kind == 0:
            _, at = _number(data, at)
        else:
            at += FIXED[kind]
        if at > len(data):
            raise ValueError("a field that goes beyond its message")
        yield key >> 3, data[begin:at], inner


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A number by sevens of bits, and where it ends."""
    found, shift = 0, 0
    while True:
        byte = data[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return found, at


def whole_in_pieces(proto: onnx.ModelProto, values: Mapping[str, memoryview]) -> Iterator[bytes | memoryview]:
    """The serialisation of a model in whose file all its weights are."""
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    for weight in whole.graph.initializer:
        if weight.name in values:
            forget_place(weight)
    return serialised_in_pieces(whole, values)


def serialised_in_pieces(proto: onnx.ModelProto, values: Mapping[str, memoryview]) -> Iterator[bytes | memoryview]:
    """The deterministic serialisation of a model with the values of weights that are not in it, weight after weight: the whole of it would be in
    memory twice beside the model, which has none of its weights afterwards."""
    weights = list(proto.graph.initializer)
    proto.graph.ClearField("initializer")
    before, after = onnx.GraphProto(), onnx.GraphProto()
    before.CopyFrom(proto.graph)
    after.CopyFrom(proto.graph)
    for field, _ in proto.graph.ListFields():
        (after if field.number < WEIGHTS else before).ClearField(field.name)
    rest = onnx.ModelProto()
    rest.CopyFrom(proto)
    rest.ClearField("graph")
    earlier = onnx.ModelProto()
    earlier.CopyFrom(rest)
    for field, _ in rest.ListFields():
        (rest if field.number < GRAPH else earlier).ClearField(field.name)
    ends = [part.SerializeToString(deterministic=True) for part in (earlier, before, after, rest)]
    lengths = [weight.ByteSize() + _apart(values.get(weight.name)) for weight in weights]
    length = len(ends[1]) + sum(len(head(WEIGHTS, n)) + n for n in lengths) + len(ends[2])
    yield from (ends[0], head(GRAPH, length), ends[1])
    for n, weight in zip(lengths, weights, strict=True):
        yield head(WEIGHTS, n)
        yield from _weight_in_pieces(weight, values.get(weight.name))
    yield from ends[2:]


def write(proto: onnx.ModelProto, values: Mapping[str, memoryview], path: Path) -> None:
    """Write a model, which is another one afterwards, and the values of weights that are not in it into `PATH.data` beside it: a protobuf can have no
    more than 2 GB, and ONNX Runtime takes twice as long to load one. Raises OSError."""
    data = path.with_name(f"{path.name}.data")
    with data.open("wb") as file:
        for weight in (weight for weight in proto.graph.initializer if weight.name in values):
            file.seek(-file.tell() % PAGE, os.SEEK_CUR)
            weight.data_location = onnx.TensorProto.EXTERNAL
            for key, told in {"location": data.name, "offset": file.tell(), "length": len(values[weight.name])}.items():
                weight.external_data.add(key=key, value=str(told))
            file.write(values[weight.name])
    path.write_bytes(proto.SerializeToString())


def _apart(values: memoryview | None) -> int:
    """Bytes of a weight's values with what stands before them, where they are not in it."""
    return 0 if values is None else len(head(VALUES, len(values))) + len(values)


def _weight_in_pieces(proto: onnx.TensorProto, values: memoryview | None) -> Iterator[bytes | memoryview]:
    """A weight with its values, which are read where they are."""
    if values is None:
        yield proto.SerializeToString(deterministic=True)
        return
    before, after = onnx.TensorProto(), onnx.TensorProto()
    before.CopyFrom(proto)
    after.CopyFrom(proto)
    for field, _ in proto.ListFields():
        (after if field.number < VALUES else before).ClearField(field.name)
    yield before.SerializeToString(deterministic=True)
    yield head(VALUES, len(values))
    yield values
    let_go(values)
    yield after.SerializeToString(deterministic=True)
