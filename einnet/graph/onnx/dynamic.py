"""A model with a dimension that has a range: what carries the dimension, and the static shapes at one of its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from einnet.errors import ModelError
from einnet.graph.dimension import Dimension
from einnet.graph.onnx.read import Source, in_pieces
from einnet.graph.onnx.shapes import Shapes

BATCH = "batch"
"""The name under which the leading dimension of a static model can be given a range."""


class Carried(NamedTuple):
    """A model in which a named dimension is symbolic, the axes of its inputs that are of this dimension, and the declared shapes."""

    model: onnx.ModelProto
    axes: Mapping[str, tuple[int, ...]]
    declared: Mapping[str, tuple[int | str, ...]]

    def shapes(self, dimension: Dimension, size: int, given: Shapes) -> dict[str, tuple[int, ...]]:
        """Static shapes of the inputs with the dimension at a size; other symbols by the shapes that are given."""
        found = dict(given)
        for name, axes in self.axes.items():
            base = given.get(name, self.declared[name])
            shape = tuple(size if n in axes else dim for n, dim in enumerate(base))
            unknown = next((dim for dim in shape if not isinstance(dim, int)), None)
            if unknown is not None:
                raise ModelError(f"dimension {unknown!r} of input {name!r} is unknown beside {dimension.name}; give the input a shape with --shape")
            found[name] = tuple(int(dim) for dim in shape)
        return found


def carried(source: Source, name: str) -> Carried:
    """The model with the dimension `name` symbolic: as it declares it or, for `batch`, the leading dimension that all static inputs share.

    Raises ModelError where there is no such dimension.
    """
    model = proto(source)
    title = str(source) if isinstance(source, (str, Path)) else model.graph.name or "model"
    declared = {i.name: _shape(i) for i in _inputs(model)}
    axes = {n: tuple(axis for axis, dim in enumerate(shape) if dim == name) for n, shape in declared.items()}
    axes = {n: found for n, found in axes.items() if found}
    if axes:
        return Carried(model, axes, declared)
    leading = {shape[0] if shape else None for shape in declared.values()}
    (first,) = leading if len(leading) == 1 else (None,)
    if name != BATCH or not isinstance(first, int):
        raise ModelError(f"{title}: no input has a dimension {name!r}; {_dimensions(declared)}")
    free_leading(model, first)
    return Carried(model, dict.fromkeys(declared, (0,)), {n: (name, *shape[1:]) for n, shape in declared.items()})


def _dimensions(declared: Mapping[str, tuple[int | str, ...]]) -> str:
    """What can be given a range instead."""
    symbols = sorted({dim for shape in declared.values() for dim in shape if isinstance(dim, str)} - {"?"})
    if symbols:
        return f"its dimensions are {', '.join(symbols)}"
    return f"its shapes are static; {BATCH} may name the leading dimension where all inputs share it"


class Symbolic(NamedTuple):
    """A model in which some named dimensions are symbolic, and the shapes that its inputs declare, by the names."""

    model: onnx.ModelProto
    declared: Mapping[str, tuple[int | str, ...]]

    def shapes(self, sizes: Mapping[str, int], given: Shapes) -> dict[str, tuple[int, ...]]:
        """Static shapes of the inputs with the named dimensions at these sizes; other symbols by the shapes that are given."""
        found = {name: tuple(sizes.get(str(dim), dim) for dim in shape) for name, shape in self.known(tuple(sizes), given).items()}
        return {name: tuple(map(int, shape)) for name, shape in found.items()}

    def known(self, names: Sequence[str], given: Shapes) -> dict[str, tuple[int | str, ...]]:
        """The shapes of the inputs, where no symbols but the names are left. Raises ModelError for another symbol without a given size."""
        found: dict[str, tuple[int | str, ...]] = {}
        for name, shape in self.declared.items():
            base = given.get(name, shape)
            if len(base) != len(shape):
                raise ModelError(f"input {name!r} has {len(shape)} dimensions, and the shape that is given for it has {len(base)}")
            found[name] = tuple(dim if dim in names else other for dim, other in zip(shape, base))
            unknown = next((dim for dim in found[name] if isinstance(dim, str) and dim not in names), None)
            if unknown is not None:
                beside = f"dimension {unknown!r} of input {name!r} is unknown beside {', '.join(names)}"
                raise ModelError(f"{beside}; give it a range, too, or the input a shape with --shape")
        return found


def symbolic(source: Source, names: Sequence[str]) -> Symbolic:
    """The model with these dimensions symbolic, each as in `carried`. Raises ModelError where there is no such dimension."""
    found = carried(source, names[0])
    for name in names[1:]:
        found = carried(found.model, name)
    return Symbolic(found.model, found.declared)


def proto(source: Source) -> onnx.ModelProto:
    """A copy of the model with its weights. Raises ModelError for what cannot be read."""
    if isinstance(source, (str, Path)):
        try:
            return onnx.load(source)
        except Exception as error:  # the parser of the format raises its own types
            raise ModelError(f"{source}: cannot be read as ONNX ({error})") from error
    found = onnx.ModelProto()
    found.CopyFrom(source if isinstance(source, onnx.ModelProto) else ir.to_proto(source))
    return found


def shapes_of(source: Source, arrays: Mapping[str, np.ndarray[Any, np.dtype[Any]]]) -> dict[str, tuple[int, ...]]:
    """Static shapes of those inputs of a model that have none, as arrays by input name tell: of one input, or of several along one more dimension in
    front. Raises ModelError for a model that cannot be read."""
    found: dict[str, tuple[int, ...]] = {}
    for value in _inputs(in_pieces(source).proto):
        if value.name not in arrays:
            continue
        shape, own = _shape(value), arrays[value.name].shape
        known = value.type.tensor_type.HasField("shape")
        if not known or (any(isinstance(n, str) or n < 0 for n in shape) and len(shape) <= len(own) <= len(shape) + 1):
            found[value.name] = own[len(own) - len(shape) :] if known else own
    return found


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """What the model is given, which is not among its weights."""
    held = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in held]


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims)


def free_leading(model: onnx.ModelProto, size: int) -> None:
    """Give the leading dimension of all inputs the symbol `batch`, and let the constant targets of Reshape nodes that begin with its size follow.

    A target's other entries stay; where one of them is -1 already, the leading one becomes 0 (as in the input). Whether that is what the model
    means is for the caller to compare: see `api.dynamic`.
    """
    graph = model.graph
    held = {t.name: t for t in graph.initializer}
    for value in (*(i for i in graph.input if i.name not in held), *graph.output):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value == size:
            dims[0].dim_param = BATCH
    del graph.value_info[:]
    for node in graph.node:
        if node.op_type == "Reshape" and node.domain in ("", "ai.onnx"):
            _free_target(graph, node, held, size)


def _free_target(graph: onnx.GraphProto, node: onnx.NodeProto, held: Mapping[str, onnx.TensorProto], size: int) -> None:
    target = _constant(graph, node.input[1], held)
    if target is None or target.size == 0 or target[0] != size:
        return
    freed = target.copy()
    freed[0] = 0 if -1 in target else -1
    name = f"{node.output[0]}.{BATCH}"
    graph.initializer.append(onnx.numpy_helper.from_array(freed, name))
    node.input[1] = name


def _constant(graph: onnx.GraphProto, name: str, held: Mapping[str, onnx.TensorProto]) -> np.ndarray | None:
    if name in held:
        return np.asarray(onnx.numpy_helper.to_array(held[name]))
    for node in graph.node:
        if node.op_type == "Constant" and name in node.output:
            value = next((a for a in node.attribute if a.name == "value"), None)
            return None if value is None else np.asarray(onnx.numpy_helper.to_array(value.t))
    return None
