"""What a model computes, as a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import onnx

from einnet.graph.onnx.read import Source, in_memory


def digest(model: Source) -> str | None:
    """32 hex digits of what a model computes: its nodes, weights, inputs, outputs, functions and opsets, not its notes.

    None for a model of more than 2 GB.
    """
    proto = in_memory(model)
    if proto.ByteSize() >= 1 << 31:
        return None
    if proto is model:  # the caller's own, which stays as it is
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
    for field in ("doc_string", "producer_name", "producer_version", "metadata_props", "model_version", "domain", "ir_version"):
        proto.ClearField(field)
    for weight in proto.graph.initializer:
        weight.ClearField("data_location")
        weight.ClearField("external_data")
    for part in (proto.graph, *proto.functions):
        for field in ("doc_string", "metadata_props", "value_info"):
            part.ClearField(field)
        for node in part.node:
            node.ClearField("doc_string")
            node.ClearField("metadata_props")
    found = hashlib.blake2b(digest_size=16)
    for piece in serialised_in_pieces(proto):
        found.update(piece)
    return found.hexdigest()


WEIGHTS, GRAPH = onnx.GraphProto.INITIALIZER_FIELD_NUMBER, onnx.ModelProto.GRAPH_FIELD_NUMBER


def serialised_in_pieces(proto: onnx.ModelProto) -> Iterator[bytes]:
    """The deterministic serialisation of a model, weight after weight: the whole of it would be in memory twice beside the model, which has none of
    its weights afterwards."""
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
    heads = [_head(WEIGHTS, weight.ByteSize()) for weight in weights]
    length = len(ends[1]) + sum(len(head) + weight.ByteSize() for head, weight in zip(heads, weights, strict=True)) + len(ends[2])
    yield from (ends[0], _head(GRAPH, length), ends[1])
    for head, weight in zip(heads, weights, strict=True):
        yield head
        yield weight.SerializeToString(deterministic=True)
    yield from ends[2:]


def _head(field: int, length: int) -> bytes:
    """What stands before a message of so many bytes in another one, as its field of that number: both numbers by sevens of bits, the least first."""
    found = bytearray()
    for number in (field << 3 | 2, length):
        while number > 127:
            found.append(number & 127 | 128)
            number >>= 7
        found.append(number)
    return bytes(found)
