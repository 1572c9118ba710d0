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
from einnet.errors import ArtifactError
from einnet.evidence.report.grid_schema import GridReport
from einnet.graph.onnx.dynamic import Dimension
from einnet.records import as_json, read
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
            self.record = read(GridReport, self.ranged.manifest.metadata["report"])
            dimensions = tuple(Dimension(d.name, d.lowest, d.highest) for d in self.record.dynamic)
            self.domain = Domain(dimensions, {name: tuple(shape) for name, shape in self.record.shapes.items()})
            if not self.record.sizes:
                raise ArtifactError(f"{path} holds no plan for any sizes")

    def __repr__(self) -> str:
        return f"<{self.path}: {self.record.model}, {self.domain}>"

    @cached_property
    def report(self) -> dict[str, Any]:
        """The report of the optimization, as `--json` writes it."""
        found: dict[str, Any] = as_json(self.record)
        return found

    @property
    def stored(self) -> list[Sizes]:
        """The sizes of which the file holds a plan."""
        return [sizes_of(text) for text in self.record.sizes]

    @property
    def known(self) -> list[Sizes]:
        """These, and those of which there is a plan beside it."""
        return [*self.stored, *(sizes for sizes in self.beside.sizes if sizes not in self.stored)]

    @cached_property
    def model(self) -> Any:
        """The model of which plans are made, its dimensions symbolic."""
        import onnx

        with reading(self.path):
            return onnx.load_model_from_string(self.ranged.model(int(self.ranged.manifest.metadata["model"])))

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
        from einnet.compile.grid.making import plan_at, settings_of

        return plan_at(self.model, self.domain, sizes, settings_of(self.record.making))
