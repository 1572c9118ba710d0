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
from einnet.evidence.report.plain import plain
from einnet.evidence.report.schema import KernelRow, Report
from einnet.evidence.stored_proofs import derivations_told
from einnet.runtime import artifact
from einnet.runtime.cpu.threads import resolve_threads
from einnet.search.settings import Settings


@dataclass(frozen=True)
class Timed(Made):
    """A program with its times in seconds ("original", "optimized", "onnxruntime"), the bytes that each takes, and what its kernels take."""

    times: Mapping[str, Any]
    peaks: Mapping[str, int | None]
    kernels: tuple[KernelRow, ...] = ()
    own_kernels: tuple[KernelRow, ...] | None = None
    """Those of the model's own operators where ONNX Runtime is kept."""
    onnx_out: dict[str, Any] | None = None
    """A model that was written for ONNX Runtime, beside the original."""


def timed_report(run: Run, made: Timed, certificate: Certificate) -> Report:
    """The report of a program that was timed."""
    outcome = made.outcome
    parts = (run.model, run.program, outcome, run.settings, made.times, made.verification, certificate, made.kernels, made.peaks, run.used)
    report = build_report(*parts)
    if made.own_kernels is not None:
        report["own_kernels"] = list(made.own_kernels)
    if made.onnx_out is not None:
        report["onnx_out"] = made.onnx_out
    return report


def resolved(settings: Settings, profile: object, math: object) -> Settings:
    """The settings with a number of threads. Raises UsageError for what describes a card."""
    if profile is not None:
        raise UsageError("profile describes a CUDA device: it goes with backend='cuda'")
    if math is not None:
        raise UsageError("math is about products on a CUDA device: it goes with backend='cuda'")
    return replace(settings, threads=resolve_threads(settings.threads))


def store(optimization: Optimization, path: Path, more: Mapping[str, Any] | None = None) -> None:
    """Write an optimization, whole or not at all, and what `more` is to be told of it. Raises ArtifactError where the path cannot be written."""
    told, texts = derivations_told(optimization.outcome, optimization.certificate)
    metadata = plain({"report": optimization.report, **told, **(more or {})})
    executable = on_processor(optimization.executable)
    artifact.save(path, executable.plan, executable.code, metadata, texts, threads=executable.threads)
