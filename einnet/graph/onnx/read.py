"""A model file, proto or graph as one checked, normalised onnx-ir model with static input shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import NamedTuple, Union

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError, Message  # type: ignore[import-untyped]
from onnx_ir.passes import common

from einnet.errors import ModelError, NotStaticError
from einnet.graph.in_file import ModelFile, file_memory
from einnet.graph.onnx.bfloat16 import carries, graphs, in_float32, tensors
from einnet.graph.onnx.mapped import LARGE_FILE, LARGEST, Mapped, beside, is_beside, mapped, tensor, whole_in_pieces
from einnet.graph.onnx.shapes import Shapes, fix_inputs

Source = Union[str, Path, onnx.ModelProto, ir.Model]

def first_line(error: BaseException) -> str:
    """The first line of the text of what an exception goes back to."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def read(source: Source, shapes: Shapes | None = None) -> ir.Model:
    """Load, check, inline functions, lift constants, name everything, fix the input shapes. What carries bfloat16 becomes a model of float32.

    The large weights of a large file stay there, and those in other files: these may be replaced or removed, not written, while the model is in use.
    An initialiser that is also a graph input counts as a constant, whatever the IR version: the program is specialised to its default.

    Raises ModelError for what is no valid ONNX model, and for a dimension that nothing fixes; NotStaticError where a value is a map.
    """
    title = str(source) if isinstance(source, (str, Path)) else source.graph.name or "model"
    proto, values = _from_file(Path(source)) if isinstance(source, (str, Path)) else (source, {})
    proto, values = (in_memory(source), {}) if of_bfloat16(proto) else (proto, values)
    if isinstance(proto, onnx.ModelProto) and not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{title}: not an ONNX model, or one without a graph")
    refuse_maps(proto, title)
    try:
        model = proto.clone() if isinstance(proto, ir.Model) else ir.from_proto(proto)
        if isinstance(source, (str, Path)):
            ir.external_data.set_base_dir(model.graph, Path(source).parent)
        for weight in proto.graph.initializer if isinstance(proto, onnx.ModelProto) else ():
            if weight.name in values:
                model.graph.initializers[weight.name].const_value = tensor(weight, values[weight.name])
        types = [(value.type, value.shape) for value in model.graph.outputs]
        for run in (
            common.InlinePass(),
            common.TopologicalSortPass(),
            common.RemoveInitializersFromInputsPass(),
            common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
            common.NameFixPass(),
            common.CommonSubexpressionEliminationPass(),
            common.RemoveUnusedNodesPass(),
        ):
            run(model)
        for value, (kind, shape) in zip(model.graph.outputs, types):  # merging equal nodes may put an untyped copy in an output's place
            value.type, value.shape = value.type or kind, value.shape or shape
        given = list(dict.fromkeys(model.graph.outputs))  # torch's exporter lists what a module returns twice two times, under one name
        del model.graph.outputs[len(given) :]
        model.graph.outputs[:] = given
        _check(model)
    except Exception as error:  # onnx-ir and the checker raise many types for a malformed graph
        raise ModelError(f"{title}: not a valid ONNX model: {first_line(error)}") from error
    fix_inputs(model.graph, shapes or {}, title)
    return model


def refuse_maps(model: onnx.ModelProto | ir.Model, title: str) -> None:
    """Raise NotStaticError for a value that is a map or a sequence of them, as classifiers of scikit-learn give them: nothing reads it here."""
    graph = model.graph if isinstance(model, onnx.ModelProto) else onnx.GraphProto()
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type
        while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
            kind = (kind.sequence_type if kind.HasField("sequence_type") else kind.optional_type).elem_type
        if kind.HasField("map_type"):
            raise NotStaticError(f"{title}: {value.name!r} is a map, no tensor")


def of_bfloat16(source: Source) -> bool:
    """The model carries bfloat16."""
    if isinstance(source, (str, Path)):
        return _looked_at(source).bfloat16
    return carries(source) if isinstance(source, onnx.ModelProto) else any(v.dtype == ir.DataType.BFLOAT16 for v in _values(source))


class _File(NamedTuple):
    """What is known of a model's file: something of it has elements of bfloat16; some weights stand in other files."""

    bfloat16: bool
    apart: bool


def _looked_at(source: str | Path) -> _File:
    """What is known of a file, which is read once; of one that is not there, that it is nothing special."""
    path = Path(source)
    return _facts(path, path.stat().st_mtime_ns) if path.exists() else _File(False, False)


@lru_cache(64)
def _facts(path: Path, changed: int) -> _File:
    del changed
    proto = _from_file(path).proto
    return _File(carries(proto), any(is_beside(t) for g in graphs(proto) for t in tensors(g)))


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """The inputs and weights of a model, and what its nodes give."""
    yield from (*model.graph.inputs, *model.graph.initializers.values())
    for node in model.graph.all_nodes():
        yield from node.outputs


def runnable(source: Source) -> bytes | str:
    """What ONNX Runtime takes to run the model: its path, so that external data is found, or its bytes; with bfloat16 of its model of float32."""
    if isinstance(source, (str, Path)) and not of_bfloat16(source):
        return str(source)
    return in_memory(source).SerializeToString()  # type: ignore[no-any-return]


def normalised(source: Source, shapes: Shapes | None = None) -> onnx.ModelProto:
    """The model as `read` gives it, with the weights in it."""
    model = read(source, shapes)
    ir.external_data.load_to_model(model)
    return ir.to_proto(model)


def in_memory(source: Source) -> onnx.ModelProto:
    """The model with the weights in it, as it is, or where it carries bfloat16 its model of float32."""
    if isinstance(source, (str, Path)):
        return in_float32(onnx.load(source))
    return in_float32(source if isinstance(source, onnx.ModelProto) else ir.to_proto(source))


def parsed(data: bytes) -> onnx.ModelProto:
    """The model of such bytes. Raises what the parser of the format raises where they are none."""
    return onnx.load_model_from_string(data)


def bytes_of(proto: Message) -> float:
    """How many bytes a serialised protobuf has, or infinity: above 2 GB some versions of the library count, others raise."""
    try:
        return float(proto.ByteSize())
    except EncodeError:
        return inf


def serialised(source: Source) -> bytes | None:
    """The whole model with its weights as bytes, those of its file where it is all in one; None where they are more than a protobuf can be (2 GB)."""
    if isinstance(source, (str, Path)) and Path(source).suffix == ".onnx" and _looked_at(source) == _File(False, False):
        return Path(source).read_bytes()
    proto, values = in_pieces(source)
    return None if _too_large(proto, values) else b"".join(whole_in_pieces(proto, values)) if values else bytes(proto.SerializeToString())


def kept(source: Source) -> bytes | ModelFile | None:
    """The whole model as a program keeps it: a large one in files is left there; None where it is more than a protobuf can be."""
    path = Path(source) if isinstance(source, (str, Path)) else None
    if not path or path.suffix != ".onnx" or of_bfloat16(path):
        return serialised(source)
    if not _looked_at(path).apart:
        return ModelFile.at(path) if path.stat().st_size >= LARGE_FILE else serialised(path)
    proto, values = in_pieces(path)
    if _too_large(proto, values) or sum(map(len, values.values())) < LARGE_FILE:
        return serialised(path)
    others = {id(memory): memory for memory in map(file_memory, values.values()) if memory is not None}
    return ModelFile.at(path, tuple(others.values()), lambda: whole_in_pieces(proto, values))


def _too_large(proto: onnx.ModelProto, values: Mapping[str, memoryview]) -> bool:
    """A model is more than a protobuf can be."""
    return bytes_of(proto) + sum(map(len, values.values())) >= LARGEST


def is_model(data: bytes, source: Source) -> bool:
    """These bytes are the model, byte by byte, or once both were parsed: a file may have its fields in another order."""
    whole = serialised(source)
    try:
        return data == whole or (whole is not None and parsed(data).SerializeToString() == in_memory(source).SerializeToString())
    except DecodeError:
        return False


def save_apart(model: onnx.ModelProto, path: Path, weights: str) -> None:
    """Write the model, which keeps its weights, and these into the file of that name beside it. Raises OSError."""
    ir.save(ir.from_proto(model), path, external_data=weights)


def in_format(model: bytes | str, version: int) -> bytes:
    """A serialised model, or one in a file, declared to be of another version of the file format."""
    proto = onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    proto.ir_version = version
    return bytes(proto.SerializeToString())


def in_pieces(source: Source) -> Mapped:
    """The model, in which values of weights may be missing that lie in files; with bfloat16 its model of float32."""
    if isinstance(source, (str, Path)) and not of_bfloat16(source):
        found = _from_file(Path(source))
        others = [t for g in graphs(found.proto) for t in tensors(g) if is_beside(t)]
        if len(others) == sum(is_beside(t) and t.name in found.values for t in found.proto.graph.initializer):
            return found
    return Mapped(in_memory(source), {})


def _from_file(path: Path) -> Mapped:
    """The model of a file; values of weights are missing that lie in it, or in others that it names."""
    try:
        proto, values = mapped(path) or Mapped(onnx.load(path, load_external_data=False), {})
        return Mapped(proto, {**values, **dict(beside(proto, path.parent))})
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (DecodeError, ValueError) as error:
        raise ModelError(f"{path}: not an ONNX file, or a truncated one") from error


def _check(model: ir.Model) -> None:
    """The ONNX checker on the model with its initialisers as inputs: it need not copy or find the weights."""
    graph = model.graph
    held = dict(graph.initializers)
    for name, value in held.items():
        if value.const_value is None:
            raise ValueError(f"initializer {name!r} has no value")
        value.dtype, value.shape = value.const_value.dtype, ir.Shape(value.const_value.shape.numpy())
    count = len(graph.inputs)
    graph.initializers.clear()
    graph.inputs.extend(held.values())
    try:
        proto = ir.to_proto(model)
        proto.graph.name = proto.graph.name or "model"  # runtimes accept what the checker does not: a graph without a name,
        for output in proto.graph.output:  # outputs without a type, which nodes tell,
            if not output.HasField("type"):
                output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        for value in (*proto.graph.input, *proto.graph.output):  # and both without a shape
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(proto)
    finally:
        del graph.inputs[count:]
        graph.initializers.update(held)
