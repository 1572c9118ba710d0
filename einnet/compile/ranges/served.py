"""Programs for a range of sizes: which size a call has, and the program for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.compile.inputs import gather_inputs
from einnet.derivation.ranged import parse
from einnet.errors import ArtifactError, UsageError
from einnet.evidence.pages.report_page import sizes_fragment
from einnet.evidence.report.ranged_schema import RangedReport
from einnet.records import Record, read
from einnet.runtime.pool import Ranged
from einnet.runtime.sealed import reading

if TYPE_CHECKING:
    from einnet.derivation.ranged import RangedFile
    from einnet.instantiate.kernels import Plan
    from einnet.runtime.cpu.program import Executable

Array = np.ndarray[Any, np.dtype[Any]]


class Served(ABC):
    """Programs for every size of a range. Call it as one program is called; the inputs' shapes say which size it is."""

    name: str
    lowest: int
    highest: int

    @abstractmethod
    def plan(self, size: int) -> Plan:
        """What runs at one size."""

    @abstractmethod
    def executable(self, size: int) -> Executable:
        """The program for one size, bound to memory."""

    @cached_property
    def _signatures(self) -> tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, tuple[int, ...]]]:
        """Inputs at the lowest size, and the axes whose extent follows the size."""
        ends = [self._signature(size) for size in dict.fromkeys((self.lowest, self.highest))]
        low, high = ends[0], ends[-1]
        if {n: len(shape) for n, (_, shape) in low.items()} != {n: len(shape) for n, (_, shape) in high.items()}:
            raise ArtifactError(f"the program has other inputs at {self.name} = {self.lowest} than at {self.highest}")
        axes = {name: tuple(n for n, (a, b) in enumerate(zip(low[name][1], high[name][1])) if a != b) for name in low}
        return low, axes

    def _signature(self, size: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        plan = self.plan(size)
        types = {b.name: b.dtype for b in plan.buffers}
        return {name: (types[view.buffer], view.shape) for name, view in plan.inputs}

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of every input, by name, in the model's order; -1 for the dimension that has a range."""
        low, axes = self._signatures
        return {name: (dtype, tuple(-1 if n in axes[name] else dim for n, dim in enumerate(shape))) for name, (dtype, shape) in low.items()}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self._signatures[0])

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs, in the model's order."""
        return tuple(name for name, _ in self.plan(self.lowest).outputs)

    def size(self, inputs: Mapping[str, Array]) -> int:
        """The size that inputs have. Raises UsageError where they disagree, and for a size out of the range, with the range."""
        axes = self._signatures[1]
        found: dict[int, tuple[int, str]] = {}
        for name, value in inputs.items():
            shape = np.shape(value)
            for axis in axes.get(name, ()):
                if axis < len(shape):
                    found.setdefault(shape[axis], (axis, name))
        if len(found) > 1:
            places = ", ".join(f"{size} by dimension {axis} of input {name!r}" for size, (axis, name) in found.items())
            raise UsageError(f"the inputs disagree about {self.name}: {places}")
        size = next(iter(found), self.lowest)
        if not self.lowest <= size <= self.highest:
            axis, name = found[size]
            raise UsageError(f"{self.name} is {size}, by dimension {axis} of input {name!r}; the program serves {self.lowest}..{self.highest}")
        return size

    def __call__(self, *args: Array | Mapping[str, Array], **inputs: Array) -> dict[str, Array]:
        """Outputs by name, for a mapping of input names to arrays or for the arrays in the model's order.

        Raises UsageError for wrong names, shapes or types and for sizes out of the range.
        """
        given = gather_inputs(self._names, args, inputs)
        return self.executable(self.size(given))(given)


class Span(Record):
    """A dimension and its sizes."""

    name: str
    lowest: int
    highest: int


class Brief(Record):
    """As much of a report as running programs needs, which does not depend on the rest."""

    model: str
    dynamic: Span
    sizes: dict[str, Any]


class RangedProgram(Served):
    """Programs for a range of sizes from disk.

    Plans are read, and bound to memory, when their size is first run; the last few stay bound. Calls from several threads are safe.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.ranged = path, Ranged(path)
        try:
            self.report: dict[str, Any] = self.ranged.manifest.metadata["report"]
            self.brief = read(Brief, self.report)
            told = self.brief.dynamic
            self.name, self.lowest, self.highest = told.name, told.lowest, told.highest
            assert self.lowest >= 1 and len(self.brief.sizes) == len(self.sizes)
            assert all(str(size) in self.brief.sizes for size in self.sizes)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path} holds programs but no report of an optimization for a range of sizes") from error

    def __repr__(self) -> str:
        return f"<{self.path}: {self.brief.model}, {self.name} in {self.lowest}..{self.highest}>"

    def _repr_html_(self) -> str:
        """The sizes that were measured, for a notebook."""
        return sizes_fragment(self.record)

    @cached_property
    def record(self) -> RangedReport:
        """The report with its types. Raises ArtifactError for one that is none."""
        with reading(self.path):
            return read(RangedReport, self.report)

    @property
    def sizes(self) -> range:
        """The sizes that it serves."""
        return range(self.lowest, self.highest + 1)

    @cached_property
    def derivations(self) -> list[RangedFile]:
        """The derivations that the programs stand on, with the size as a name, and where they hold."""
        with reading(self.path):
            return [parse(text) for text in self.ranged.texts]

    def plan(self, size: int) -> Plan:
        """What runs at one size."""
        return self.ranged.loaded(size).plan

    def executable(self, size: int) -> Executable:
        """The program for one size, bound to memory."""
        return self.ranged.executable(size)
