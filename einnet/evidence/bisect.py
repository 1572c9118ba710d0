"""Which subprogram of a stored program moves the result most, and which step of its derivation.

Every derived subprogram runs alone in place of the model's own operators. Along the derivation of the one that moves the result most, each
expression is evaluated in f32 on what the subprogram reads, beside the model's expression in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from einnet.derivation.steps import Derivation
from einnet.errors import UsageError
from einnet.evidence.audit import prepared
from einnet.evidence.comparison.draws import random_values
from einnet.evidence.comparison.verify import compare_outputs
from einnet.evidence.report.verdict_schema import Bisected, ErrorStep, Moved
from einnet.evidence.stored_proofs import Stored
from einnet.expr.nodes import Scope, tensors, walk
from einnet.expr.values.evaluate import evaluate
from einnet.graph.program import Node, Opaque, Program
from einnet.graph.rewrite import anonymous
from einnet.graph.split import Subprogram, subprograms
from einnet.instantiate.build import Build, build
from einnet.instantiate.kernels import Plan
from einnet.instantiate.matching.types import Match
from einnet.instantiate.registry import TABLES
from einnet.search.choosing.candidate import OUT
from einnet.search.outcome import canonical
from einnet.search.plan import Assembly
from einnet.search.space import Options, Space

Array = np.ndarray[Any, np.dtype[Any]]


def bisect(model: Any, stored: Stored, seed: int = 1) -> Bisected:
    """`subprograms`, those that move the result most first, `steps` of the first with their errors, the `step` (from 1) that adds most, and
    `apart`: how many derived subprograms are computed together with others and are not looked at one by one. All runs where the program does: what
    was made for a CUDA device without one by the host driver.

    `moved` is the greatest difference that a subprogram makes, `error` that of an expression in f32, both of max|y|.

    Raises UsageError for a program in which nothing was derived.
    """
    derived = {anonymous(e.derivation.start).key: e for e in stored.certificate.entries}
    changed = {s.key for s in stored.record.subprograms if s.changed} & derived.keys()
    if not changed:
        raise UsageError(f"{stored.path}: nothing in it was derived; it runs the model's own operators")
    program = prepared(model, stored)
    trial = _Trial(program, stored, seed)
    found: list[tuple[float, Subprogram]] = []
    for part in trial.parts:
        if part.key in changed:
            entry = derived[part.key]
            got = trial.run({part.output.name: operators(entry.derivation, entry.matches)})
            found.append((compare_outputs(got, trial.wanted, 0.0).max_rel, part))
    found.sort(key=lambda pair: -pair[0])
    rows: list[Moved] = [{"output": p.output.name, "nodes": list(p.origin), "key": p.key, "moved": moved} for moved, p in found]
    apart = len(changed - {p.key for _, p in found})
    if not found:
        return {"subprograms": [], "steps": [], "step": None, "apart": apart}
    worst = found[0][1]
    steps = errors_by_step(derived[worst.key].derivation, trial.inputs_of(worst))
    return {"subprograms": rows, "steps": steps, "step": greatest(steps), "apart": apart}


class _Trial:
    """The model's own operators, and programs that differ from them in some subprograms, on the same random inputs."""

    def __init__(self, program: Program, stored: Stored, seed: int) -> None:
        self.program, self.execute = program, stored.execute
        self.parts = subprograms(program)
        plain = Space(Options(max_depth=0, converge=False))
        self.originals: dict[str, tuple[Scope, Build]] = {}
        for part in self.parts:
            if part.key not in self.originals:
                form = plain.forms(canonical(part.expression))[0]
                self.originals[part.key] = (form.start, build(form.tree, dict(form.matches), OUT))
        self.inputs = random_values([(name, shape, dtype) for name, (dtype, shape) in stored.inputs.items()], seed)
        self.wanted = self.run({})

    def run(self, instead: Mapping[str, tuple[Scope, Build]], program: Program | None = None) -> dict[str, Array]:
        """Outputs with some subprograms, by the names of their results, computed by other kernels."""
        return self.execute(self.plan(instead, program or self.program), self.inputs)

    def plan(self, instead: Mapping[str, tuple[Scope, Build]], program: Program) -> Plan:
        assembly = Assembly(program)
        parts = {p.output.name: p for p in self.parts}
        for node in program.nodes:
            if isinstance(node, Opaque):
                assembly.opaque(node)
            elif isinstance(node, Node) and node.output.name in parts:
                part = parts[node.output.name]
                start, made = instead.get(node.output.name) or self.originals[part.key]
                assembly.add(made, dict(zip(tensors(start), part.inputs, strict=True)), node.output.name)
        return assembly.finish()

    def inputs_of(self, part: Subprogram) -> list[Array]:
        """What a subprogram reads, in the order of its tensors, as the model's own operators give it."""
        given = {t.name for t in self.program.inputs}
        inner = [n for n in part.inputs if n not in self.program.weights and n not in given]
        seen = self.run({}, replace(self.program, outputs=tuple((n, n) for n in inner))) if inner else {}
        held = {t.name: self.inputs[self.program.names.get(t.name, t.name)] for t in self.program.inputs}
        return [{**self.program.weights, **held, **seen}[n] for n in part.inputs]


def operators(derivation: Derivation, matches: tuple[str, ...]) -> tuple[Scope, Build]:
    """The kernels of a derivation's end: the vendor operators that it names, generated code for the rest."""
    end = derivation.end
    found: dict[Scope, Match] = {}
    for scope in walk(end):
        tried = (table.match(scope) for table in TABLES)
        known = next((m for m in tried if isinstance(m, Match) and str(m) in matches), None)
        if known and scope not in found:
            found[scope] = known
    return derivation.start, build(end, found, OUT)


def errors_by_step(derivation: Derivation, values: list[Array]) -> list[ErrorStep]:
    """The expression before the first step, and after each, in f32: greatest difference from the first in float64, of its greatest |y|."""
    given = dict(zip(tensors(derivation.start), values, strict=True))
    exact = evaluate(derivation.start, given)
    scale = float(np.abs(exact).max(initial=0.0)) or 1.0
    rows = [("start", "", "exact"), *((s.rule, s.parameters, s.kind) for s in derivation.steps)]
    states = (evaluate(state, given, dtype="float32") for state in derivation.states())
    errors = (float(np.abs(state - exact).max(initial=0.0)) / scale for state in states)
    return [{"rule": rule, "parameters": p, "kind": kind, "error": error} for (rule, p, kind), error in zip(rows, errors, strict=True)]


def greatest(steps: list[ErrorStep]) -> int | None:
    """The step after which the error has grown most; None where it grows after none."""
    grown = [after["error"] - before["error"] for before, after in pairwise(steps)]
    return None if max(grown, default=0.0) <= 0 else 1 + grown.index(max(grown))
