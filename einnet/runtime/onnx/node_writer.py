"""ONNX nodes written one after the other, with the shape of every value known; what changes nothing is not written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

from einnet.expr.nodes import Number

LEAST_OPSET = 13
"""From here on axes of Squeeze and ReduceSum are inputs, and everything that is written exists."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the model under its name."""

    name: str
    shape: tuple[int, ...]


class Emitter:
    """Nodes of one graph or function; names start with `prefix`."""

    def __init__(self, opset: int, prefix: str = "") -> None:
        self.opset, self.prefix = opset, prefix
        self.nodes: list[NodeProto] = []
        self._written: dict[tuple[str, ...], Value] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def name(self) -> str:
        return f"{self.prefix}v{len(self.nodes)}"

    def op(self, kind: str, inputs: Sequence[Value], shape: tuple[int, ...], *, domain: str = "", output: str = "", **attributes: Any) -> Value:
        """One node with one output of the given shape; the value that is there already where the same was written before."""
        given = [v.name for v in inputs]
        key = (kind, domain, *given, *(f"{k}={v}" for k, v in sorted(attributes.items())))
        known = None if output or kind == "Constant" else self._written.get(key)
        if known is None:
            name = output or self.name()
            self.nodes.append(helper.make_node(kind, given, [name], name=f"{kind}_{name}", domain=domain or None, **attributes))
            known = self._written[key] = Value(name, shape)
        return known

    def constant(self, value: Array) -> Value:
        """A Constant node, written once for equal values."""
        value = np.asarray(value, order="C")
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = self.op("Constant", (), value.shape, value=numpy_helper.from_array(value))
        return self._constants[key]

    def integers(self, values: Sequence[int]) -> Value:
        return self.constant(np.array(values, dtype=np.int64))

    def number(self, value: Number) -> Value:
        return self.constant(np.array(float(value), dtype=np.float32))

    def reshape(self, v: Value, shape: tuple[int, ...]) -> Value:
        assert prod(shape) == prod(v.shape), (v, shape)
        if shape == v.shape:
            return v
        return self._empty(v, shape) if 0 in shape else self.op("Reshape", (v, self.integers(shape)), shape)

    def _empty(self, v: Value, shape: tuple[int, ...]) -> Value:
        """A tensor without elements in another shape: none of its rows is taken, as often as the shape says.

        A 0 in the shape that Reshape is given is another size before opset 14, and in what ONNX Runtime makes of two Reshapes after it.
        """
        rows = self.op("Flatten", (v,), (0, 1), axis=len(v.shape))
        taken = self.op("Gather", (rows, self.constant(np.zeros(shape, np.int64))), (*shape, 1), axis=0)
        return self.op("Squeeze", (taken, self.integers([len(shape)])), shape)

    def transpose(self, v: Value, order: Sequence[int]) -> Value:
        """Axis n of the result is axis order[n]."""
        if list(order) == list(range(len(v.shape))):
            return v
        shape = tuple(v.shape[a] for a in order)
        moving = [a for a in order if v.shape[a] != 1]
        return self.reshape(v, shape) if moving == sorted(moving) else self.op("Transpose", (v,), shape, perm=list(order))

    def expand(self, v: Value, shape: tuple[int, ...]) -> Value:
        return v if shape == v.shape else self.op("Expand", (v, self.integers(shape)), shape)

    def slice(self, v: Value, axis: int, start: int, count: int, step: int = 1) -> Value:
        """`count` elements of an axis from `start` on, `step` apart."""
        if (start, count) == (0, v.shape[axis]) and (step == 1 or count <= 1):
            return v
        shape = (*v.shape[:axis], count, *v.shape[axis + 1 :])
        ends = start + (count - 1) * step + 1 if count else start
        return self.op("Slice", (v, *(self.integers([n]) for n in (start, ends, axis, step))), shape)

    def pad(self, v: Value, axis: int, before: int, after: int, fill: Number) -> Value:
        """`before` and `after` elements with the value `fill` at the ends of an axis."""
        if not before and not after:
            return v
        pads = [0] * (2 * len(v.shape))
        pads[axis], pads[axis + len(v.shape)] = before, after
        shape = (*v.shape[:axis], v.shape[axis] + before + after, *v.shape[axis + 1 :])
        return self.op("Pad", (v, self.integers(pads), self.number(fill)), shape)

    def gather(self, v: Value, axis: int, table: NDArray[np.int64]) -> Value:
        """The elements of an axis that the table names; its axes stand where the axis stood. Progressions become slices."""
        shape = (*v.shape[:axis], *table.shape, *v.shape[axis + 1 :])
        flat = table.reshape(-1)
        step = int(flat[1] - flat[0]) if flat.size > 1 else 1
        if flat.size and step > 0 and (flat.size == 1 or bool((np.diff(flat) == step).all())):
            return self.reshape(self.slice(v, axis, int(flat[0]), flat.size, step), shape)
        return self.op("Gather", (v, self.constant(table)), shape, axis=axis)

    def reduce(self, kind: str, v: Value, axes: Sequence[int]) -> Value:
        """Reduce ("sum", "max", "min") axes away."""
        if not axes:
            return v
        shape = tuple(n for a, n in enumerate(v.shape) if a not in axes)
        name = "Reduce" + kind.capitalize()
        if kind == "sum" or self.opset >= 18:
            return self.op(name, (v, self.integers(axes)), shape, keepdims=0)
        return self.op(name, (v,), shape, keepdims=0, axes=list(axes))
