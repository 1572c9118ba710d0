"""Programs for this processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from einnet.compile.export.onnx_file import SUFFIX, write
from einnet.compile.history import Memory, Places
from einnet.compile.run import Run
from einnet.compile.target import Optimization
from einnet.compile.targets.cpu.finishing import Finishing
from einnet.compile.targets.cpu.left import left
from einnet.compile.targets.cpu.rounded_products import available, likely
from einnet.compile.targets.processor import Timed, resolved, store, timed_report
from einnet.compile.targets.whole.target import WholeTarget
from einnet.derivation.steps import KINDS
from einnet.errors import UsageError, nearest
from einnet.evidence.certificate import Certificate
from einnet.evidence.report.schema import Report
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Program
from einnet.instantiate.kernels.arithmetics import U8I8
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu import compile as codegen
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.levels import features, require
from einnet.search.outcome import Outcome, is_constant
from einnet.search.settings import Settings


@dataclass
class CpuTarget:
    """oneDNN and generated code on this processor; ONNX Runtime with the whole model where that is as fast."""

    settings: Settings
    result = Optimization

    @property
    def counted(self) -> bool:
        """What is forced is the same on every machine."""
        return self.settings.force is not None

    def read(self, model: Any) -> Program:
        """The model, its data in the order that oneDNN's convolutions want; integers as bytes where the processor has products of these, and float64
        in float32 where an error is named. Raises UsageError for an error of an output that there is not."""
        require(self.settings.cpu)
        codegen.begin()
        program = load(model, shapes=self.settings.shapes or None, doubles=self.settings.max_error is not None)
        named(self.settings, [name for name, _ in program.outputs])
        prepared = prepare(program, tables=self.settings.tables, in_bytes=self.in_bytes, finite=self.settings.settles)
        return prepared if self.counted else left(prepared, self.cost)

    @property
    def in_bytes(self) -> bool:
        """Products of bytes are for programs that may add up in another order, on processors that have them, and where no NaN is to be kept."""
        missing = U8I8.missing(features(self.settings.cpu)) or dnnl.available() or dnnl.limit()
        return not missing and self.settings.allow != KINDS[0] and not self.settings.strict_nan

    def otherwise(self, reason: str) -> WholeTarget:
        """The model as it is."""
        return WholeTarget(self.settings, reason)

    @cached_property
    def cost(self) -> CpuCost:
        """Seconds of kernels here, measured or by the roofline."""
        assert self.settings.threads is not None
        return CpuCost(self.settings.threads, constant=is_constant, cpu=self.settings.cpu, arithmetics=likely(self.settings))

    def like(self, settings: Settings) -> CpuTarget:
        """Another target with this one's costs."""
        other = CpuTarget(settings)
        other.cost = self.cost
        return other

    def history(self) -> Memory | None:
        """The profile database; what is forced is neither recalled nor remembered."""
        return Memory(self.cost.database, self.settings, self.places) if self.settings.force is None else None

    @property
    def places(self) -> Places:
        """Where is measured here, and where with narrower and wider budgets of error."""
        own, every = set(likely(self.settings)), available(self.settings)
        chosen = [tuple(a for a in every if a.roundoff <= most) for most in sorted({0.0, *(a.roundoff for a in every)})]
        fewer = [self.cost.place_with(c) for c in chosen if set(c) < own]
        more = [self.cost.place_with(c) for c in chosen if set(c) > own]
        return Places(self.cost.place(), fewer, more, self.cost.stored)

    def finish(self, run: Run, outcome: Outcome) -> Timed:
        """Compile what was chosen, prove, verify and time it; keep the model's own operators, or ONNX Runtime, where they are faster."""
        return Finishing(run, self.settings, self.cost, self.history).of(outcome)

    def report(self, run: Run, made: Timed, certificate: Certificate) -> Report:
        """What was decided and measured."""
        return timed_report(run, made, certificate)

    def store(self, optimization: Optimization, path: Path) -> None:
        """A program of ours, or by its suffix an ONNX model. Raises ArtifactError."""
        (write if path.suffix == SUFFIX else store)(optimization, path)


def named(settings: Settings, outputs: Sequence[str]) -> None:
    """Raises UsageError for an error of an output that is not among these."""
    for name in settings.output_errors:
        if name not in outputs:
            raise UsageError(f"max_error names an output {name!r}; {nearest(name, outputs, 'there are ' + ', '.join(outputs))}")


def target(settings: Settings, profile: object = None, math: object = None) -> CpuTarget:
    """The target of these settings. Raises UsageError for what describes a card."""
    return CpuTarget(resolved(settings, profile, math))
