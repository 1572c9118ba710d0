"""Programs for ranges of several dimensions: which sizes a call has, and the plan for them, which is made when it is first used."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.compile.grid.beside import Beside
from einnet.compile.grid.domain import Domain, Sizes, key, sizes_of
from einnet.compile.inputs import gather_inputs
from einnet.compile.targets.stored import StoredProgram
from einnet.errors import ArtifactError, BackendError
from einnet.evidence.report.grid_schema import GridReport, Making, Ranging
from einnet.graph.dimension import Dimension
from einnet.records import Record, read
from einnet.runtime.pool import GRID, Ranged
from einnet.runtime.sealed import reading

if TYPE_CHECKING:
    from einnet.compile.target import Optimization

Array = np.ndarray[Any, np.dtype[Any]]

BOUND = 8
"""Plans that stay bound to memory: those that were run last."""


class Gridded(ABC):
    """Programs for tuples of sizes. Call it as one program is called; the inputs' shapes say which sizes they are."""

    domain: Domain

    @property
    @abstractmethod
    def known(self) -> Sequence[Sizes]:
        """The sizes of which a plan is there."""

    @abstractmethod
    def plan(self, sizes: Sizes) -> Optimization | StoredProgram:
        """The plan for some sizes, which is made first where there is none: that takes the seconds that the report tells."""

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Element type and shape of every input, by name, in the model's order; -1 for dimensions that have a range."""
        return {name: (self._types[name], tuple(-1 if isinstance(dim, str) else dim for dim in shape)) for name, shape in self.domain.shapes.items()}

    @property
    @abstractmethod
    def _types(self) -> Mapping[str, str]:
        """Element types of the inputs."""

    def __call__(self, *args: Array | Mapping[str, Array], **inputs: Array) -> dict[str, Array]:
        """Outputs by name, for a mapping of input names to arrays or for the arrays in the model's order.

        Raises UsageError for wrong names, shapes or types and for sizes out of the ranges.
        """
        given = gather_inputs(tuple(self.domain.shapes), args, inputs)
        return self.plan(self.domain.sizes(given))(given)

    def prepare(self, *sizes: int, **named: int) -> None:
        """Make the plan for some sizes now, in the order of the dimensions or by their names. Raises UsageError for sizes out of the ranges."""
        self.plan(self.domain.ordered(sizes, named))


class Brief(Record):
    """As much of a report as running programs, and making others, needs."""

    model: str
    dynamic: list[Ranging]
    shapes: dict[str, list[int | str]]
    making: Making
    sizes: dict[str, Any]


class GridProgram(Gridded):
    """Programs for ranges of several dimensions from disk.

    A plan that the file does not hold is made when its sizes are first run, and kept in a folder beside the file, so that the next process has it.
    Calls from several threads are safe.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.ranged = path, Ranged(path, GRID)
        self.beside = Beside(path)
        self._bound, self._lock = OrderedDict[Sizes, StoredProgram](), threading.RLock()
        with reading(path):
            self.report: dict[str, Any] = self.ranged.manifest.metadata["report"]
            self.brief = read(Brief, self.report)
            dimensions = tuple(Dimension(d.name, d.lowest, d.highest) for d in self.brief.dynamic)
            self.domain = Domain(dimensions, {name: tuple(shape) for name, shape in self.brief.shapes.items()})
            if not self.brief.sizes:
                raise ArtifactError(f"{path} holds no plan for any sizes")

    def __repr__(self) -> str:
        return f"<{self.path}: {self.brief.model}, {self.domain}>"

    @cached_property
    def record(self) -> GridReport:
        """The report with its types. Raises ArtifactError for one that is none."""
        with reading(self.path):
            return read(GridReport, self.report)

    @property
    def stored(self) -> list[Sizes]:
        """The sizes of which the file holds a plan."""
        return [sizes_of(text) for text in self.brief.sizes]

    @property
    def known(self) -> list[Sizes]:
        """These, and those of which there is a plan beside it."""
        return [*self.stored, *(sizes for sizes in self.beside.sizes if sizes not in self.stored)]

    @cached_property
    def model(self) -> Any:
        """The model of which plans are made, its dimensions symbolic."""
        from einnet.graph.onnx.read import parsed

        with reading(self.path):
            return parsed(self.ranged.model(int(self.ranged.manifest.metadata["model"])))

    @cached_property
    def _types(self) -> Mapping[str, str]:
        return {name: dtype for name, (dtype, _) in self.plan(self.stored[0]).inputs.items()}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs, in the model's order."""
        return self.plan(self.stored[0]).output_names

    def plan(self, sizes: Sizes) -> StoredProgram:
        """The plan for some sizes, bound to memory when it is run. Raises UsageError for sizes out of the ranges."""
        self.domain.check(sizes)
        with self._lock:
            if sizes not in self._bound:
                while len(self._bound) >= BOUND:
                    self._bound.popitem(last=False)
                self._bound[sizes] = self._found(sizes)
            self._bound.move_to_end(sizes)
            return self._bound[sizes]

    def _found(self, sizes: Sizes) -> StoredProgram:
        if sizes in self.stored:
            return StoredProgram(self.path, self.ranged.loaded(key(sizes)))
        return self.beside.plan(sizes, lambda: self._made(sizes))

    def _made(self, sizes: Sizes) -> Optimization:
        try:
            from einnet.compile.grid.making import plan_at, settings_of

            return plan_at(self.model, self.domain, sizes, settings_of(self.brief.making))
        except ModuleNotFoundError as error:
            told = f"{self.path} holds no plan for {self.domain.told(sizes)}"
            raise BackendError(f"{told}, and none can be made here: {error.name} is not installed") from error
