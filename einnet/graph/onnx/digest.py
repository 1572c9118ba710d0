"""What a model computes, as a digest."""

from __future__ import annotations

import hashlib

import onnx

from einnet.graph.onnx.mapped import LARGEST, forget_place, serialised_in_pieces
from einnet.graph.onnx.read import Source, bytes_of, in_pieces


def digest(model: Source) -> str | None:
    """32 hex digits of what a model computes: its nodes, weights, inputs, outputs, functions and opsets, not its notes.

    None for a model in memory of more than 2 GB, and for one that has so much beside its graph's large weights.
    """
    proto, values = in_pieces(model)
    if bytes_of(proto) >= LARGEST:
        return None
    if proto is model:  # the caller's own, which stays as it is
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
    for field in ("doc_string", "producer_name", "producer_version", "metadata_props", "model_version", "domain", "ir_version"):
        proto.ClearField(field)
    for weight in proto.graph.initializer:
        forget_place(weight)
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
