"""An optimized program as a standard ONNX model, checked and timed in ONNX Runtime beside the model that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from einnet.compile.export.region import partial_plan, written
from einnet.compile.run import on_processor
from einnet.errors import ArtifactError, BackendError, UsageError
from einnet.evidence.comparison.draws import first_of, kinds_of, where_defined
from einnet.evidence.comparison.verdicts import refuse_failed
from einnet.evidence.comparison.verify import RUNS, SETTLE_S, Array, compare_outputs
from einnet.evidence.report.schema import OnnxOut, Verification
from einnet.graph.in_file import model_bytes
from einnet.instantiate.kernels import OpaqueCall, Plan
from einnet.runtime.files import replacing
from einnet.runtime.onnx.graft import rewritten

if TYPE_CHECKING:
    from einnet.compile.target import Optimization
    from einnet.evidence.stored_proofs import Written
    from einnet.graph.onnx.shapes import Shapes
    from einnet.runtime.ort import Session
    from einnet.search.outcome import Outcome

SUFFIX = ".onnx"

Model = bytes | str | Path
"""What ONNX Runtime takes."""


def comparison(verification: Verification, times: Mapping[str, Any]) -> OnnxOut:
    """The written model beside the original, both in ONNX Runtime: errors by output, and ms of one run."""
    original, optimized = (1e3 * times[name].median for name in ("onnxruntime", "optimized"))
    return OnnxOut(verification=verification, original_ms=original, optimized_ms=optimized, speedup=original / optimized)


def to_onnx(optimization: Optimization) -> onnx.ModelProto:
    """The optimized program as a model with the original's inputs, outputs, graph name, opset, notes and metadata.

    What was not derived stands there as in the original. Generated kernels are functions of the model over standard operators; the metadata
    name the rules behind every subprogram that was changed.
    """
    return named(_as_onnx(optimization), optimization.settings.shapes)


def _as_onnx(optimization: Optimization) -> onnx.ModelProto:
    """The same, as what it was made of has it."""
    from einnet.runtime.whole import Whole

    kept = on_processor(optimization.executable)
    if isinstance(kept, Whole):
        return onnx.load_model_from_string(model_bytes(kept.model))
    if optimization.settings.target == "onnx":
        (whole,) = kept.plan.kernels
        assert isinstance(whole, OpaqueCall), "ONNX Runtime runs one model"
        return onnx.load_model_from_string(model_bytes(whole.model))
    return exported(optimization.outcome, optimization.model, optimization.settings.shapes)


def exported(outcome: Outcome, model: Any, shapes: Shapes | None = None) -> onnx.ModelProto:
    """The model with what was derived in the place of its own nodes, and these where nothing was.

    All of it is written from expressions where its nodes are of an opset that is too old. Raises UsageError where that cannot be done either.
    """
    from einnet.graph.onnx.read import in_memory

    chosen = [] if outcome.whole else written(outcome)
    if not chosen:
        return in_memory(model)
    metadata = {f"einnet.derivation.{r.subprogram.key}": ", ".join(r.candidate.rules) for r in chosen}
    made = rewritten(model, outcome.program.header, kernels_of(outcome, model, shapes), shapes, metadata)
    return typed(made)


def kernels_of(outcome: Outcome, model: Any, shapes: Shapes | None) -> Plan:
    """The kernels that are written for the derived subprograms: of these alone, among the model's own nodes, where it is new enough; else of all."""
    from einnet.graph.onnx.read import normalised
    from einnet.runtime.onnx.graft import values
    from einnet.runtime.onnx.node_writer import LEAST_OPSET

    if outcome.program.header.opset < LEAST_OPSET:
        return outcome.plan()
    return partial_plan(outcome, written(outcome), values(normalised(model, shapes)))


def kernels_told(optimization: Optimization) -> Written | None:
    """The kernels of which the model that a program holds was written; nothing where it holds the original."""
    from einnet.evidence.written import told

    outcome = optimization.outcome
    if outcome.whole or not written(outcome):
        return None
    shapes = optimization.settings.shapes
    return told(kernels_of(outcome, optimization.model, shapes), shapes)


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types and shapes of all values, which viewers show; as it is where it is too large to infer them."""
    from einnet.runtime.onnx.model import too_large

    return model if too_large(model) else onnx.shape_inference.infer_shapes(model, data_prop=True)


def write(optimization: Optimization, path: Path) -> None:
    """Write the model, whole or not at all; weights beyond 2 GB go into `PATH.data` beside it.

    Raises ArtifactError where the path cannot be written, for a model that is not well formed, and for one that ONNX Runtime does not run to the
    results of the original.
    """
    from einnet.graph.onnx.read import save_apart
    from einnet.runtime.onnx.model import too_large

    model = to_onnx(optimization)
    try:
        with replacing(path) as draft:
            if too_large(model):
                save_apart(model, draft, f"{path.name}.data")
                onnx.checker.check_model(str(draft))
            else:
                onnx.save(well_formed(model), draft)
            as_the_original(optimization, draft, path)
    except onnx.checker.ValidationError as error:
        raise ArtifactError(f"{path}: the model is not well formed: {str(error).splitlines()[0]}") from error
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written ({error.strerror or error})") from error


def named(model: onnx.ModelProto, shapes: Shapes) -> onnx.ModelProto:
    """The model with what runtimes do without: a name of its graph, and the shapes that were given to inputs of unknown rank."""
    model.graph.name = model.graph.name or "model"
    for value in model.graph.input:
        if value.name in shapes and value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shapes[value.name]))
    return model


def well_formed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as it passes the check of the standard: with the types and shapes of its outputs, where it was given without them.

    Types of all values are checked where inference knows what runs. In opsets before 22 it counts windows of pooling that no runtime has, and finds
    fault with what follows; ONNX Runtime is asked then. Raises onnx.checker.ValidationError.
    """
    types = [v.type for v in model.graph.output]
    if not all(t.WhichOneof("value") and (t.tensor_type.HasField("shape") or not t.HasField("tensor_type")) for t in types):
        model = typed(model)
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.shape_inference.InferenceError:
        onnx.checker.check_model(model)
    return model


def as_the_original(optimization: Optimization, written: Path, path: Path) -> None:
    """Raise ArtifactError unless ONNX Runtime runs the written model to the results of the original; what was kept whole has been run."""
    from einnet.graph.onnx.read import runnable
    from einnet.runtime.ort import Session
    from einnet.runtime.whole import Whole

    executable = on_processor(optimization.executable)
    if isinstance(executable, Whole):
        return
    threads = executable.threads
    inputs, wanted = on_inputs(Session(runnable(optimization.model), threads), optimization)
    try:
        got = Session(written, threads, title=str(path))(inputs)
    except (BackendError, UsageError) as error:
        raise ArtifactError(f"{path} is not written: {str(error).splitlines()[0]}") from error
    refuse_failed(path, compared(got, wanted, optimization))


def on_inputs(session: Session, optimization: Optimization) -> tuple[dict[str, Array], dict[str, Array]]:
    """The first of the inputs that were given, others random, and what ONNX Runtime gives for them."""
    settings, kinds = optimization.settings, kinds_of(on_processor(optimization.executable).plan)
    inputs, _ = first_of(settings.inputs, kinds, settings.seed, session.title)
    return where_defined(session, inputs, settings.inputs.keys())


def compared(got: Mapping[str, Array], wanted: Mapping[str, Array], optimization: Optimization) -> Verification:
    """Outputs of the written model beside the original's, by what the program itself may err."""
    may = optimization.record.verification
    return compare_outputs(got, wanted, may.tolerance, own={name: e.allowed for name, e in may.outputs.items() if e.allowed is not None})


def compare(optimization: Optimization, model: Any, path: Path, seconds: float = 3.0) -> OnnxOut:
    """Run the written model and the one that it came from in ONNX Runtime on the same random inputs: outputs compared, times interleaved."""
    from einnet.graph.onnx.read import runnable
    from einnet.runtime.ort import Session

    executable = on_processor(optimization.executable)
    threads = executable.threads
    inputs, wanted = on_inputs(Session(runnable(model), threads), optimization)
    got = Session(path, threads, title=str(path))(inputs)
    verification = compared(got, wanted, optimization)
    peak = (optimization.timed.peak_bytes or {}).get("onnxruntime")
    return comparison(verification, in_turn(runnable(model), path, inputs, threads, seconds, peak if isinstance(peak, int) else None))


def in_turn(
    original: Model, written: Model, inputs: Mapping[str, Array], threads: int, seconds: float, peak: int | None = None
) -> dict[str, Any]:
    """Interleaved timings of both in ONNX Runtime; "noise" is what the original shows against itself.

    Where twice what the original takes (`peak` bytes, as far as that is known) is not there, each gives its memory back before the other's turn.
    """
    from einnet.runtime.capacity import fits
    from einnet.runtime.ort import Baseline
    from einnet.runtime.timing import compare

    resident = fits(2 * RUNS * (peak or 0))
    models = {"onnxruntime": original, "optimized": written}
    calls = {name: Baseline(model, inputs, threads, frugal=not resident) for name, model in models.items()}
    rest = None if resident else {name: call.rest for name, call in calls.items()}
    found = compare(calls, seconds, least=3, pause_s=SETTLE_S, warm_s=SETTLE_S / 2, sample_s=0.01, rest=rest)
    return {**found.timings, "noise": found.noise, "rounds": found}
