"""What `optimize` asks of a program that it made before it is kept: that its kernels are the model, by proof and on integers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

from einnet.evidence.certificate import certify
from einnet.evidence.constants import Recomputed, as_said
from einnet.evidence.examine import Proven, told_kernels, told_lifting
from einnet.evidence.exercise import distinct
from einnet.evidence.lift import lift
from einnet.evidence.prove import Known, by_start, prove
from einnet.evidence.report.schema import Verification
from einnet.evidence.report.verdict_schema import Assured
from einnet.evidence.running import OnProcessor
from einnet.expr.values.points import work
from einnet.instantiate.kernels import EOperator, Plan
from einnet.records import changed

if TYPE_CHECKING:
    from einnet.runtime.cpu.program import Executable
    from einnet.search.outcome import Outcome

CHEAP, MOST = 1 << 22, 16
"""Multiplications of a generated kernel that is run on integers when a program is made, and how many are."""


def assured(outcome: Outcome, executable: Executable, seconds: float) -> Assured:
    """How the program's subprograms are known to be the model's: the verdict of `einnet verify` on them, as far as there is time.

    `left` are those that were not looked at in so many `seconds`.
    `problems` are those of what was derived; `own` those of the model's own operators, which run as they are.
    """
    until = time.monotonic() + seconds
    program = outcome.apart[0] if outcome.apart else outcome.program
    certificate = certify(outcome)
    known = by_start(Known(e.derivation, all(p.method == "inline" for p in e.proofs)) for e in certificate.entries)
    plan = executable.plan
    lifting = lift(program, plan, as_said(program, plan))
    told = told_lifting(program, Proven(Recomputed(), lifting, tuple(prove(lifting, known, until))))
    places = list(islice(cheap(plan), MOST)) if time.monotonic() < until else []
    kernels = told_kernels(plan, OnProcessor(executable), places)
    same = {r.subprogram.output.name for r in outcome.results if not r.changed}
    own = [p for p in told["problems"] if p.split()[0].rstrip(":") in same]
    return {**told, "kernels": kernels["distinct"], "own": own, "problems": [p for p in told["problems"] if p not in own] + kernels["problems"]}


def cheap(plan: Plan) -> Iterator[int]:
    """The places of distinct generated kernels of little work."""
    for n in distinct(plan):
        kernel = plan.kernels[n]
        if isinstance(kernel, EOperator) and work(kernel.scope, prod(kernel.scope.shape)) <= CHEAP:
            yield n


def with_evidence(verification: Verification, told: Mapping[str, Any]) -> Verification:
    """A verification that fails, too, where something derived is not what it should be."""
    return changed(verification, lifting=dict(told), passed=bool(verification.passed and not told["problems"]))
