"""A stored program against the model that it claims to be: every derivation proven again, its numbers beside ONNX Runtime's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from einnet.api.bundling import bundle_keys
from einnet.api.compared import other_model
from einnet.api.statistics import classes, error_statistics
from einnet.api.stored import StoredProgram
from einnet.derivation.bounds import program_bound
from einnet.derivation.check import check
from einnet.derivation.steps import Derivation
from einnet.errors import CertificateError, UsageError
from einnet.instantiate.kernels import OpaqueCall

if TYPE_CHECKING:
    from einnet.api.load import StoredCuda


def audit(model: Any, stored: StoredProgram | StoredCuda, seed: int = 0) -> dict[str, Any]:
    """Verdict as plain data: `certificate` (derivations, steps, methods, classes, problems), `verification` (errors, what ran) and `passed`.

    A program for a CUDA device runs on one where there is one, else on the processor by the host driver.

    A derivation is a problem where a step of it does not hold and where it starts from an expression that the model does not have.
    Raises ModelError for a model that cannot be read, UsageError for one with other inputs or outputs than the program.
    """
    if isinstance(stored, StoredProgram) and stored.report.get("kept_whole"):
        return audit_whole(model, stored)
    certificate = audit_certificate(model, stored)
    certificate["problems"] = other_model(model, stored.path, stored.report.get("digest")) + certificate["problems"]
    verification = {**audit_numbers(model, stored, seed), "bound": bound(stored)}
    return {
        "model": str(model),
        "program": str(stored.path),
        "certificate": certificate,
        "verification": verification,
        "passed": not certificate["problems"] and verification["passed"],
    }


def audit_whole(model: Any, stored: StoredProgram) -> dict[str, Any]:
    """A model that was kept as it is: the stored one is the same, byte by byte."""
    from einnet.graph.onnx_read import serialised

    kept = stored.loaded.plan.kernels[0]
    same = isinstance(kept, OpaqueCall) and kept.model == serialised(model)
    problems = [] if same else [f"{stored.path} keeps another model than {model}"]
    certificate = {"derivations": 0, "steps": 0, "methods": {}, "classes": {}, "problems": problems}
    return {
        "model": str(model),
        "program": str(stored.path),
        "certificate": certificate,
        "verification": dict(stored.report["verification"]),
        "passed": same,
    }


def audit_certificate(model: Any, stored: StoredProgram | StoredCuda) -> dict[str, Any]:
    """Prove every step again, and look for every start among the model's own expressions."""
    from einnet.graph.split import anonymous

    expressions = starts(model, stored)
    problems: list[str] = []
    methods: Counter[str] = Counter()
    entries = stored.certificate.entries
    for number, entry in enumerate(entries, 1):
        if anonymous(entry.derivation.start).key not in expressions:
            problems.append(f"derivation {number} starts from an expression that the model does not have: {entry.derivation.start.text()}")
        try:
            methods.update(proof.method for proof in check(entry.derivation))
        except CertificateError as error:
            problems.append(f"derivation {number}, {error}")
    derivations = [entry.derivation for entry in entries]
    return {
        "derivations": len(entries),
        "steps": sum(len(d.steps) for d in derivations),
        "methods": dict(methods),
        "classes": classes(derivations),
        "problems": problems,
    }


def bound(stored: StoredProgram | StoredCuda) -> float:
    """The a-priori estimate of the error, made again of the derivations and, where there is none, of the expressions as they stand."""
    from einnet.api.explore import declared

    if stored.report["runs"] == "whole model":
        return 0.0
    known = {entry.key: entry.derivation for entry in stored.certificate.entries}
    parts = stored.report["subprograms"]
    return program_bound(known.get(s["key"]) or Derivation(declared(s, stored)) for s in parts)


def starts(model: Any, stored: StoredProgram | StoredCuda) -> set[str]:
    """Keys of the expressions that derivations of the model may start from; names of tensors are no part of them."""
    from einnet.api.optimize import prepare
    from einnet.graph.onnx import load
    from einnet.graph.split import subprograms

    settings: dict[str, Any] = stored.report["settings"]
    program = prepare(load(model, shapes=shapes(stored)), permuted=settings.get("target") != "onnx")
    return {part.key for part in subprograms(program)} | bundle_keys(program)


def audit_numbers(model: Any, stored: StoredProgram | StoredCuda, seed: int) -> dict[str, Any]:
    """Run the program and the model on the same random inputs."""
    from einnet.api.optimize import TOLERANCE
    from einnet.api.verify import compare_outputs, random_values
    from einnet.graph.onnx_read import runnable
    from einnet.runtime.ort import Session

    session = Session(runnable(model), stored.threads, title=str(model))
    for what, ours, theirs in (
        ("inputs", set(stored.inputs), {a.name for a in session.inputs}),
        ("outputs", set(stored.output_names), {a.name for a in session.outputs}),
    ):
        if ours != theirs:
            both = f"its {what} are {', '.join(sorted(ours))}; those of {model} are {', '.join(sorted(theirs))}"
            raise UsageError(f"{stored.path} was made from another model: {both}")
    inputs = random_values([(name, shape, dtype) for name, (dtype, shape) in stored.inputs.items()], seed)
    expected = session(inputs)
    del session  # what both take together may be more memory than there is
    got, on = stored.tried(inputs)
    found = compare_outputs(got, expected, TOLERANCE[stored.report["settings"]["allow"]])
    return {**found, "on": on, "statistics": error_statistics(got, expected)}


def shapes(stored: StoredProgram | StoredCuda) -> dict[str, tuple[int, ...]]:
    """The shapes that the program was made for."""
    return {name: shape for name, (_, shape) in stored.inputs.items()}
