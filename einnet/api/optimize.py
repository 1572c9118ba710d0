"""`einnet.optimize`: a model in, a faster-or-equal verified program with the derivation of every change out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from einnet.api.assured import SHARE, assured, with_evidence
from einnet.api.certificate import Certificate, certify
from einnet.api.decide import Contest
from einnet.api.inputs import gather_inputs
from einnet.api.memory import Memory
from einnet.api.pipeline import Outcome, is_constant, search
from einnet.api.profile import kernel_profile
from einnet.api.programs import built, compiled, peak_bytes
from einnet.api.report import build_report
from einnet.api.schedule import CountedClock, Schedule
from einnet.api.settings import Arguments, Progress, Settings, chosen
from einnet.api.sound import agreeing, keep_proven
from einnet.api.verify import WHOLE
from einnet.api.whole import whole_model
from einnet.derivation.steps import Derivation
from einnet.errors import BackendError, NotStaticError, UsageError
from einnet.graph.program import Program

if TYPE_CHECKING:
    from einnet.api.cuda import CudaOptimization
    from einnet.api.dynamic import DynamicOptimization
    from einnet.api.verify import Trial
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.cpu.program import Executable
    from einnet.runtime.whole import Whole

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = {"exact": 1e-4, "reassociation": 1e-4, "precision": 1e-3}
"""Greatest error against ONNX Runtime that passes, relative to max|y|, by the worst class of step that is allowed."""

HEAVY = 1.5
"""Times what ONNX Runtime takes: a program of more memory has a note that says what for."""

LATE = 1.1
"""Share of the time budget beyond which the report says that it was exceeded."""


@dataclass
class Optimization:
    """What `optimize` found.

    Call it with a mapping of input names to arrays, or with the arrays in the model's order, to run the optimized program; `save` writes it as
    an artifact that `einnet.load` and `einnet run` take.
    """

    program: Program
    outcome: Outcome
    executable: Executable | Whole
    certificate: Certificate
    report: dict[str, Any]
    settings: Settings
    model: Any = None
    """What was optimized, as it was given."""

    @property
    def derivations(self) -> list[Derivation]:
        """The derivation of every distinct subprogram that was changed."""
        return list({r.subprogram.key: r.candidate.form.derivation for r in self.outcome.results if r.changed}.values())

    def __call__(self, *args: Array | Mapping[str, Array], **inputs: Array) -> dict[str, Array]:
        """Run the optimized program: outputs by name. Raises UsageError for wrong names, shapes or types."""
        return self.executable(gather_inputs(self.executable.input_names, args, inputs))

    def html(self) -> str:
        """The report as one HTML page: what changed, times, kernels under the roofline, errors, derivations."""
        from einnet.explore.report import report_page
        from einnet.explore.text import story

        return report_page(self.report, story(self.report, self.certificate.entries))

    def __repr__(self) -> str:
        from einnet.explore.verdict import verdict

        time = self.report["totals"]["optimized_ms"]
        return f"<{self.report['model']}:{'' if time is None else f' {time:.3g} ms,'} {verdict(self.report)}>"

    def _repr_html_(self) -> str:
        from einnet.explore.report import program_fragment
        from einnet.explore.text import story

        return program_fragment(self.report, story(self.report, self.certificate.entries))

    def save(self, path: str | Path) -> Path:
        """Write the artifact, or for a name that ends in .onnx a standard ONNX model, whole or not at all.

        Raises ArtifactError where the path cannot be written, and for a program that failed its verification or a model that ONNX Runtime cannot run.
        """
        from einnet.api.compared import refuse_failed
        from einnet.api.onnx_out import SUFFIX, write
        from einnet.api.stored import store

        refuse_failed(self.report, path)
        return (write if Path(path).suffix == SUFFIX else store)(self, Path(path))


Range = str | tuple[str, int, int]
Profile = str | Path | None


@overload
def optimize(
    model: Any, settings: Settings | None = None, /, *, dynamic: None = None, profile: Profile = None, **arguments: Unpack[Arguments]
) -> Optimization: ...


@overload
def optimize(
    model: Any, settings: Settings | None = None, /, *, dynamic: Range, profile: Profile = None, **arguments: Unpack[Arguments]
) -> DynamicOptimization: ...


def optimize(
    model: Any, settings: Settings | None = None, /, *, dynamic: Range | None = None, profile: Profile = None, **arguments: Unpack[Arguments]
) -> Optimization | DynamicOptimization | CudaOptimization:
    """Optimize an ONNX model: a path, an onnx.ModelProto or an onnx_ir.Model.

    Keyword arguments (the fields of Settings):
      max_depth      most explorative rule applications in a derivation (paper section 6.1), default 7
      time_budget    seconds for the whole of it, default 120
      threads        CPU threads, default the physical cores
      backend        "cpu", or "cuda": by predicted times, without a device, a CudaOptimization
      target         "native", or "onnx": what is fastest as an ONNX model in ONNX Runtime; `save` to a name that ends in .onnx
      cpu            "native", or "x86-64-v2", "-v3", "-v4": generated code that runs on every processor of that level
      allow          "exact", "reassociation" (default) or "precision": the worst numerical class of step; "tested", alone or as in
                     "precision,tested": steps that are tested and not proven may be used, too
      strict_nan     True excludes what is true for finite numbers only: a NaN or an infinity goes where the model has it
      derive, converge, fingerprint   False switches the idea off, for ablation
      rules          names of the rules that may be explored, default all
      shapes         input name -> shape, for inputs with symbolic dimensions
      dynamic        "batch=1..32" or ("batch", 1, 32): a program for all these sizes of a dimension, a DynamicOptimization
      workers        processes that search subprograms side by side, default 1; the result is the same where the budget suffices
      scheduler      address of a Dask cluster whose workers search instead
      fresh          True searches again what an earlier run has found with these settings and as much time
      seed           of the random inputs that verify and time the result
      memory_limit   bytes that the program may take for weights and intermediate tensors, default what is free
      force          for tests: a seed by which a derived candidate is drawn for every subprogram, however slow; nothing is recalled or remembered
      progress       called with Progress
      profile        with backend "cuda": a file of times of the device, default the data sheet of an H200

    Raises ModelError for a model that cannot be read, UsageError for a wrong argument, BackendError for a missing library.
    """
    settings = chosen(settings, arguments)
    if dynamic is not None:
        from einnet.api.dynamic import optimize_dynamic

        return optimize_dynamic(model, dynamic, settings)
    if settings.backend == "cuda":
        from einnet.api.cuda import optimize_cuda

        return optimize_cuda(model, settings, profile)
    if profile is not None:
        raise UsageError("profile describes a CUDA device: it goes with backend='cuda'")
    started = time.monotonic()
    from einnet.api.kept import keep_whole, kept_instead
    from einnet.graph.onnx import load as load_model
    from einnet.runtime.cpu.levels import require
    from einnet.runtime.cpu.threads import resolve_threads

    require(settings.cpu)
    settings = replace(settings, threads=resolve_threads(settings.threads))
    tell(settings, "read the model", started)
    try:
        program = prepare(load_model(model, shapes=settings.shapes or None), permuted=settings.target == "native")
    except NotStaticError as reason:
        return keep_whole(model, settings, str(reason), started)
    from einnet.api.onnx_target import finish_onnx
    from einnet.api.verify import Trial, random_values
    from einnet.runtime.costs import CpuCost
    from einnet.runtime.onnx.cost import OnnxCost

    assert settings.threads is not None
    given = [(program.names.get(t.name, t.name), t.shape, t.dtype) for t in program.inputs]
    trial = Trial(model, program, settings, random_values(given, settings.seed))
    schedule = Schedule(started, settings.time_budget, trial.seconds)
    cost = (CpuCost if settings.target == "native" else OnnxCost)(settings.threads, constant=is_constant, cpu=settings.cpu)
    memory = Memory(cost.database, settings, cost.place()) if settings.force is None else None
    searching = schedule if settings.force is None else Schedule(0.0, settings.time_budget, trial.seconds, CountedClock())
    outcome = search(program, settings, cost, searching, memory)
    outcome.notes += cost.notes()
    result = (finish if settings.target == "native" else finish_onnx)(model, outcome, settings, cost, schedule, trial)
    return kept_instead(result, model, settings, started) if settings.force is None else result


def finish(model: Any, outcome: Outcome, settings: Settings, cost: CpuCost, schedule: Schedule, trial: Trial) -> Optimization:
    """Compile what was chosen, prove, verify and time it; keep the model's own operators, or ONNX Runtime, where they are faster."""
    program, tolerance = outcome.program, TOLERANCE[settings.allow]
    tell(settings, "check the derivations", schedule.started)
    if settings.force is None:
        keep_proven(outcome, settings)
    tell(settings, "compile", schedule.started)
    compiled_programs = compiled(outcome, cost, schedule.stitched(time.monotonic()), settings.memory_limit)
    tell(settings, "verify and time", schedule.started)

    def verify(one: Executable) -> dict[str, Any]:
        found = trial.verify(one, tolerance)
        if outcome.whole:  # ONNX Runtime runs the model itself: there is nothing of ours to be lifted
            return found
        return found if one is compiled_programs.get("original") and len(compiled_programs) > 1 else with_evidence(found, evidence(one))

    def evidence(one: Executable) -> dict[str, Any]:
        left = schedule.end - time.monotonic()
        return assured(outcome, one, min(SHARE * settings.time_budget, max(left, 0.0)))

    def rebuilt() -> Executable:
        return built(outcome.plan(), cost, strict=True)

    if settings.force is None:
        programs, verified = agreeing(outcome, compiled_programs, verify, rebuilt, schedule.end)
    else:  # what is wrong is to be seen
        programs, verified = compiled_programs, {}
    programs = programs or fallen_back(model, outcome, compiled_programs, trial, cost)
    seconds = schedule.timing_s(inf if outcome.interrupted else time.monotonic())
    decision = Contest(model, outcome, settings, cost, trial, programs, tolerance).decide(seconds)
    executable, times = decision.executable, decision.times
    peaks = peak_bytes(programs, trial.peak)
    if times["runs"] not in programs or outcome.whole:
        peaks["optimized"] = trial.peak if outcome.whole else executable.nbytes
    verification = verified.get(times["runs"]) or verify(executable)
    certificate = Certificate(()) if outcome.whole else certify(outcome)
    outcome.notes += executable.notes
    outcome.notes += [] if outcome.whole else heavy(executable, programs, trial.peak)
    kernels = kernel_profile(outcome, executable, cost, times["optimized"].median)
    used = time.monotonic() - schedule.started
    outcome.notes += exceeded(used, settings)
    report = build_report(model, program, outcome, settings, times, verification, certificate, kernels, peaks, used)
    return Optimization(program, outcome, executable, certificate, report, settings, model)


def fallen_back(model: Any, outcome: Outcome, programs: Mapping[str, Executable], trial: Trial, cost: CpuCost) -> dict[str, Executable]:
    """ONNX Runtime with the whole model, where no program of ours can be compiled and agrees with it; the outcome has a note.

    What was compiled is kept, for want of anything better, where the model is too large to be part of a program. Raises BackendError where nothing
    was compiled either.
    """
    plan = whole_model(model, outcome.plan(original=True), trial.order)
    if plan is None:
        if not programs:
            raise BackendError(f"{outcome.program.title}: {outcome.notes[-1]}")
        return {"original": list(programs.values())[-1]}
    outcome.keep_original()
    outcome.whole = True
    why = "no program of ours agrees with it" if programs else "no program of ours can be compiled"
    outcome.notes.append(f"ONNX Runtime runs the whole model: {why}")
    return {WHOLE: built(plan, cost)}


def exceeded(used: float, settings: Settings) -> list[str]:
    """A note where it took longer than was allowed."""
    late = used > LATE * settings.time_budget
    return [f"the time budget of {settings.time_budget:g} s was exceeded: {used:.1f} s"] if late else []


def heavy(executable: Executable, programs: Mapping[str, Executable], theirs: int | None) -> list[str]:
    """A note where a program takes much more memory than ONNX Runtime (bytes `theirs`): what for, and what restrains it."""
    if theirs is None or executable.nbytes <= HEAVY * theirs:
        return []
    own = programs.get("original", executable)
    ours, before = executable.constant_bytes / 1e6, own.constant_bytes / 1e6
    weights = f"{ours:.4g} MB are weights as its kernels read them ({before:.4g} MB in the model's own operators)"
    takes = f"the program takes {executable.nbytes / 1e6:.4g} MB, ONNX Runtime {theirs / 1e6:.4g} MB"
    return [f"{takes}: {weights}, {executable.arena_bytes / 1e6:.4g} MB intermediate tensors; --memory-limit restrains it"]


def prepare(program: Program, permuted: bool = True) -> Program:
    """The program passes before the search: simplification, and if `permuted` data in the dimension order that its convolutions want."""
    from einnet.graph.layout import channels_last, permute
    from einnet.graph.onnx_join import join_opaque
    from einnet.graph.simplify import simplify
    from einnet.graph.structure import recover_structure

    program = simplify(program)
    order = channels_last(program) if permuted else {}
    return recover_structure(join_opaque(simplify(permute(program, order)) if order else program))


def tell(settings: Settings, phase: str, started: float) -> None:
    """Report a phase."""
    if settings.progress:
        settings.progress(Progress(phase, left=max(started + settings.time_budget - time.monotonic(), 0.0)))
