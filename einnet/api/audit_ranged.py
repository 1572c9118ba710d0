"""A stored program for a range of sizes against the model: every derivation proven for every size where it runs, numbers compared at every size."""

from __future__ import annotations

from collections import Counter
from typing import Any

from einnet.api.certificate import proofs
from einnet.api.compared import other_model
from einnet.api.family import Family
from einnet.api.served import RangedProgram
from einnet.api.settings import Settings
from einnet.derivation.bounds import program_bound
from einnet.derivation.ranged import RangedFile
from einnet.errors import CertificateError, ParseError, UsageError
from einnet.graph.bundle import bundles
from einnet.graph.onnx_dynamic import Dimension, carried
from einnet.graph.split import anonymous, subprograms


def audit_ranged(model: Any, stored: RangedProgram, seed: int = 0) -> dict[str, Any]:
    """Verdict as plain data: `certificate`, `sizes` (errors by size) and `passed`.

    A derivation is a problem where a step of it does not hold at a size, and where it starts from an expression that the model does not have there.
    Raises ModelError for a model that cannot be read, UsageError for one with other inputs than the program.
    """
    from einnet.api.optimize import TOLERANCE
    from einnet.api.verify import compare_outputs, random_values
    from einnet.runtime.ort import Session

    told, settings = stored.report["dynamic"], stored.report["settings"]
    dimension = Dimension(stored.name, stored.lowest, stored.highest)
    shapes = {name: tuple(shape) for name, shape in told["shapes"].items()}
    source = carried(model, dimension.name)
    session = Session(source.model.SerializeToString(), stored.ranged.threads, title=str(model))
    if {a.name for a in session.inputs} != set(stored.inputs):
        raise UsageError(f"{stored.path} was made from another model: its inputs are {', '.join(stored.inputs)}")
    family = Family(source, dimension, Settings(shapes=shapes))
    certificate = audit_certificate(stored, family)
    measured = [found["report"] for found in stored.report["sizes"].values() if found["report"]]
    certificate["problems"] += other_model(source.model, stored.path, measured[0].get("digest") if measured else None)
    sizes = {}
    for size in stored.sizes:
        program = stored.ranged.executable(size)
        types = {b.name: b.dtype for b in program.plan.buffers}
        values = random_values([(name, view.shape, types[view.buffer]) for name, view in program.plan.inputs], seed)
        sizes[str(size)] = compare_outputs(program(values), session(values), TOLERANCE[settings["allow"]])
    passed = not certificate["problems"] and all(found["passed"] for found in sizes.values())
    return {"model": str(model), "program": str(stored.path), "certificate": certificate, "sizes": sizes, "passed": passed}


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
