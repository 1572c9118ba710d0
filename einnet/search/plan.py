"""The chosen candidates of all subprograms as one plan over the program's buffers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import TypeVar

import numpy as np

from einnet.expr.integers import BYTES
from einnet.expr.nodes import Scope, Tensor, exchange_in, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.graph.dtypes import NUMPY, dtype_name
from einnet.graph.program import Opaque, Program
from einnet.instantiate.build import Build
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, OpaqueCall, Plan, View, dense_view
from einnet.instantiate.recursions.time_schedule import schedule
from einnet.instantiate.stitch import Window

T = TypeVar("T")


DEAR_S = 0.1
"""Seconds that computing a value takes at least for it to be kept where memory counts."""


class Evaluated:
    """Values of weight-only scopes, computed once for the same arrays: in float64, and then rounded, so that anyone can compute the same again.

    Those that take less than `least_s` seconds are not kept.
    """

    def __init__(self, least_s: float = 0.0) -> None:
        self._least_s = least_s
        self._known: dict[tuple[Scope, tuple[tuple[str, int], ...]], tuple[np.ndarray, Mapping[str, np.ndarray]]] = {}

    def get(self, scope: Scope, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The value of a scope over these arrays, flat."""
        key = scope, tuple((name, id(value)) for name, value in values.items())
        if key in self._known:
            return self._known[key][0]
        begin = time.monotonic()
        flat = np.ascontiguousarray(evaluate(scope, values), dtype=np.float32).reshape(-1)
        if time.monotonic() - begin >= self._least_s:  # the arrays are kept with the value, so that nothing else gets their place in memory
            self._known[key] = flat, values
        return flat


class Assembly:
    """Collects kernels in program order; `finish` gives the plan."""

    def __init__(self, program: Program, evaluated: Evaluated | None = None) -> None:
        self.program, self.evaluated = program, evaluated or Evaluated()
        self.tensors = program.tensors()
        self.kernels: list[Kernel] = []
        self.temporaries: dict[str, Buffer] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.expressions: dict[str, Scope] = {}
        self._weights: dict[tuple[str, tuple[str, ...]], str] = {}

    def add(self, build: Build, names: Mapping[str, str], out: str) -> None:
        """Append a subprogram's kernels; `names` maps the tensors of its expression to those of the program."""
        prefix = f"s{len(self.kernels)}_"
        mapping = {**names, "out": out}
        for name, scope in build.weights.items():
            mapping[name] = self.weight(scope, names)
        mapping.update(self.algorithm_constants(build))
        for name, buffer in build.temporaries.items():
            mapping[name] = prefix + name
            self.temporaries[prefix + name] = replace(buffer, name=prefix + name)
        self.kernels += [self.stored(rebind(k, mapping)) for k in build.kernels]

    def stored(self, kernel: Kernel) -> Kernel:
        """The kernel, writing elements of the type that the tensor has."""
        tensor = self.tensors.get(kernel.result_views[0].buffer)
        return kernel if tensor is None else kernel.storing(tensor.dtype)

    def algorithm_constants(self, build: Build) -> dict[str, str]:
        """Constant buffers for the tensors that carry their own values, under names that no tensor of the program has."""
        found: dict[str, str] = {}
        for kernel in build.kernels:
            for t in tensors(kernel.scope).values() if isinstance(kernel, EOperator) else ():
                if t.values is not None:
                    found[t.name] = self.table(t.name, np.array([float(v) for v in t.values], dtype=np.float32))
        return found

    def table(self, name: str, values: np.ndarray) -> str:
        """The constant buffer that holds a table: one for all that are alike, another one for tables of that name with other values."""
        place = f"{name}_values"
        while place in self.constants and not np.array_equal(self.constants[place], values):
            place += "_"
        self.constants[place] = values
        return place

    def weight(self, scope: Scope, names: Mapping[str, str]) -> str:
        """The constant buffer with a weight-only scope's value, computed now, once for all its users."""
        given = {t.name: names[t.name] for t in tensors(scope).values() if t.values is None}
        used = tuple(given.values())
        key = (scope.key, used)
        if key not in self._weights:
            values = {t: self.program.weights[name] for t, name in given.items()}
            name = f"w{len(self._weights)}"
            while name in self.tensors:
                name += "_"
            self.constants[name] = self.evaluated.get(scope, values)
            self.expressions[name] = exchange_in(scope, {t: self.tensors[actual] for t, actual in given.items()})
            self._weights[key] = name
        return self._weights[key]

    def opaque(self, node: Opaque) -> None:
        """Append an opaque node."""
        views = tuple(dense_view(n, self.tensors[n].shape if n in self.tensors else np.shape(self.program.weights[n])) for n in node.inputs)
        outputs = tuple(dense_view(t.name, t.shape) for t in node.outputs)
        recursion = node.recursion if node.recursion is not None and schedule(node.recursion) is not None else None
        self.kernels.append(OpaqueCall(node.model, views, outputs, ", ".join(node.origin), recursion))

    def window(self, tensor: Tensor, whole: str, place: Window) -> None:
        """Append the copy of a tensor out of another one in which it stands; who can read it there may do without (`search.copy_elimination`)."""
        self.kernels.append(place.copy(tensor.name, whole))

    def finish(self) -> Plan:
        """The plan: buffers and constants for all that is used, constants flat. What none of the kernels reads is not there."""
        used = dict.fromkeys(v.buffer for k in self.kernels for v in views_of(k))
        inputs = dict.fromkeys(t.name for t in self.program.inputs)
        given_out = dict.fromkeys(tensor for _, tensor in self.program.outputs)
        stored = self.program.weights.keys() - inputs.keys() - {t.name for node in self.program.nodes for t in node.outputs}
        buffers = []
        for name in {**inputs, **used, **given_out}:
            if name in self.temporaries:
                buffers.append(self.temporaries[name])
            elif name in self.constants or name in stored:
                buffers.append(self.constant(name))
            else:
                tensor = self.tensors[name]
                role = "input" if name in inputs else "output" if name in given_out else "temporary"
                buffers.append(Buffer(name, prod(tensor.shape), tensor.dtype, role))
        outputs = tuple((onnx_name, dense_view(tensor, self._shape(tensor))) for onnx_name, tensor in self.program.outputs)
        given = tuple((self.program.names.get(t.name, t.name), dense_view(t.name, t.shape)) for t in self.program.inputs)
        there = {b.name for b in buffers}
        return Plan(tuple(buffers), tuple(self.kernels), given, outputs, within(self.constants, there), within(self.expressions, there))

    def constant(self, name: str) -> Buffer:
        """The buffer of a constant, whose values are flat from now on: one that is computed, or a weight of the program."""
        if name in self.constants:
            dtype = self.kind(name)
            self.constants[name] = self.constants[name].astype(NUMPY[dtype], copy=False)
        else:
            value = np.asarray(self.program.weights[name])
            self.constants[name] = np.ascontiguousarray(value).reshape(-1)
            dtype = self.tensors[name].dtype if name in self.tensors else dtype_of(value)
        return Buffer(name, self.constants[name].size, dtype, "constant")

    def kind(self, name: str) -> str:
        """The element type of a constant that is computed: bytes where all kernels that read it multiply bytes, and it has such numbers."""
        kinds = {kind for k in self.kernels for view, kind in k.elements if view.buffer == name}
        kind = kinds.pop() if len(kinds) == 1 else "f32"
        return kind if kind in BYTES and np.array_equal(self.constants[name], self.constants[name].astype(NUMPY[kind])) else "f32"

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape if name in self.tensors else np.shape(self.program.weights[name])


def dtype_of(value: np.ndarray) -> str:
    """The language's name of an array's type."""
    name = dtype_name(value.dtype)
    assert name is not None, value.dtype
    return name


def views_of(kernel: Kernel) -> Iterable[View]:
    """Everything the kernel reads and writes."""
    return (*kernel.operand_views, *kernel.result_views)


def rebind(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel over other buffers."""

    def view(v: View) -> View:
        return replace(v, buffer=names.get(v.buffer, v.buffer))

    return kernel.map_views(view)


def within(given: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    """What is given for some names."""
    return {name: value for name, value in given.items() if name in names}
