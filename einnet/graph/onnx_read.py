"""A model file, proto or graph as one checked, normalised onnx-ir model with static input shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Union

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx_ir.passes import common

from einnet.errors import ModelError

Shapes = Mapping[str, tuple[int, ...]]
Source = Union[str, Path, onnx.ModelProto, ir.Model]


def first_line(error: BaseException) -> str:
    """The first line of an exception's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def read(source: Source, shapes: Shapes | None = None) -> ir.Model:
    """Load, check, inline functions, lift constants, name everything, fix the input shapes.

    An initialiser that is also a graph input counts as a constant, whatever the IR version: the program is specialised to its default.

    Raises ModelError for what is no valid ONNX model, and for a dimension that nothing fixes.
    """
    title = str(source) if isinstance(source, (str, Path)) else source.graph.name or "model"
    proto = _from_file(Path(source)) if isinstance(source, (str, Path)) else source
    if isinstance(proto, onnx.ModelProto) and not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{title}: not an ONNX model, or one without a graph")
    try:
        model = proto.clone() if isinstance(proto, ir.Model) else ir.from_proto(proto)
        if isinstance(source, (str, Path)):
            ir.external_data.set_base_dir(model.graph, Path(source).parent)
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
        _check(model)
    except Exception as error:  # onnx-ir and the checker raise many types for a malformed graph
        raise ModelError(f"{title}: not a valid ONNX model: {first_line(error)}") from error
    _fix_shapes(model.graph, shapes or {}, title)
    return model


def _from_file(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
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
        value.dtype, value.shape = value.const_value.dtype, value.const_value.shape
    count = len(graph.inputs)
    graph.initializers.clear()
    graph.inputs.extend(held.values())
    try:
        onnx.checker.check_model(ir.to_proto(model))
    finally:
        del graph.inputs[count:]
        graph.initializers.update(held)


def _fix_shapes(graph: ir.Graph, shapes: Shapes, title: str) -> None:
    """Make every input's shape static by the user's shapes; a symbol bound by one input is bound for all."""
    inputs = {value.name: value for value in graph.inputs}
    for name in shapes:
        if name not in inputs:
            raise ModelError(f"{title}: no input {name!r} to give a shape to (inputs: {', '.join(map(str, inputs)) or 'none'})")
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        declared = inputs[name].shape
        if declared is None:
            inputs[name].shape = ir.Shape(shape)
            continue
        if len(declared) != len(shape):
            raise ModelError(f"{title}: input {name!r} has {len(declared)} dimensions, the given shape {_text(shape)} has {len(shape)}")
        for axis, (dim, n) in enumerate(zip(declared, shape)):
            fixed = dim if isinstance(dim, int) else symbols.setdefault(dim.value, n) if dim.value else n
            if fixed != n:
                raise ModelError(f"{title}: dimension {axis} of input {name!r} is {fixed}, not {n} as in the given shape {_text(shape)}")
        inputs[name].shape = ir.Shape(shape)
    for name, value in inputs.items():
        if isinstance(value.type, (ir.SequenceType, ir.OptionalType)) or value.dtype is None:
            raise ModelError(f"{title}: input {name!r} is not a tensor")
        if value.shape is None:
            raise ModelError(f"{title}: the rank of input {name!r} is unknown; give its shape, as in --shape {name}=1x3x224x224")
        found = [dim if isinstance(dim, int) else symbols.get(dim.value or "") for dim in value.shape]
        for axis, n in enumerate(found):
            if n is None:
                symbol = f" ({value.shape[axis].value!r})" if getattr(value.shape[axis], "value", None) else ""
                example = "x".join(str(m) if m is not None else "1" for m in found)
                raise ModelError(
                    f"{title}: dimension {axis}{symbol} of input {name!r} is unknown; give it a size, as in --shape {name}={example}"
                )
        value.shape = ir.Shape(found)
    graph.meta["symbols"] = symbols


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
