"""All evidence for a stored program, as plain data: what was proven, run, computed again and compared, and what is left to trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from einnet.derivation.checker.check import Proof, check
from einnet.derivation.steps import Derivation
from einnet.errors import CertificateError
from einnet.evidence.constants import Recomputed, recomputed
from einnet.evidence.exercise import Runner, distinct, exercise
from einnet.evidence.lift import Lifting, lift
from einnet.evidence.numbers import DRAWS, Observed, compare
from einnet.evidence.prove import CHAIN, NORMAL, POINTS, Known, Verdict, by_start, prove
from einnet.evidence.report.told import Tell, silent
from einnet.evidence.report.verdict_schema import Constants, Kernels, Lifted, Numbers
from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import functions_in, walk
from einnet.graph.program import Opaque, Program
from einnet.graph.split import Piece, Subprogram
from einnet.instantiate.kernels import EOperator, Kernel, OpaqueCall, Plan, VendorKernel
from einnet.instantiate.kernels.contractions import arithmetic_of

Array = np.ndarray[Any, np.dtype[Any]]

EXACT = frozenset(f.name for f in FUNCTIONS.values() if f.accurate)
"""Functions that single precision computes without an error."""


@dataclass(frozen=True)
class Proven:
    """What proving a plan gave: the constants, the lifting, and a verdict for each tensor that was lifted."""

    constants: Recomputed
    lifting: Lifting
    verdicts: tuple[Verdict, ...]


def proven(
    program: Program, plan: Plan, derivations: Sequence[Derivation], tell: Tell = silent, parts: Sequence[Piece] | None = None
) -> Proven:
    """A plan lifted and proven to be the model, by way of no derivation, and to be computed as the derivations say; `parts` as `lift` takes them."""
    constants = recomputed(program, plan, tell)
    lifting = lift(program, plan, constants.values, parts)
    return Proven(constants, lifting, tuple(prove(lifting, known(derivations), tell=tell)))


def known(derivations: Sequence[Derivation]) -> dict[str, Known]:
    """The derivations that hold, by what they start from."""
    found: list[Known] = []
    for derivation in derivations:
        try:
            proofs = checked(derivation)
        except CertificateError:
            continue
        found.append(Known(derivation, all(p.method == "inline" for p in proofs)))
    return by_start(found)


@lru_cache(maxsize=1 << 12)
def checked(derivation: Derivation) -> tuple[Proof, ...]:
    """A proof for every step, once. Raises CertificateError as `check` does."""
    return tuple(check(derivation))


def told_lifting(program: Program, result: Proven) -> Lifted:
    """How many subprograms of the model were proven from it to the plan, and how."""
    parts = [p for p in result.lifting.pieces if isinstance(p, Subprogram)]
    verdicts = {v.output: v for v in result.verdicts}
    within = {name: lifted.output for lifted in result.lifting.found.values() for name in lifted.inside}
    methods: Counter[str] = Counter()
    problems = list(result.lifting.problems)
    changed = left = 0
    for part in parts:
        verdict = verdicts.get(part.output.name) or verdicts.get(within.get(part.output.name, ""))
        if verdict is None and (part.output.name in result.lifting.found or part.output.name in within):
            left += 1
        elif verdict is None:
            problems.append(f"{part.output.name}: nothing in the plan computes it")
        elif verdict.problem:
            if verdict.output == part.output.name:
                problems.append(f"{verdict.output} {verdict.problem}")
        else:
            methods[verdict.method] += 1
        changed += bool(verdict and verdict.derived)
    return {
        "subprograms": len(parts),
        "opaque": sum(isinstance(p, Opaque) for p in result.lifting.pieces),
        "derived": changed,
        "proven": methods[NORMAL],
        "by_derivation": methods[CHAIN],
        "tested": methods[POINTS],
        "left": left,
        "problems": problems,
    }


def told_constants(result: Recomputed) -> Constants:
    """Constants by how they were compared."""
    count = result.count + len(result.problems)
    return {"constants": count, "weights": result.same, "computed": result.computed, "tables": result.tables, "problems": result.problems}


def told_kernels(plan: Plan, runner: Runner, places: Sequence[int] | None = None, seed: int = 0, tell: Tell = silent) -> Kernels:
    """Distinct kernels that were run alone, by kind, and how many of them bit for bit."""
    chosen = list(distinct(plan)) if places is None else places
    found = exercise(plan, runner, chosen, seed, tell)
    problems = [f"kernel {e.place} ({type(plan.kernels[e.place]).__name__}) {e.problem}" for e in found if e.problem]
    kinds = Counter(e.kind for e in found)
    exact = sum(e.exact and not e.problem for e in found)
    return {
        "kernels": sum(not isinstance(k, OpaqueCall) for k in plan.kernels),
        "distinct": len(found),
        "generated": kinds["generated"],
        "vendor": kinds["vendor"],
        "exact": exact,
        "bounded": len(found) - exact - len(problems),
        "elements": sum(e.elements for e in found),
        "problems": problems,
    }


def told_numbers(
    program: Program, result: Proven, observed: Observed, inputs: Mapping[str, Array], seed: int = 0, cut_off: float = 0.0, tell: Tell = silent
) -> Numbers:
    """Every subprogram's numbers within its own bound, draw by draw; `cut_off` as in `limits.Bounded`."""
    found = [compare(program, result.lifting, observed, inputs, draw, seed, cut_off, tell) for draw in DRAWS]
    problems = [p for c in found for p in c.problems]
    return {
        "draws": [c.draw for c in found],
        "subprograms": min((c.subprograms for c in found), default=0),
        "of": len(result.lifting.computed()),
        "elements": sum(c.elements for c in found),
        "share": max((c.share for c in found), default=0.0),
        "bound": max((c.bound for c in found), default=0.0),
        "not_compared": sorted({name for c in found for name in c.not_compared}),
        "given": sorted(lifted.output for lifted in result.lifting.found.values() if lifted.place is None),
        "within": sorted({name for lifted in result.lifting.computed() for name in lifted.inside}),
        "problems": problems,
    }


def trusted(program: Program, plan: Plan, vendor: str) -> list[str]:
    """What nothing here proves, in words."""
    used = {name for kernel in plan.kernels for name in functions(kernel)} - EXACT
    opaque = sum(isinstance(k, OpaqueCall) and k.recursion is None for k in plan.kernels)
    recursions = sum(isinstance(k, OpaqueCall) and k.recursion is not None for k in plan.kernels)
    found = ["the importer: that the expressions are what the ONNX nodes mean"]
    if program.spreads:
        named = ", ".join(program.spreads)
        found.append(f"tables of waves, by which long filters are computed ({named}): they give the filters at the places tried")
    if program.settled:
        named = ", ".join(program.settled)
        found.append(f"normal forms: that what they prove to depend on no input ({named}) is what a computation of it gives for numbers")
    if any(isinstance(k, VendorKernel) for k in plan.kernels):
        found.append(f"{vendor}: products and convolutions beyond the integers on which they were run")
    for name, count in Counter(a.name for a in map(arithmetic_of, plan.kernels) if a.rounds).items():
        found.append(f"{count} products and convolutions round their factors to {name}: numbers are held against that")
    if any(isinstance(k, EOperator) for k in plan.kernels):
        found.append("the code generator: rounding of generated kernels beyond the values on which they were run")
    if used:
        found.append(f"the element functions {', '.join(sorted(used))}, to 1e-6 relative")
    if opaque:
        found.append(f"ONNX Runtime: {opaque} nodes that it runs as the model has them")
    if recursions:
        found.append(f"the code generator along time: {recursions} nodes are their equations, and their numbers alone are compared")
    return found


def functions(kernel: Kernel) -> set[str]:
    """The element functions that a kernel uses."""
    if isinstance(kernel, EOperator):
        return {name for s in walk(kernel.scope) for name in functions_in(s.body)}
    return {p.kind for p in kernel.posts} & FUNCTIONS.keys()
