"""Static shapes for the inputs of a model: what it declares, what the user gives, and symbols that several inputs share."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from einnet.errors import ModelError, NotStaticError

Shapes = Mapping[str, tuple[int, ...]]
Dimension = int | str | None

SYMBOLS = "symbols"
"""Key of a graph's `meta` under which `fix_inputs` leaves the sizes of symbols."""


def dimension(dim: int | ir.SymbolicDim) -> Dimension:
    """A size, a symbol, or None where nothing is known; exporters write unknown sizes as -1 too."""
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return dim.value or None


def bind(name: str, declared: ir.Shape | None, shape: tuple[int, ...], symbols: dict[str, int], title: str) -> None:
    """Check a given shape against the declared one, and note the sizes of symbols. Raises ModelError where they contradict."""
    if declared is None:
        return
    if len(declared) != len(shape):
        raise ModelError(f"{title}: input {name!r} has {len(declared)} dimensions, the given shape {text(shape)} has {len(shape)}")
    for axis, (dim, n) in enumerate(zip(map(dimension, declared), shape)):
        fixed = symbols.setdefault(dim, n) if isinstance(dim, str) else n if dim is None else dim
        if fixed != n:
            raise ModelError(f"{title}: dimension {axis} of input {name!r} is {fixed}, not {n} as in the given shape {text(shape)}")


def resolve(name: str, declared: ir.Shape | None, symbols: Mapping[str, int], title: str) -> tuple[int, ...]:
    """The static shape of an input. Raises ModelError for a dimension that nothing fixes, with what to write."""
    if declared is None:
        raise ModelError(f"{title}: the rank of input {name!r} is unknown; give its shape, as in --shape {name}=1x3x224x224")
    dims = [dimension(dim) for dim in declared]
    found = [symbols.get(dim) if isinstance(dim, str) else dim for dim in dims]
    if None in found:
        axis = found.index(None)
        symbol = f" ({dims[axis]!r})" if dims[axis] is not None else ""
        example = text(tuple(1 if n is None else n for n in found))
        raise ModelError(f"{title}: dimension {axis}{symbol} of input {name!r} is unknown; give it a size, as in --shape {name}={example}")
    return tuple(n for n in found if n is not None)


def fix_inputs(graph: ir.Graph, shapes: Shapes, title: str) -> None:
    """Give every input of the graph a static shape; a symbol bound through one input is bound wherever it occurs."""
    inputs = {str(value.name): value for value in graph.inputs}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(f"{title}: no input {name!r} to give a shape to (inputs: {', '.join(inputs) or 'none'})")
        bind(name, inputs[name].shape, shape, symbols, title)
    for name, value in inputs.items():
        if value.dtype is None or not isinstance(value.type, ir.TensorType):
            raise NotStaticError(f"{title}: input {name!r} is not a tensor")
        value.shape = ir.Shape(shapes[name] if name in shapes else resolve(name, value.shape, symbols, title))
    graph.meta[SYMBOLS] = symbols


def text(shape: tuple[int, ...]) -> str:
    """1x3x224x224."""
    return "x".join(map(str, shape))
