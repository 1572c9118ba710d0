"""A program to run: kernels in order over buffers."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from einnet.expr.nodes import Scope
from einnet.instantiate.kernels.kernel import Kernel
from einnet.instantiate.kernels.views import View


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage: `size` elements of `dtype`. Role: "input", "output", "constant" or "temporary"."""

    name: str
    size: int
    dtype: str
    role: str


@dataclass(frozen=True, eq=False)
class Plan:
    """A program to run: kernels in order over buffers.

    `inputs` and `outputs` give, for each name of the model in its order, the dense row-major view that holds it (an output may view an
    input or a constant); `constants` the values of constant buffers (flat arrays of `size` elements).

    `expressions` say of constants what they were computed from: expressions over the program's weights. `places` say of tensors that have no
    buffer of their own where they stand in others. Nobody has to believe either: `einnet.evidence` computes and proves them again.
    """

    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    inputs: tuple[tuple[str, View], ...]
    outputs: tuple[tuple[str, View], ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    expressions: Mapping[str, Scope] = field(default_factory=dict)
    places: Mapping[str, View] = field(default_factory=dict)

    def giving(self, outputs: Container[str]) -> Plan:
        """What computes some of the outputs alone, from the inputs that are needed for these; the constants are all there."""
        given = tuple((name, view) for name, view in self.outputs if name in outputs)
        needed, kernels = {view.buffer for _, view in given}, []
        for kernel in reversed(self.kernels):
            if any(view.buffer in needed for view in kernel.result_views):
                kernels.append(kernel)
                needed.update(view.buffer for view in (*kernel.operand_views, *kernel.result_views))
        buffers, inputs = tuple(b for b in self.buffers if b.name in needed), tuple(i for i in self.inputs if i[1].buffer in needed)
        places = {name: view for name, view in self.places.items() if view.buffer in needed}
        return replace(self, buffers=buffers, kernels=tuple(reversed(kernels)), inputs=inputs, outputs=given, places=places)
