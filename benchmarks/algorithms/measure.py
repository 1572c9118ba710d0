"""What is found for a case: operations before and after, states, seconds, proof; and, where asked for, times in turns with other engines."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx

import einnet
from benchmarks.algorithms.case import Case
from benchmarks.contest.compare import REFERENCE, Effort, Place, compare, outputs_of
from benchmarks.contest.engines import version
from benchmarks.contest.worker import Engine
from benchmarks.reach.measure import proof
from einnet.graph.onnx.importer import load
from einnet.graph.program import Node
from einnet.search.work import flops

MAKES = ("onnxruntime", "openvino", "torch")
"""Engines that run a case's model as it is, where they are installed; a case may name a function that computes the same in their place."""


@dataclass(frozen=True)
class Found:
    """A row of the table. `ms` are medians; an engine that is missing or does not agree has none. `rules` are those of the chosen derivations."""

    name: str
    algorithm: str
    naive_ops: int
    derived_ops: int
    states: int
    seconds: float
    proof: str
    verified: bool
    max_rel: float
    runs: str
    rules: tuple[str, ...]
    ms: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def naive(model: onnx.ModelProto) -> int:
    """Operations of the model as it is written."""
    return sum(flops(n.scope) for n in load(model).nodes if isinstance(n, Node))


def found(case: Case, seconds: float, threads: int, effort: Effort | None) -> Found:
    """Optimize the case, and time it in turns with other engines where an effort is given."""
    model, begin = case.model(), time.monotonic()
    made = einnet.optimize(model, time_budget=seconds, threads=threads, allow=case.allow, fresh=True)
    took = time.monotonic() - begin
    derived = naive(model) if made.outcome.whole else sum(flops(r.candidate.form.tree) for r in made.outcome.results)
    rules = tuple(dict.fromkeys(s.rule for d in made.derivations for s in d.steps))
    checked = made.report["verification"]
    ms, missing = times(case, made, threads, effort) if effort else ({}, {})
    return Found(
        case.name, case.algorithm, naive(model), derived, made.outcome.states, round(took, 2), proof(made.derivations),
        checked["passed"], checked["max_rel"], made.report["runs"], rules, ms, missing,
    )  # fmt: skip


def times(case: Case, made: Any, threads: int, effort: Effort) -> tuple[dict[str, float], dict[str, str]]:
    """Median milliseconds of each engine, in separate processes and in turns; and why the others have none."""
    place = Place(threads, tuple(sorted(os.sched_getaffinity(0))[:threads]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(case.model(), path)
        kinds = {**{name: name for name in MAKES}, **case.others}
        engines = [Engine(name, kind, path) for name, kind in kinds.items() if version(name)]
        engines.append(Engine("einnet", "einnet", made.save(Path(folder) / "program.einnet")))
        reference = outputs_of(next(e for e in engines if e.name == REFERENCE), case.inputs(), place)
        results = compare(engines, case.inputs(), reference, place, effort)
    return medians(results, engines)


def medians(results: dict[str, dict[str, Any]], engines: Sequence[Engine]) -> tuple[dict[str, float], dict[str, str]]:
    """What was measured, and what was said where nothing was."""
    ms = {e.name: round(results[e.name]["median_ms"], 4) for e in engines if "median_ms" in results[e.name]}
    return ms, {e.name: str(results[e.name]["status"]) for e in engines if e.name not in ms}
