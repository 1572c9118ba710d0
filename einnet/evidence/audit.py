"""A stored program against the model that it claims to be: every derivation proven again, its numbers beside ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einnet.derivation.steps import Derivation
from einnet.errors import ArtifactError, CertificateError, UsageError
from einnet.evidence.certificate import Certificate, bundle_keys
from einnet.evidence.comparison.error_statistics import error_statistics
from einnet.evidence.comparison.right import evaluator_of_the_standard, is_whole
from einnet.evidence.comparison.verdicts import other_model
from einnet.evidence.examine import Proven, checked, proven, told_constants, told_kernels, told_lifting, told_numbers, trusted
from einnet.evidence.lift import same_node
from einnet.evidence.numbers import SPECIAL, Observed, drawn, nearly_zero, unlike
from einnet.evidence.report.schema import Asked, Report
from einnet.evidence.report.told import Tell, each, silent
from einnet.evidence.report.verdict_schema import Derivations, Evidence, Outputs, Verdict
from einnet.evidence.stored_proofs import Stored
from einnet.graph.in_file import model_bytes
from einnet.graph.program import Opaque, Program
from einnet.graph.rewrite import anonymous
from einnet.graph.split import Piece, Subprogram, pieces
from einnet.instantiate.kernels import OpaqueCall, Plan
from einnet.instantiate.kernels.arithmetics import F32, coarsest
from einnet.instantiate.kernels.contractions import arithmetic_of
from einnet.records import as_json, changed
from einnet.runtime.capacity import kept_for_more
from einnet.search.settings import rounded, tolerance

if TYPE_CHECKING:
    from einnet.evidence.comparison.verify import Draw
    from einnet.runtime.ort import Session

Array = np.ndarray[Any, np.dtype[Any]]


@kept_for_more()
def audit(model: Any, stored: Stored, seed: int = 0, tell: Tell = silent, inputs: Mapping[str, Array] | None = None) -> Verdict:
    """Verdict as plain data; `passed` where nothing in it is a problem. While it works, `tell` is told what is being checked.

    Inputs are random but for those given, of which each is one array, or several along one more dimension in front.

    `certificate`: derivations proven again, and that they start from the model. `lifting`: the plan's kernels as expressions, proven equal to the
    model's without the derivations, and computed as these say. `constants`: computed again. `kernels`: run alone and compared with their
    expressions. `verification`: outputs beside ONNX Runtime's, and every subprogram within its own bound. `trusted`: what nothing of this proves.

    A program for a CUDA device runs on one where there is one, else on the processor by the host driver; its kernels run by the host driver.
    Raises ModelError for a model that cannot be read, UsageError for one with other inputs or outputs than the program, and for
    arrays that are no inputs.
    """
    if isinstance(stored.record, Report) and stored.record.kept_whole:
        return audit_whole(model, stored)
    tell("the model")
    session = same_signature(model, stored)
    program = prepared(model, stored)
    plan = stored.plan
    parts = pieces(program)
    certificate = audit_certificate(program, parts, stored, tell)
    certificate["problems"] = other_model(model, stored.path, stored.record.digest) + certificate["problems"]
    reference = beside(session, model, program, stored, seed, inputs or {})
    del session  # what both take together may be more memory than there is
    if is_whole(plan) and not is_node(program, plan):
        problems, evidence, numbers, trust = audit_one_kernel(model, program, stored, reference, seed)
        certificate["problems"] += problems
        numbers["bound"] = 0.0
    else:
        found = proven(program, plan, [entry.derivation for entry in stored.certificate.entries], tell, parts)
        evidence = of_plan(program, found)
        evidence["lifting"]["problems"] += stored.overlaps()
        evidence["kernels"] = told_kernels(plan, stored.runner, seed=seed, tell=tell)
        numbers, trust = audit_numbers(program, stored, reference, found, seed, tell=tell), trusted(program, plan, stored.vendor)
    told = (certificate, evidence.get("lifting"), evidence.get("constants"), evidence.get("kernels"))
    passed = numbers["passed"] and not any(part["problems"] for part in told if part is not None)
    return {
        "model": called(model),
        "program": str(stored.path),
        "certificate": certificate,
        **evidence,
        "verification": numbers,
        "trusted": trust,
        "passed": passed,
    }


def of_plan(program: Program, found: Proven) -> Evidence:
    """What lifting a plan gave, and its constants."""
    return {"lifting": told_lifting(program, found), "constants": told_constants(found.constants)}


WHOLE_TRUSTED = "ONNX Runtime: it runs the whole model"
WRITTEN_TRUSTED = "ONNX Runtime, and the ONNX writer: that the nodes which it writes for a kernel mean that kernel, beyond the numbers compared"


OfOneKernel = tuple[list[str], Evidence, Outputs, list[str]]


def audit_one_kernel(model: Any, program: Program, stored: Stored, reference: Reference, seed: int) -> OfOneKernel:
    """What is wrong with what ONNX Runtime runs as a whole, the evidence for it, its numbers, and what is trusted.

    It is the model byte by byte, or a model that was written of kernels: then these are lifted and proven to be what they stand for, their constants
    computed again, and the model that runs is compared with what the writer makes of them.
    """
    from einnet.evidence import written

    if same_model(model, stored.plan):
        return [], {}, audit_numbers(program, stored, reference, None, seed), [WHOLE_TRUSTED]
    other = f"{stored.path} hands another model than {called(model)} to ONNX Runtime"
    if stored.written is None or stored.record.settings.target != "onnx":
        return [other], {}, audit_numbers(program, stored, reference, None, seed), [WHOLE_TRUSTED]
    try:
        plan = written.plan_of(stored.written, program)
        wanted, runs = written.models(model, program, plan, stored.written, stored.plan)
    except (ArtifactError, UsageError, LookupError, TypeError, ValueError) as error:
        return [f"{other}: {error}"], {}, audit_numbers(program, stored, reference, None, seed), [WHOLE_TRUSTED]
    inner, found = written.proven_written(program, plan, [entry.derivation for entry in stored.certificate.entries])
    problems = written.differences(wanted, runs)
    observed = written.observing(model, program, inner, plan, stored.written, found.lifting, stored.threads)
    return problems, of_plan(inner, found), audit_numbers(inner, stored, reference, found, seed, observed), [WRITTEN_TRUSTED]


def is_node(program: Program, plan: Plan) -> bool:
    """What a plan hands to ONNX Runtime is a node of the model, which may have no other."""
    return any(isinstance(node, Opaque) and same_node(node, k) for node in program.nodes for k in plan.kernels if isinstance(k, OpaqueCall))


def same_model(model: Any, plan: Plan) -> bool:
    """The model that a plan hands to ONNX Runtime is the model, byte by byte, on its own inputs and outputs."""
    from einnet.graph.onnx.read import is_model
    from einnet.runtime.ort import Session

    (kernel,) = plan.kernels
    assert isinstance(kernel, OpaqueCall)
    if kernel.recursion is not None or not is_model(model_bytes(kernel.model), model):
        return False
    session, given, wanted = Session(kernel.model, 1), dict(plan.inputs), dict(plan.outputs)
    inputs, outputs = ([a.name for a in arguments] for arguments in (session.inputs, session.outputs))
    return [given.get(name) for name in inputs] == list(kernel.inputs) and [wanted.get(name) for name in outputs] == list(kernel.outputs)


def audit_whole(model: Any, stored: Stored) -> Verdict:
    """A model that was kept as it is: the stored one is the same, byte by byte."""
    from einnet.graph.onnx.read import is_model

    kept = stored.plan.kernels[0]
    same = isinstance(kept, OpaqueCall) and kept.recursion is None and is_model(model_bytes(kept.model), model)
    problems = [] if same else [f"{stored.path} keeps another model than {called(model)}"]
    certificate: Derivations = {"derivations": 0, "steps": 0, "methods": {}, "classes": {}, "problems": problems}
    return {
        "model": called(model),
        "program": str(stored.path),
        "certificate": certificate,
        "verification": as_json(stored.record.verification),
        "passed": same,
    }


def is_window(derivation: Derivation) -> bool:
    """It says of a part of a bundle where it stands in the whole: equal parts, as of queries and keys, stand in several places."""
    return any(s.rule == "bundle" for s in derivation.steps)


def audit_certificate(program: Program, parts: Sequence[Piece], stored: Stored, tell: Tell = silent) -> Derivations:
    """Prove every step again, look for every start among the model's own expressions, and for a derivation of each changed subprogram."""
    own = [part for part in parts if isinstance(part, Subprogram)]
    expressions = {part.key for part in own} | bundle_keys(program, own)
    problems: list[str] = []
    entries, proven = stored.certificate.entries, []
    starts = [anonymous(entry.derivation.start).key for entry in entries]
    for number, (start, entry) in enumerate(zip(starts, each(entries, "derivation", tell), strict=True), 1):
        if start not in expressions:
            problems.append(f"derivation {number} starts from an expression that the model does not have: {entry.derivation.start.text()}")
        try:
            proven.append(replace(entry, proofs=tuple(checked(entry.derivation))))
        except CertificateError as error:
            problems.append(f"derivation {number}, {error}")
    changed = [s for s in stored.record.subprograms if s.changed] if stored.record.runs != "whole model" else []
    missing = [s.output for s in changed if s.key not in starts]
    problems += [f"{name} was changed, and there is no derivation of it" for name in missing]
    told = [(key, e.derivation if is_window(e.derivation) else None) for key, e in zip(starts, entries, strict=True)]
    problems += [f"derivation {n} is told twice" for n, one in enumerate(told, 1) if one in told[: n - 1]]
    again = Certificate(tuple(proven))
    return {
        "derivations": len(entries),
        "steps": stored.certificate.steps,
        "methods": again.methods(),
        "classes": again.classes(),
        "problems": problems,
    }


def prepared(model: Any, stored: Stored) -> Program:
    """The model as it was prepared for the search that led to the program."""
    from einnet.graph.onnx.importer import load
    from einnet.graph.passes.prepare import prepare

    asked = stored.record.settings
    program = load(model, shapes=shapes(stored), doubles=asked.max_error is not None)
    return prepare(program, permuted=permuted(asked), tables=asked.tables, in_bytes=asked.in_bytes, finite=asked.settled)


def permuted(settings: Asked) -> bool:
    """The program was searched with its data in the order that convolutions want with channels last."""
    return settings.target != "onnx" if settings.channels_last is None else settings.channels_last


def called(model: Any) -> str:
    """The path of a model, or the name of one in memory."""
    return str(model) if isinstance(model, (str, Path)) else str(getattr(getattr(model, "graph", None), "name", "the model"))


def same_signature(model: Any, stored: Stored) -> Session:
    """The model in ONNX Runtime. Raises UsageError for one with other inputs or outputs than the program."""
    from einnet.graph.onnx.read import runnable
    from einnet.runtime.ort import Session

    session = Session(runnable(model), stored.threads, frugal=True, rounds=is_whole(stored.plan), title=called(model))
    for what, ours, theirs in (
        ("inputs", set(stored.inputs), {a.name for a in session.inputs}),
        ("outputs", set(stored.output_names), {a.name for a in session.outputs}),
    ):
        if ours != theirs:
            both = f"its {what} are {', '.join(sorted(ours))}; those of {called(model)} are {', '.join(sorted(theirs))}"
            raise UsageError(f"{stored.path} was made from another model: {both}")
    return session


CUT_OFF = 1e-6
"""By how much ONNX Runtime's element functions may err: its sigmoid is 0 from -18 on."""

BESIDE = ("normal", "negative", "zero")
"""Draws of inputs on which a program is compared with ONNX Runtime; larger and smaller ones are compared with expressions only."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Random inputs, and by draw what ONNX Runtime gives for those made of them, or the standard's evaluator where that is `wrong` at some tensors.

    `apart` is how far it is from itself where the model rounds. `ties` is how far its results for zeros move where these move by a rounding: which of
    some equal numbers is the greatest is decided by rounding there, and two programs that are right may decide otherwise. `made` is how large what
    the outputs are made of is, where the program leaves out what depends on no input. `rounding` is how far what ONNX Runtime rounds by default
    moves its results, where it runs all of the program. `further` are other inputs that were given.
    """

    inputs: dict[str, Array]
    expected: dict[str, dict[str, Array]]
    apart: dict[str, float]
    ties: float
    made: dict[str, float]
    wrong: tuple[str, ...] = ()
    rounding: float = 0.0
    further: Mapping[str, Draw] = field(default_factory=dict)


def beside(session: Session, model: Any, program: Program, stored: Stored, seed: int, arrays: Mapping[str, Array]) -> Reference:
    """What the program is compared with."""
    from einnet.evidence.comparison.draws import first_of, where_defined
    from einnet.evidence.comparison.verify import apart_from_itself, distance, made_of

    kinds = [(name, shape, dtype) for name, (dtype, shape) in stored.inputs.items()]
    first, given = first_of(arrays, kinds, seed, called(model))
    inputs, plain = where_defined(session, first, arrays.keys())
    expected = {BESIDE[0]: plain, **{draw: session(drawn(inputs, draw)) for draw in (*BESIDE[1:], *SPECIAL)}}
    draws = {draw: (drawn(inputs, draw), expected[draw]) for draw in BESIDE}
    ties = distance(session(nearly_zero(inputs)), expected["zero"])
    made = made_of(session, inputs, expected[BESIDE[0]]) if program.settled else {}
    other = None if is_whole(stored.plan) else evaluator_of_the_standard(model, program)
    run = other[0] if other else session
    further = {f"given {n}": (one, run(one)) for n, one in enumerate(({**inputs, **values} for values in given[1:]), 2)}
    apart = apart_from_itself(program, model, {**draws, **further})
    if other is None:
        return Reference(inputs, expected, apart, ties, made, rounding=rounding(model, stored, *draws[BESIDE[0]]), further=further)
    return Reference(inputs, {draw: run(drawn(inputs, draw)) for draw in expected}, apart, ties, made, other[1], further=further)


def rounding(model: Any, stored: Stored, inputs: dict[str, Array], given: dict[str, Array]) -> float:
    """How far what ONNX Runtime by default `given` is from its results without the rounding of factors, where it runs all of the program: two models
    that are equal may be as far from each other."""
    from einnet.evidence.comparison.verify import distance
    from einnet.graph.onnx.read import runnable
    from einnet.graph.onnx.rounded_factors import rounds_factors
    from einnet.runtime.ort import Session

    if stored.written is None or not is_whole(stored.plan) or not rounds_factors(model):
        return 0.0
    return distance(Session(runnable(model), stored.threads, frugal=True, title=called(model))(inputs), given)


def audit_numbers(
    program: Program, stored: Stored, reference: Reference, found: Proven | None, seed: int, observed: Observed | None = None,
    tell: Tell = silent,
) -> Outputs:
    """Run the program beside ONNX Runtime; and, where it was lifted, every subprogram beside its expression."""
    from einnet.evidence.comparison.verify import compare_outputs, magnitudes, stepped

    inputs, expected = reference.inputs, reference.expected
    usual = magnitudes(*(expected[draw] for draw in BESIDE))
    usual |= {name: max(usual[name], of) for name, of in reference.made.items()}
    problems: list[str] = []
    asked = stored.record.settings
    named = tolerance(asked.allow, asked.max_error)
    coarse = coarsest([arithmetic_of(k) for k in stored.plan.kernels]) if asked.max_error is None else F32
    told: Outputs = {"passed": True}

    def limit(error: float, draw: str) -> float:
        found = max(rounded(stepped(program, error, reference.apart[draw]), coarse), 2 * reference.rounding)
        return max(found, 2 * reference.ties) if draw == "zero" else found

    draws = {draw: (drawn(inputs, draw), expected[draw]) for draw in BESIDE}
    for draw, (values, wanted) in {**draws, **reference.further}.items():
        got, on = stored.tried(values)
        own = {name: limit(e, draw) for name, e in asked.output_errors.items()}
        compared = compare_outputs(got, wanted, limit(named, draw), usual, own)
        if draw == "normal":
            told = as_json(changed(compared, on=on))
            told["statistics"] = error_statistics(got, wanted)
        elif not compared.passed and compared.not_compared is None:
            problems.append(f"outputs on {draw} inputs are {compared.max_rel:.3g} of max|y| from ONNX Runtime's; allowed is {compared.tolerance:g}")
    if found is not None:
        engine = CUT_OFF if observed else 0.0
        told["subprograms"] = numbers = told_numbers(program, found, observed or stored.observing(found.lifting), inputs, seed, engine, tell)
        problems += numbers["problems"]
    if 2 * reference.ties > named:
        told["ties"] = reference.ties
    if reference.wrong:
        told["standard"] = list(reference.wrong)
    special = {draw: unlike(stored.tried(drawn(inputs, draw))[0], expected[draw]) for draw in SPECIAL}
    return {**told, "draws": [*BESIDE, *reference.further], "special": special, "problems": problems, "passed": told["passed"] and not problems}


def shapes(stored: Stored) -> dict[str, tuple[int, ...]]:
    """The shapes that the program was made for."""
    return {name: shape for name, (_, shape) in stored.inputs.items()}
