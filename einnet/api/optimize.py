"""`einnet.optimize`: a model in, a faster-or-equal verified program with the derivation of every change out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.api.certificate import Certificate, certify
from einnet.api.inputs import gather_inputs
from einnet.api.pipeline import Outcome, is_constant, search
from einnet.api.profile import kernel_profile
from einnet.api.report import build_report
from einnet.api.settings import Progress, Settings
from einnet.api.whole import whole_model
from einnet.derivation.steps import Derivation
from einnet.graph.program import Program

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = {"exact": 1e-4, "reassociation": 1e-4, "precision": 1e-3}
"""Greatest error against ONNX Runtime that passes, relative to max|y|, by the worst class of step that is allowed."""

NOISE = 0.02
"""Two programs whose medians differ by less than this share are called equal, unless the measured noise is greater."""


@dataclass
class Optimization:
    """What `optimize` found.

    Call it with a mapping of input names to arrays, or with the arrays in the model's order, to run the optimized program; `save` writes it as
    an artifact that `einnet.load` and `einnet run` take.
    """

    program: Program
    outcome: Outcome
    executable: Executable
    certificate: Certificate
    report: dict[str, Any]
    settings: Settings

    @property
    def derivations(self) -> list[Derivation]:
        """The derivation of every distinct subprogram that was changed."""
        return list({r.subprogram.key: r.candidate.form.derivation for r in self.outcome.results if r.changed}.values())

    def __call__(self, *args: Array | Mapping[str, Array], **inputs: Array) -> dict[str, Array]:
        """Run the optimized program: outputs by name. Raises UsageError for wrong names, shapes or types."""
        return self.executable(gather_inputs([n for n, _ in self.executable.plan.inputs], args, inputs))

    def save(self, path: str | Path) -> Path:
        """Write the artifact, or for a name that ends in .onnx a standard ONNX model, whole or not at all.

        Raises ArtifactError where the path cannot be written.
        """
        from einnet.api.onnx_out import SUFFIX, write
        from einnet.api.stored import store

        return (write if Path(path).suffix == SUFFIX else store)(self, Path(path))


def optimize(model: Any, settings: Settings | None = None, /, **arguments: Any) -> Optimization:
    """Optimize an ONNX model: a path, an onnx.ModelProto or an onnx_ir.Model.

    Keyword arguments (the fields of Settings):
      max_depth      most explorative rule applications in a derivation (paper section 6.1), default 7
      time_budget    seconds for the whole of it, default 120
      threads        CPU threads, default the physical cores
      backend        "cpu"
      allow          "exact", "reassociation" (default) or "precision": the worst numerical class of step
      derive, converge, fingerprint   False switches the idea off, for ablation
      rules          names of the rules that may be explored, default all
      shapes         input name -> shape, for inputs with symbolic dimensions
      seed           of the random inputs that verify and time the result
      progress       called with Progress

    Raises ModelError for a model that cannot be read, UsageError for a wrong argument, BackendError for a missing library.
    """
    settings = replace(settings, **arguments) if settings else Settings(**arguments)
    started = time.monotonic()
    from einnet.graph.onnx import load as load_model
    from einnet.runtime.cpu.threads import resolve_threads

    settings = replace(settings, threads=resolve_threads(settings.threads))
    tell(settings, "read the model", started)
    program = prepare(load_model(model, shapes=settings.shapes or None))
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.cpu.program import Executable

    assert settings.threads is not None
    cost = CpuCost(settings.threads, constant=is_constant)
    outcome = search(program, settings, cost, started)
    tell(settings, "compile", started)
    executable, baseline = compiled(outcome, settings)
    tell(settings, "check the derivations", started)
    certificate = certify(outcome)
    tell(settings, "verify and time", started)
    from einnet.api.verify import Trial, random_inputs

    trial = Trial(model, program, settings)
    inputs = random_inputs(executable.plan, settings.seed)
    verification = trial.verify(executable, inputs, TOLERANCE[settings.allow])
    left = 0.0 if outcome.interrupted else started + settings.time_budget - time.monotonic()
    seconds = min(max(left, 2.0), 20.0)
    times = trial.compare(executable, baseline, inputs, seconds)
    if slower(times) or not verification["passed"]:
        why = "gained nothing beyond noise" if verification["passed"] else "failed verification"
        outcome.notes.append(f"the derived program {why}: the model's own operators are kept")
        for r in outcome.results:
            r.use_original = True
        executable = baseline
        verification = trial.verify(executable, inputs, TOLERANCE[settings.allow])
        certificate = certify(outcome)
        times = {**times, "optimized": times["original"]}
    if settings.derive and behind(times):
        whole = whole_model(model, executable.plan, [a.name for a in trial.session.inputs])
        again = trial.compare(Executable(whole, settings.threads), executable, inputs, seconds / 2) if whole else None
        if whole and again and again["optimized"].median < again["original"].median:
            outcome.whole = True
            outcome.notes.append("ONNX Runtime runs the whole model: it is faster than all that was found")
            executable, certificate = Executable(whole, settings.threads), Certificate(())
            verification = trial.verify(executable, inputs, TOLERANCE[settings.allow])
            times = {**times, "onnxruntime": again["onnxruntime"], "optimized": again["optimized"]}
    kernels = kernel_profile(outcome, executable, cost, times["optimized"].median)
    report = build_report(model, program, outcome, settings, times, verification, certificate, kernels, time.monotonic() - started)
    return Optimization(program, outcome, executable, certificate, report, settings)


def prepare(program: Program) -> Program:
    """The program passes before the search: simplification, and data in the dimension order that its convolutions want."""
    from einnet.graph.layout import channels_last, permute
    from einnet.graph.simplify import simplify

    program = simplify(program)
    order = channels_last(program)
    return simplify(permute(program, order)) if order else program


def compiled(outcome: Outcome, settings: Settings) -> tuple[Executable, Executable]:
    """The chosen program and the model's own operators, executable; the same one where nothing was changed."""
    from einnet.runtime.cpu.program import Executable

    baseline = Executable(outcome.plan(original=True), settings.threads)
    if not any(r.changed for r in outcome.results):
        return baseline, baseline
    return Executable(outcome.plan(), settings.threads), baseline


def slower(times: Mapping[str, Any]) -> bool:
    """The optimized program is not faster than the model's own operators beyond noise."""
    if times["optimized"] is times["original"]:
        return False
    noise = max(NOISE, times.get("noise", 0.0))
    return bool(times["optimized"].median > times["original"].median * (1 - noise))


def behind(times: Mapping[str, Any]) -> bool:
    """The program is slower than ONNX Runtime beyond noise."""
    noise = max(NOISE, times.get("noise", 0.0))
    return bool(times["optimized"].median > times["onnxruntime"].median * (1 + noise))


def tell(settings: Settings, phase: str, started: float) -> None:
    """Report a phase."""
    if settings.progress:
        settings.progress(Progress(phase, left=max(started + settings.time_budget - time.monotonic(), 0.0)))


