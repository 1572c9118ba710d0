"""A stored program for a range of sizes against the model: every derivation proven for every size where it runs; each size's plan lifted and proven,
its constants, kernels and numbers compared as those of a program for that size alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from einnet.compile.ranges.family import Family
from einnet.compile.ranges.served import RangedProgram
from einnet.derivation.checker.bounds import program_bound
from einnet.derivation.ranged import RangedFile
from einnet.derivation.steps import Derivation
from einnet.errors import CertificateError, ParseError, UsageError
from einnet.evidence.audit import is_node, same_model
from einnet.evidence.certificate import proofs
from einnet.evidence.comparison.draws import random_values, where_defined
from einnet.evidence.comparison.right import References, is_whole
from einnet.evidence.comparison.verdicts import other_model
from einnet.evidence.comparison.verify import compare_outputs
from einnet.evidence.examine import proven, told_constants, told_kernels, told_lifting, told_numbers
from einnet.evidence.report.told import Tell, silent
from einnet.evidence.running import OnProcessor
from einnet.graph.bundle import bundles
from einnet.graph.dimension import Dimension
from einnet.graph.onnx.dynamic import carried
from einnet.graph.onnx.rounded_factors import rounds_factors
from einnet.graph.program import Program
from einnet.graph.rewrite import anonymous
from einnet.graph.split import subprograms
from einnet.records import as_json
from einnet.search.settings import Settings, tolerance


def audit_ranged(model: Any, stored: RangedProgram, seed: int = 0, tell: Tell = silent) -> dict[str, Any]:
    """Verdict as plain data: `certificate`, `sizes` (by size: errors, and the evidence for its plan, or that it runs whole) and `passed`.

    A derivation is a problem where a step of it does not hold at a size, and where it starts from an expression that the model does not have there.
    Raises ModelError for a model that cannot be read, UsageError for one with other inputs than the program.
    """
    told = stored.record.dynamic
    dimension = Dimension(stored.name, stored.lowest, stored.highest)
    shapes = {name: tuple(shape) for name, shape in told.shapes.items()}
    source = carried(model, dimension.name)
    references = References(source.model.SerializeToString(), stored.ranged.manifest.threads, str(model), rounds_factors(source.model))
    if {a.name for a in references.session.inputs} != set(stored.inputs):
        raise UsageError(f"{stored.path} was made from another model: its inputs are {', '.join(stored.inputs)}")
    family = Family(source, dimension, Settings(shapes=shapes))
    certificate = audit_certificate(stored, family)
    measured = [found.report for found in stored.record.sizes.values() if found.report]
    certificate["problems"] += other_model(source.model, stored.path, measured[0].digest if measured else None)
    sizes = {str(size): audit_size(source.model, stored, family.at(size).program, references, size, seed, tell) for size in stored.sizes}
    passed = not certificate["problems"] and all(found["passed"] for found in sizes.values())
    return {"model": str(model), "program": str(stored.path), "certificate": certificate, "sizes": sizes, "passed": passed}


def audit_size(model: Any, stored: RangedProgram, program: Program, references: References, size: int, seed: int, tell: Tell) -> dict[str, Any]:
    """The errors of the program for one size, and the evidence for its plan."""
    executable = stored.ranged.executable(size)
    plan = executable.plan
    types = {b.name: b.dtype for b in plan.buffers}
    drawn = random_values([(name, view.shape, types[view.buffer]) for name, view in plan.inputs], seed)
    values, expected = where_defined(references.of(plan), drawn)
    limit = tolerance(stored.record.settings.allow, stored.record.settings.max_error)
    found = as_json(compare_outputs(executable(values), expected, limit))
    if is_whole(plan) and not is_node(program, plan):
        problems = [] if same_model(model, plan) else ["it hands another model to ONNX Runtime"]
        return {**found, "whole": True, "problems": problems, "passed": found["passed"] and not problems}
    try:
        derivations = [text.at(size).derivation for text in stored.derivations if size in text.sizes]
    except (CertificateError, ParseError) as error:
        return {**found, "whole": False, "problems": [str(error)], "passed": False}
    lifted, runner = proven(program, plan, derivations), OnProcessor(executable)
    places = {name: x.place for name, x in lifted.lifting.found.items() if x.place is not None}
    parts: dict[str, Any] = {
        "lifting": told_lifting(program, lifted),
        "constants": told_constants(lifted.constants),
        "kernels": told_kernels(plan, runner, seed=seed, tell=tell),
        "subprograms": told_numbers(program, lifted, runner.observing(places), values, seed, tell=tell),
    }
    problems = [p for part in parts.values() for p in part["problems"]] + without_derivation(stored, derivations, size)
    return {**found, "whole": False, **parts, "problems": problems, "passed": found["passed"] and not problems}


def without_derivation(stored: RangedProgram, derivations: Sequence[Derivation], size: int) -> list[str]:
    """What was changed at a size that was measured, by its report, and has no derivation there."""
    report = stored.record.sizes[str(size)].report
    if not report or report.runs == "whole model":
        return []
    starts = {anonymous(d.start).key for d in derivations}
    return [f"{s.output} was changed, and there is no derivation of it" for s in report.subprograms if s.changed and s.key not in starts]


def audit_certificate(stored: RangedProgram, family: Family) -> dict[str, Any]:
    """Prove every step again, at every size, and look for every start among the model's own expressions there."""
    problems: list[str] = []
    methods: Counter[str] = Counter()
    claims: Counter[str] = Counter()
    starts: dict[int, set[str]] = {}
    for number, text in enumerate(stored.derivations, 1):
        found = text.for_every_size()
        claims[text.holds(found)] += 1
        methods.update(() if isinstance(found, str) else (proof.method for proof in found))
        for size in text.sizes:
            if size not in starts:
                starts[size] = keys(family, size)
            why = audit_one(text, size, starts[size], methods, isinstance(found, str))
            problems += [] if why is None else [f"derivation {number}, at {text.name} = {size}: {why}"]
    if len(stored.derivations) != len(stored.record.derivations):
        problems.append(f"it tells of {len(stored.record.derivations)} derivations and holds {len(stored.derivations)}")
    steps = sum(len(text.at(text.sizes[0]).derivation.steps) for text in stored.derivations)
    bound = program_bound(text.at(text.sizes[0]).derivation for text in stored.derivations)
    told = {"derivations": len(stored.derivations), "steps": steps, "methods": dict(methods), "claims": dict(claims)}
    return {**told, "bound": bound, "problems": problems}


def audit_one(text: RangedFile, size: int, starts: set[str], methods: Counter[str], alone: bool) -> str | None:
    """The problem of one derivation at one size, of which (`alone`) there is no proof for every size."""
    try:
        if alone:
            methods.update(proof.method for proof in proofs(text.at(size).derivation))
        start = text.start(size)
    except (CertificateError, ParseError) as error:
        return str(error)
    return None if anonymous(start).key in starts else f"it starts from an expression that the model does not have: {start.text()}"


def keys(family: Family, size: int) -> set[str]:
    """Keys of the expressions of the model at a size, as they are written for all sizes and proven at this one."""
    member = family.at(size)
    parts = subprograms(member.program)
    return {anonymous(p.expression).key for p in parts} | {b.joint.key for b in bundles(member.program, parts)}
