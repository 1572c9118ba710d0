"""Optimizing for ranges of several dimensions: corners and the middle now, each as a model of these sizes; others when they are first used."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from einnet.compile.budget import exceeded
from einnet.compile.grid.domain import Domain, Ranges, Sizes, dimensions_of, key
from einnet.compile.grid.making import making, plan_at, settings_of, told_of
from einnet.compile.grid.served import Gridded
from einnet.compile.run import on_processor
from einnet.compile.target import Optimization, Target
from einnet.compile.targets.cpu.target import CpuTarget
from einnet.errors import UsageError
from einnet.evidence.report.grid_schema import GridReport, Ranging
from einnet.evidence.report.plain import plain
from einnet.evidence.stored_proofs import metadata_json
from einnet.graph.onnx.dynamic import symbolic
from einnet.records import as_json
from einnet.runtime.pool import GRID, Pool, save
from einnet.runtime.whole import Whole
from einnet.search.settings import Settings, tell
from einnet.search.time_shares import RANGE_LEAST_S

if TYPE_CHECKING:
    import onnx


@dataclass
class GridOptimization(Gridded):
    """What `optimize` found for ranges of several dimensions. Call it as an Optimization is called; `save` writes one artifact."""

    domain: Domain
    settings: Settings
    made: dict[Sizes, Optimization]
    record: GridReport
    model: onnx.ModelProto

    def __repr__(self) -> str:
        return f"<{self.record.model}, {self.domain}>"

    @cached_property
    def report(self) -> dict[str, Any]:
        """What was decided and measured, as `--json` writes it."""
        found: dict[str, Any] = as_json(self.record)
        return found

    @property
    def known(self) -> list[Sizes]:
        """The sizes of which a plan is there."""
        return list(self.made)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs, in the model's order."""
        return tuple(on_processor(next(iter(self.made.values())).executable).output_names)

    @property
    def _types(self) -> dict[str, str]:
        return {name: dtype for name, (dtype, _) in signature(next(iter(self.made.values()))).items()}

    def plan(self, sizes: Sizes) -> Optimization:
        """The plan for some sizes. Raises UsageError for sizes out of the ranges."""
        if self.domain.check(sizes) not in self.made:
            self.made[sizes] = plan_at(self.model, self.domain, sizes, settings_of(self.record.making))
        return self.made[sizes]

    def save(self, path: str | Path) -> Path:
        """Write the artifact, whole or not at all. Raises ArtifactError where the path cannot be written."""
        pool, members = Pool(), {}
        for sizes, found in self.made.items():
            executable = on_processor(found.executable)
            metadata, texts = metadata_json(found.record, found.outcome, found.certificate)
            members[key(sizes)] = replace(pool.add(executable.plan, executable.code), metadata=metadata, texts=tuple(texts))
        model = self.model.SerializeToString()
        number = pool.models.number(model, model)
        save(Path(path), pool, members, plain({"report": self.record, "model": number}), (), self.record.making.threads, GRID)
        return Path(path)


def optimize_grid(model: Any, ranges: Ranges, target: Target[Any]) -> GridOptimization:
    """Optimize an ONNX model for ranges of several dimensions, "batch=1..8 seq=16..512", which it names (or `batch`, of a static one).

    Raises UsageError for wrong ranges or arguments, ModelError for a model without these dimensions or one that cannot be read at a size.
    """
    if not isinstance(target, CpuTarget):
        raise UsageError("ranges of sizes are served by programs for this CPU only: backend cpu, target native")
    started, settings = time.monotonic(), target.settings
    title = str(model) if isinstance(model, (str, Path)) else model.graph.name or "model"
    tell(settings, "read the model", started)
    dimensions = dimensions_of(ranges)
    source = symbolic(model, [d.name for d in dimensions])
    domain = Domain(dimensions, source.known([d.name for d in dimensions], settings.shapes))
    measured, made = domain.measured(), dict[Sizes, Optimization]()
    for n, sizes in enumerate(measured):
        tell(settings, domain.told(sizes), started)
        left = max(started + settings.time_budget - time.monotonic(), 0.0)
        share = max(left / (len(measured) - n), settings.time_budget / len(measured) / 2)
        share = float(RANGE_LEAST_S) if any(found.outcome.interrupted for found in made.values()) else share
        made[sizes] = plan_at(source.model, domain, sizes, replace(settings, time_budget=share), target)
    total = time.monotonic() - started
    report = GridReport(
        model=title,
        dynamic=[Ranging(**d._asdict()) for d in dimensions],
        shapes=told_of(domain.shapes),
        making=making(settings, settings.time_budget / len(measured)),
        sizes={key(sizes): found.timed for sizes, found in made.items()},
        total_s=total,
        notes=exceeded(total, settings),
    )
    return GridOptimization(domain, settings, made, report, source.model)


def signature(made: Optimization) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Element type and shape of every input of a plan."""
    executable = on_processor(made.executable)
    if isinstance(executable, Whole):
        return executable.signature
    types = {b.name: b.dtype for b in executable.plan.buffers}
    return {name: (types[view.buffer], view.shape) for name, view in executable.plan.inputs}
