"""What the targets on this machine's processor have in common: times beside ONNX Runtime, the report, how programs are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from einnet.compile.run import Made, Run, on_processor
from einnet.compile.target import Optimization
from einnet.errors import UsageError
from einnet.evidence.certificate import Certificate
from einnet.evidence.report.assemble import build_report
from einnet.evidence.report.schema import KernelRow, OnnxOut, PrecisionRow, Report
from einnet.evidence.stored_proofs import Written, metadata_json
from einnet.records import changed
from einnet.runtime import artifact
from einnet.runtime.cpu.threads import asked_threads
from einnet.search.settings import Settings


@dataclass(frozen=True)
class Timed(Made):
    """A program with its times in seconds ("original", "optimized", "onnxruntime"), the bytes that each takes, and what its kernels take."""

    times: Mapping[str, Any]
    peaks: Mapping[str, int | None]
    kernels: tuple[KernelRow, ...] = ()
    own_kernels: tuple[KernelRow, ...] | None = None
    """Those of the model's own operators where ONNX Runtime is kept."""
    precision: PrecisionRow | None = None
    """How a budget of error was spent."""
    onnx_out: OnnxOut | None = None
    """A model that was written for ONNX Runtime, beside the original."""


def timed_report(run: Run, made: Timed, certificate: Certificate) -> Report:
    """The report of a program that was timed."""
    outcome = made.outcome
    parts = (run.model, run.program, outcome, run.settings, made.times, made.verification, certificate, made.kernels, made.peaks, run.used)
    own = None if made.own_kernels is None else list(made.own_kernels)
    return changed(build_report(*parts), own_kernels=own, precision=made.precision, onnx_out=made.onnx_out)


def resolved(settings: Settings, profile: object, math: object) -> Settings:
    """The settings with a number of threads. Raises UsageError for what describes a card."""
    if profile is not None:
        raise UsageError("profile describes a CUDA device: it goes with backend='cuda'")
    if math is not None:
        raise UsageError("math is about products on a CUDA device: it goes with backend='cuda'")
    return replace(settings, threads=asked_threads(settings.threads))


def store(optimization: Optimization, path: Path, written: Written | None = None) -> None:
    """Write an optimization, whole or not at all, and of what a model was `written` for it. Raises ArtifactError where the path cannot be written."""
    metadata, texts = metadata_json(optimization.record, optimization.outcome, optimization.certificate, written)
    executable = on_processor(optimization.executable)
    artifact.save(path, executable.plan, executable.code, metadata, texts, threads=executable.threads)
