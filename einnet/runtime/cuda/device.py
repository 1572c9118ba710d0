"""A CUDA program on a device: one arena, every step bound to addresses, all that does not need the host captured as one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from einnet.errors import BackendError, UsageError
from einnet.instantiate.kernels import Conv, OpaqueCall, View
from einnet.instantiate.kernels.arithmetics import math_of
from einnet.runtime.arena import storage_dtype
from einnet.runtime.cuda.convolutions import described
from einnet.runtime.cuda.driver import Call, Driver, on_card
from einnet.runtime.cuda.libraries import Libraries
from einnet.runtime.cuda.program import CudaProgram, Gemm, Generated, Launch, Rounded, Step, texts_of
from einnet.runtime.cuda.tuning import Choice, Tuning, fastest, step_key
from einnet.runtime.ort import OpaqueNode

Array = np.ndarray[Any, np.dtype[Any]]
MATH = ("fp32", "tf32")
"""fp32: every product in float32. tf32: products of numbers with 10 bits behind the point, on tensor cores, summed in float32."""


class Device:
    """The program on the current device; `tuning` holds choices of an earlier run, which are used again where they were made for this device.

    `math` is that of products which are not in an arithmetic of their own.

    Raises BackendError without a device or a library, or for a step that a library does not run; UsageError for another arithmetic.
    """

    def __init__(self, program: CudaProgram, math: str = "fp32", tuning: Tuning | None = None, driver: Driver | None = None) -> None:
        if math not in MATH:
            raise UsageError(f"arithmetic of products that have none of their own is {' or '.join(MATH)}, not {math!r}")
        self.program, self.math = program, math
        self.libraries = Libraries(driver)
        self.driver = self.libraries.driver
        self._bases = {False: self.driver.allocate(program.arena_bytes), True: self.driver.allocate(program.constant_bytes)}
        self._addresses = {name: self._bases[p.constant] + p.offset for name, p in program.places.items()}
        for name, values in program.constants.items():
            self.driver.write(self._addresses[name], np.ascontiguousarray(values, storage_dtype(program.places[name].dtype)))
        self._products = {m: self.libraries.products(m) for m in self._maths(Gemm)}
        self._convolutions = {m: self.libraries.convolutions(m) for m in self._maths(Conv)}
        used = {name: program.texts[name] for s in program.steps for name in texts_of(s)}
        self._function = self.driver.functions(used)
        name, versions = str(self.driver.properties()["name"]), self.versions()
        known = tuning.choices if tuning and tuning.holds_for(name, math, versions) else {}
        self._choices: dict[str, Choice] = dict(known)
        self.tuned = 0
        """Steps whose algorithm was chosen by time now."""
        self.calls: list[Call] = []
        """Every launch of an inference, one by one."""
        self.runs = list(self._runs(program.steps))
        self.tuning = Tuning(name, math, versions, self._choices)

    def versions(self) -> dict[str, str]:
        """Of everything that a choice of algorithms depends on."""
        found = self.driver.versions()
        if self._products:
            found["cublaslt"] = next(iter(self._products.values())).version()
        if self._convolutions:
            found["cudnn"] = next(iter(self._convolutions.values())).version()
        return found

    def _maths(self, kind: type[Gemm] | type[Conv]) -> list[str]:
        """The arithmetics of a library's steps, by what they are called."""
        steps = (s.inner if isinstance(s, Rounded) else s for s in self.program.steps)
        return sorted({self._math(s) for s in steps if isinstance(s, (Gemm, Conv)) and isinstance(s, kind)})

    def _math(self, step: Gemm | Conv) -> str:
        """A step's own arithmetic, or that of the run."""
        return math_of(step.factors) if step.factors.rounds else self.math

    def _runs(self, steps: Sequence[Step]) -> list[Call]:
        """A graph for all steps between two that the host runs."""
        found: list[Call] = []
        for on_host, group in groupby(steps, lambda s: isinstance(s, OpaqueCall)):
            if on_host:
                found += [self._opaque(s) for s in group if isinstance(s, OpaqueCall)]
            else:
                found.append(self._graph([(s, call) for s in group for call in self._bound(s)]))
        return found

    def _graph(self, calls: list[tuple[Step, Call]]) -> Call:
        """The calls run once, since libraries set themselves up in their first call, each to its end, so that an error is that of a step; then
        they are captured."""
        for step, call in calls:
            try:
                call()
                self.driver.wait()
            except Exception as e:  # of CuPy or of a library, which have errors of their own
                raise BackendError(f"{told(step)} fails on the device: {e}") from e
        self.calls += [call for _, call in calls]
        return self.driver.capture([call for _, call in calls]) if calls else lambda: None

    def _bound(self, step: Step) -> list[Call]:
        match step:
            case Generated():
                return [self._launched(step.text, x) for x in step.launches]
            case Rounded():
                return [*(self._launched(x.function, x) for x in step.launches), *self._bound(step.inner)]
            case Gemm():
                products = self._products[self._math(step)]
                return self._chosen(step, bytes, products.proposals, products.bind)
            case Conv():
                convolutions = self._convolutions[self._math(step)]
                return self._chosen(step, object, convolutions.proposals, convolutions.bind)
        raise TypeError(step)

    def _launched(self, text: str, launch: Launch) -> Call:
        addresses = [self._addresses[b] + 4 * n for b, n in launch.arguments]
        return self.driver.launch(self._function(text, launch.function), launch.grid, launch.block, addresses)

    def _chosen(self, step: Any, kind: type, proposals: Callable[..., Any], bind: Callable[..., list[Call]]) -> list[Call]:
        """The step with the choice that is known for it, else with the fastest that the library proposes."""
        key = step_key(step)
        if key in self._choices:
            try:
                return bind(step, self._addresses, self._choices[key])
            except BackendError:
                del self._choices[key]  # chosen by a library that has changed without another version
        given = (step, self._addresses) if kind is bytes else (step,)
        choice = fastest(self.driver, proposals(*given), lambda p: bind(step, self._addresses, p))
        self._choices[key] = choice
        self.tuned += 1
        return bind(step, self._addresses, choice)

    def _opaque(self, step: OpaqueCall) -> Call:
        """A node that ONNX Runtime executes on the host: its operands travel there and back."""
        inputs, outputs = ([self._like(v) for v in views] for views in (step.inputs, step.outputs))
        node = OpaqueNode(step.model, inputs, outputs, 1, step.origin)

        def call() -> None:
            self.driver.wait()
            for view, values in zip(step.inputs, inputs, strict=True):
                self.driver.read(self._at(view), values)
            node()
            for view, values in zip(step.outputs, outputs, strict=True):
                self.driver.write(self._at(view), values)

        return call

    def _like(self, view: View) -> Array:
        return np.zeros(view.shape, storage_dtype(self.program.places[view.buffer].dtype))

    def _at(self, view: View) -> int:
        return self._addresses[view.buffer] + view.offset * storage_dtype(self.program.places[view.buffer].dtype).itemsize

    def load(self, inputs: Mapping[str, Array]) -> None:
        """Copy the inputs to the device. Raises UsageError for inputs that are not the program's."""
        self._check_names(inputs)
        for name, view in self.program.inputs:
            self._load(name, view, inputs[name])

    def _check_names(self, inputs: Mapping[str, Any]) -> None:
        if inputs.keys() != {name for name, _ in self.program.inputs}:
            raise UsageError(f"the program takes {', '.join(name for name, _ in self.program.inputs)}, not {', '.join(inputs)}")

    def _load(self, name: str, view: View, values: Array) -> None:
        wanted = self._like(view)
        if (values.shape, values.dtype) != (wanted.shape, wanted.dtype):
            raise UsageError(f"input {name!r} is {wanted.dtype}{list(wanted.shape)}, not {values.dtype}{list(values.shape)}")
        self.driver.write(self._at(view), np.ascontiguousarray(values))

    def tensors(self) -> dict[str, Any]:
        """Inputs and outputs by name as arrays of CuPy in the program's own memory: what is written there and then given is not copied.

        Inputs are to be written before each call, which may use their memory for other values once they are read.
        """
        return {name: self._array(view) for name, view in (*self.program.inputs, *self.program.outputs)}

    def _array(self, view: View) -> Any:
        return self.driver.array(self._at(view), view.shape, view.strides, storage_dtype(self.program.places[view.buffer].dtype))

    def on_card(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name as tensors of the library that the first tensor on the card is of, in the program's own memory: they hold until the
        next call. Inputs on the card are copied inside it, unless they are the program's own; arrays of the host come along.

        The call does not wait: the caller's stream waits for the program's, as that does for the caller's. Raises UsageError for wrong inputs.
        """
        self._check_names(inputs)
        like = next(value for value in inputs.values() if on_card(value))
        for name, view in self.program.inputs:
            if not on_card(inputs[name]):
                self._load(name, view, np.asarray(inputs[name]))
                continue
            source, target = self.driver.taken(inputs[name]), self._array(view)
            if (source.shape, source.dtype) != (target.shape, target.dtype):
                raise UsageError(f"input {name!r} is {target.dtype}{list(target.shape)}, not {source.dtype}{list(source.shape)}")
            if (source.data.ptr, source.strides) != (target.data.ptr, target.strides):
                self.driver.assign(target, source)
        self.execute()
        return {name: self.driver.given(self._array(view), like) for name, view in self.program.outputs}

    def execute(self) -> None:
        """One inference on what lies in the arena; returns when it has been launched."""
        for run in self.runs:
            run()

    def fetch(self) -> dict[str, Array]:
        """Outputs by name, copied from the device."""
        self.driver.wait()
        found = {name: self._like(view) for name, view in self.program.outputs}
        for name, view in self.program.outputs:
            self.driver.read(self._at(view), found[name])
        return found

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Raises UsageError for inputs that are not the program's."""
        self.load(inputs)
        self.execute()
        return self.fetch()


def told(step: Step) -> str:
    """The step for a message."""
    match step:
        case Generated():
            return f"generated kernel {step.text}"
        case Gemm() | Rounded():
            whole = step.product if isinstance(step, Rounded) else step
            return f"the product of {whole.m}x{whole.k} and {whole.k}x{whole.n} matrices"
        case Conv():
            return described(step)
    return f"node {step.origin}"
