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
from einnet.runtime.cuda.program import CudaProgram, Gemm, Generated
from einnet.runtime.ort import OpaqueNode

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
        for name, values in program.constants.items():
            self.flat(name)[...] = values.reshape(-1)
        self._shim = shim.Shim(program) if self.generated == "text" else None
        self._calls_of = [self._bound(step) for step in program.steps]

    def flat(self, buffer: str) -> Array:
        """A buffer's elements in memory."""
        place = self.program.places[buffer]
        dtype = storage_dtype(place.dtype)
        memory = self._region if place.constant else self._arena
        return memory[place.offset : place.offset + place.size * dtype.itemsize].view(dtype)

    def _window(self, view: View) -> Array:
        return vendor.window(view, self.flat(view.buffer))

    def _bound(self, step: object) -> list[Callable[[], None]]:
        match step:
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
        """Run one step on what is in memory."""
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
