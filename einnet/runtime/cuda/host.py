"""A CUDA program run on the CPU: the same steps, places, strides and generated text as on a device. For tests; nothing here is fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from einnet.errors import UsageError
from einnet.expr.values.evaluate import evaluate
from einnet.instantiate.kernels import Conv, OpaqueCall, View
from einnet.runtime.arena import storage_dtype
from einnet.runtime.cuda import shim, vendor
from einnet.runtime.cuda.program import CudaProgram, Gemm, Generated, Rounded, short_constants
from einnet.runtime.ort import OpaqueNode
from einnet.runtime.rounded import decoded, encoded

Array = np.ndarray[Any, np.dtype[Any]]

POISON = 0x7F
"""What memory holds before it is written: as float32 3.4e38, so that a read of what nobody wrote shows."""


class Host:
    """The program on this machine's memory.

    `generated` says what runs generated kernels: "text", the CUDA text through a C++ compiler, or "expression", the numpy meaning of what the
    text was made from. By default the text where there is a compiler.
    """

    def __init__(self, program: CudaProgram, generated: str | None = None) -> None:
        self.program = program
        self.generated = generated or ("text" if shim.compiler() else "expression")
        if self.generated not in ("text", "expression"):
            raise UsageError(f"generated kernels run as text or expression, not as {self.generated!r}")
        self._arena = np.full(program.arena_bytes, POISON, np.uint8)
        self._region = np.full(program.constant_bytes, POISON, np.uint8)
        self._short = short_constants(program)
        self.reach: dict[int, float] = {}
        """The greatest absolute value that each step has rounded to 16 bits, by its place."""
        for name, values in program.constants.items():
            self.flat(name)[...] = values.reshape(-1)
        self._shim = shim.Shim(program) if self.generated == "text" else None
        self._calls_of = [self._bound(n, step) for n, step in enumerate(program.steps)]

    def flat(self, buffer: str) -> Array:
        """A buffer's elements in memory."""
        place = self.program.places[buffer]
        dtype = storage_dtype(place.dtype)
        memory = self._region if place.constant else self._arena
        return memory[place.offset : place.offset + place.size * dtype.itemsize].view(dtype)

    def holds(self, buffer: str) -> Array:
        """A copy of a buffer's elements as numbers: of a factor in 16 bits as float32."""
        return decoded(self.flat(buffer), self._short[buffer]) if buffer in self._short else self.flat(buffer).copy()

    def put(self, buffer: str, values: Array) -> None:
        """Let a buffer hold numbers, those of a factor in 16 bits rounded."""
        self.flat(buffer)[...] = encoded(values, self._short[buffer]) if buffer in self._short else values

    def _window(self, view: View) -> Array:
        return vendor.window(view, self.flat(view.buffer))

    def _short_window(self, step: Rounded, view: View) -> Array:
        """A view of a step whose factors lie in 16 bits."""
        factor = view.buffer in (step.inner.a.buffer, step.inner.b.buffer)
        return decoded(self._window(view), step.inner.factors) if factor else self._window(view)

    def _copied(self, place: int, step: Rounded) -> None:
        """Round the factors that change, by the text where there is a compiler, and note how far they reach."""
        for launch in step.launches:
            (source, first), (target, begin) = launch.arguments
            count = int(launch.function.rpartition("_")[2])
            values = self.flat(source)[first : first + count]
            self.reach[place] = max(self.reach.get(place, 0.0), float(np.max(np.abs(values), initial=0.0)))
            if self._shim is not None:
                self._shim.bind(launch, [self.flat(source).ctypes.data + 4 * first, self.flat(target).ctypes.data + 4 * begin])()
            else:
                self.flat(target)[2 * begin : 2 * begin + count] = encoded(values, step.inner.factors)

    def _bound(self, place: int, step: object) -> list[Callable[[], None]]:
        match step:
            case Rounded():
                return [lambda: self._copied(place, step), lambda: vendor.run_gemm(step.inner, lambda v: self._short_window(step, v))]
            case Gemm():
                return [lambda: vendor.run_gemm(step, self._window)]
            case Conv():
                return [lambda: vendor.run_conv(step, self._window)]
            case OpaqueCall():
                inputs, outputs = ([self._window(v) for v in views] for views in (step.inputs, step.outputs))
                return [OpaqueNode(step.model, inputs, outputs, 1, step.origin)]
            case Generated() if self._shim is not None:
                made = self._shim
                return [made.bind(launch, [self.flat(b)[n:].ctypes.data for b, n in launch.arguments]) for launch in step.launches]
            case Generated():
                return [lambda: self._evaluate(step)]
        raise TypeError(step)

    def _evaluate(self, step: Generated) -> None:
        given = {name: self._window(v) for name, v in step.operator.operands}
        self._window(step.operator.out)[...] = evaluate(step.operator.scope, given)

    def step(self, place: int) -> None:
        """Run one step on what is in memory; what leaves the numbers of a device leaves them here without a word."""
        with np.errstate(all="ignore"):
            for call in self._calls_of[place]:
                call()

    def observed(self, inputs: Mapping[str, Array], places: Mapping[str, tuple[View, int]]) -> dict[str, Array]:
        """What memory holds at views, each after the step of that number, when the program runs on inputs."""
        for name, view in self.program.inputs:
            self._window(view)[...] = inputs[name]
        found: dict[str, Array] = {}
        for place in range(len(self.program.steps)):
            self.step(place)
            found.update({name: self._window(view).copy() for name, (view, last) in places.items() if last == place})
        return found

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Raises UsageError for inputs that are not the program's."""
        if inputs.keys() != {name for name, _ in self.program.inputs}:
            raise UsageError(f"the program takes {', '.join(name for name, _ in self.program.inputs)}, not {', '.join(inputs)}")
        for name, view in self.program.inputs:
            self._window(view)[...] = inputs[name]
        for place in range(len(self._calls_of)):
            self.step(place)
        return {name: self._window(view).copy() for name, view in self.program.outputs}
