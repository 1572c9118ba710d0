"""What a model computes, as a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import onnx

from einnet.graph.in_file import let_go
from einnet.graph.onnx.mapped import GRAPH, VALUES, WEIGHTS, head
from einnet.graph.onnx.read import LARGEST, Source, bytes_of, in_pieces


def digest(model: Source) -> str | None:
    """32 hex digits of what a model computes: its nodes, weights, inputs, outputs, functions and opsets, not its notes.

    None for a model of more than 2 GB.
    """
    proto, values = in_pieces(model)
    if bytes_of(proto) + sum(map(len, values.values())) >= LARGEST:
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
    for piece in serialised_in_pieces(proto, values):
        found.update(piece)
    return found.hexdigest()


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
        yield from _weight(weight, values.get(weight.name))
    yield from ends[2:]


def _apart(values: memoryview | None) -> int:
    """Bytes of a weight's values with what stands before them, where they are not in it."""
    return 0 if values is None else len(head(VALUES, len(values))) + len(values)


def _weight(proto: onnx.TensorProto, values: memoryview | None) -> Iterator[bytes | memoryview]:
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
