"""From a model to a program: read, search, certify, verify, report, for any target."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

from einnet.compile.budget import exceeded
from einnet.compile.garbage import letting_go
from einnet.compile.program_search import Known, search
from einnet.compile.run import Run
from einnet.compile.target import M, Optimization, Target
from einnet.errors import ModelError, NodeError, NotStaticError, OutOfTimeError
from einnet.evidence.certificate import Certificate, certify
from einnet.evidence.comparison.verdicts import failed
from einnet.search.outcome import Outcome
from einnet.search.settings import tell
from einnet.stages import recorded, stage


def optimize(model: Any, target: Target[Any]) -> Optimization:
    """The best verified program for a model; where there is none, or it gives other results, what the target takes instead.

    Raises ModelError, UsageError and BackendError as `einnet.optimize` does.
    """
    started = time.monotonic()
    found: Optimization | None
    try:
        found = read(model, target, started)
    except (NotStaticError, OutOfTimeError, NodeError) as reason:
        instead, found = target.otherwise(str(reason)), None
        if instead is None:
            raise
    if found is None:  # behind the handler: the error holds all that was read and loaded until then
        assert instead is not None
        return read(model, instead, started)
    verification = found.record.verification
    if failed(verification) and target.settings.force is None:
        differs = verification.not_compared or f"their error is {verification.max_rel:.2g} of max|y|"
        other = target.otherwise(f"the model's own operators do not give its results: {differs}")
        with suppress(ModelError):
            return read(model, other, started) if other else found
    return found


def read(model: Any, target: Target[Any], started: float) -> Optimization:
    """Read a model and go on with it."""
    tell(target.settings, "read the model", started)
    worked = begun() if target.settings.force is None else inf
    with recorded():
        with stage("reading the model"):
            program = target.read(model)
        with letting_go(program.weights.values()):
            return compiled(Run(model, program, target.settings, started, target.counted, worked), target, target.history())


def begun() -> float:
    """A time.process_time() value from which is counted how much a run has worked that may be given up for want of time."""
    return time.process_time()


def compiled(run: Run, target: Target[M], known: Known | None) -> Optimization:
    """Search what was read, make the program, prove it, and tell. What is `known` is not searched."""
    nothing = Outcome(run.program, ())
    outcome = search(run.program, run.settings, target.cost, run.searching, known) if run.program.nodes else nothing
    made = target.finish(run, outcome)
    run.tell("check the derivations")
    with stage("proving"):
        certificate = Certificate(()) if made.outcome.whole else certify(made.outcome)
    if not run.counted:  # what is the same on every machine says nothing of this one
        made = replace(made, outcome=made.outcome.noting(*exceeded(run.used, run.settings)))
    report = target.report(run, made, certificate)
    return target.result(made.outcome, made.executable, certificate, report, target, run.model)
