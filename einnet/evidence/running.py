"""What runs the kernels of a stored program for the checks: the processor with the stored code, or the host driver with the stored CUDA text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.evidence.exercise import alone
from einnet.instantiate.kernels import Buffer, Kernel, Plan, View
from einnet.runtime.arena import lifetimes, storage_dtype
from einnet.runtime.cpu.program import Executable
from einnet.runtime.cuda.host import Host
from einnet.runtime.cuda.program import CudaProgram, short_constants
from einnet.runtime.rounded import decoded

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.cuda.host import Host

Array = np.ndarray[Any, np.dtype[Any]]

TENSOR = "tensor: "
"""What the names of tensors that a program hands out for a check begin with."""


class OnProcessor:
    """A program for the processor, with the machine code that it has."""

    def __init__(self, executable: Executable) -> None:
        self.executable, self.plan = executable, executable.plan

    def run(self, place: int, given: Mapping[str, Array]) -> dict[str, Array]:
        """See `exercise.Runner`."""
        made = alone(self.plan, place)
        made = replace(made, constants={name: given[name] for name in made.constants})
        return self.bound(made)({name: given[name] for name, _ in made.inputs})

    def bound(self, plan: Plan) -> Executable:
        """Another plan of kernels of the program, with its code."""
        return Executable(plan, self.executable.threads, code=self.executable.code, native=self.executable.native)

    def observing(self, places: Mapping[str, View]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        """Runs the program on inputs and tells what it held at some places."""
        more = tuple((TENSOR + name, view) for name, view in places.items())
        made = self.bound(replace(self.plan, outputs=(*self.plan.outputs, *more)))

        def observed(inputs: Mapping[str, Array]) -> dict[str, Array]:
            return {name.removeprefix(TENSOR): x for name, x in made(inputs).items() if name.startswith(TENSOR)}

        return observed


class OnHost:
    """A program for a CUDA device, run by the host driver: the text that the device would compile, the steps and places that it would use."""

    def __init__(self, program: CudaProgram) -> None:
        self.host: Host = Host(program)
        self.runs_text = self.host.generated == "text"

    def run(self, place: int, given: Mapping[str, Array]) -> dict[str, Array]:
        """See `exercise.Runner`."""
        constants = {name: self.host.flat(name).copy() for name in given if self.host.program.places[name].constant}
        for name, values in given.items():
            self.host.put(name, values)
        self.host.step(place)
        found = {name: self.host.holds(name) for name in given}
        for name, values in constants.items():
            self.host.flat(name)[...] = values
        return found

    def observed(self, inputs: Mapping[str, Array], places: Mapping[str, tuple[View, int]]) -> dict[str, Array]:
        """What the program holds at places, each after the step from which on it does, for inputs by name."""
        return self.host.observed(inputs, places)


def plan_of(program: CudaProgram) -> Plan:
    """The steps of a CUDA program as kernels over buffers, without where in memory these lie. Constants in 16 bits are the float32 that they are."""
    short = short_constants(program)
    given, out = {v.buffer for _, v in program.inputs}, {v.buffer for _, v in program.outputs}
    roles = {n: "constant" if p.constant else "input" if n in given else "output" if n in out else "temporary" for n, p in program.places.items()}
    buffers = tuple(Buffer(n, p.size, "f32" if n in short else p.dtype, roles[n]) for n, p in program.places.items() if not n.startswith("scratch:"))
    kernels = tuple(step if isinstance(step, Kernel) else step.kernel for step in program.steps)
    constants = {n: decoded(x, short[n]) if n in short else x for n, x in program.constants.items()}
    return Plan(buffers, kernels, program.inputs, program.outputs, constants, program.expressions, program.held)


def overlaps(program: CudaProgram) -> list[str]:
    """What lies in one place of the arena while both are needed; steps are what says how long that is."""
    plan = plan_of(program)
    lives = {x.name: (x.first, x.last) for x in lifetimes(plan)}
    for n, step in enumerate(program.steps):
        for launch in () if isinstance(step, Kernel) else step.launches:
            lives.update({b: (n, n) for b, _ in launch.arguments if b.startswith("scratch:")})
    found = []
    spans = sorted((p.offset, p.offset + p.size * storage_dtype(p.dtype).itemsize, n) for n, p in program.places.items() if n in lives)
    for k, (_, end, name) in enumerate(spans):
        for begin, _, other in spans[k + 1 :]:
            if begin >= end:
                break
            if lives[name][0] <= lives[other][1] and lives[other][0] <= lives[name][1]:
                found.append(f"{name} and {other} lie in one place while both are needed")
    return found
