"""One case measured: layer by layer, with and without converging derivation, with and without fingerprints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Protocol

from benchmarks.search.cases import Case
from benchmarks.search.whole import unpruned
from einnet.derivation.normalise import FORCED
from einnet.expr.nodes import Scope
from einnet.expr.text import parse
from einnet.instantiate.kernels import Kernel
from einnet.search.candidates import Candidate, candidates
from einnet.search.space import Options, Space


class Cost(Protocol):
    """Seconds of kernels, from the profile database where they were measured, else from a roofline."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]: ...


@dataclass(frozen=True)
class Limits:
    """Greatest depth, seconds for each search, and states of the one without fingerprints."""

    depth: int = 7
    seconds: float = 60.0
    states: int = 100_000


def measured(case: Case, cost: Cost, limits: Limits) -> dict[str, Any]:
    """What E4, E5 and E6 are drawn from, for one case."""
    scope = parse(case.text)
    options = Options(max_depth=limits.depth, states=limits.states)
    layers, best = by_depth(scope, options, limits, cost)
    found: dict[str, Any] = {"name": case.name, "expression": case.text, "layers": layers, "target": target(best, layers)}
    found["without_converging"] = by_depth(scope, replace(options, converge=False), limits, cost)[0]
    found["fingerprint"] = [ablation(scope, replace(options, intensity=i), limits) for i in (options.intensity, 0.0)]
    if case.published:
        found["published"] = asdict(case.published)
    return found


def by_depth(scope: Scope, options: Options, limits: Limits, cost: Cost) -> tuple[list[dict[str, Any]], Candidate]:
    """One row for every depth, and the best candidate; times add up from depth to depth, choosing left out."""
    space = Space(replace(options, deadline=time.monotonic() + limits.seconds))
    rows: list[dict[str, Any]] = []
    seconds, least, original = 0.0, inf, inf
    for depth in range(limits.depth + 1):
        start = time.perf_counter()
        forms = space.forms(scope, depth)
        seconds += time.perf_counter() - start
        ranked = candidates(forms, cost.estimates)
        if depth == 0:
            original = min(c.predicted for c in ranked if c.original)
        first = next((c for c in ranked if c.form.derivation.kind != "precision"), ranked[0])
        least = min(least, ranked[0].predicted)
        counts = asdict(space.statistics)
        rate = space.statistics.states / max(seconds, 1e-9)
        speedups = {"speedup": original / least, "speedup_without_precision": original / first.predicted}
        rows.append({"depth": depth, "seconds": seconds, "states_per_s": rate, "forms": len(forms), **speedups, **counts})
        if space.statistics.stopped:
            break
    return rows, ranked[0]


def target(best: Candidate, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """The best candidate: the depth at which it is found, and the steps of its derivation that are no normalisation (all of them explorative
    if there were no converging derivation)."""
    speedup = layers[-1]["speedup"]
    depth = next(row["depth"] for row in layers if row["speedup"] >= speedup * (1 - 1e-9))
    steps = [s.rule for s in best.form.steps if s.rule not in FORCED]
    return {"operators": best.form.operators(), "explorative": depth, "steps": len(steps), "rules": steps}


def ablation(scope: Scope, options: Options, limits: Limits) -> dict[str, Any]:
    """States and seconds with and without fingerprints, and the states of whole expressions without them, as far as they can be had."""
    result: dict[str, Any] = {"intensity": options.intensity}
    for name, chosen in (("with", options), ("without", replace(options, fingerprint=False))):
        space = Space(replace(chosen, deadline=time.monotonic() + limits.seconds))
        start = time.perf_counter()
        space.forms(scope)
        counts = space.statistics
        (root,) = space.roots.values()
        result[name] = {"states": counts.states, "seconds": time.perf_counter() - start, "depth": root.layer, "stopped": counts.stopped}
    states, depth = unpruned(scope, options, limits.seconds)
    result["whole_expressions"] = {"states": states, "depth": depth}
    most = max(states, result["without"]["states"])
    result["pruned"] = 1 - result["with"]["states"] / most if most else 0.0
    return result
