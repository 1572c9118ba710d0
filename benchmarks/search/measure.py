"""One case measured: layer by layer, with and without converging derivation, with and without fingerprints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Protocol

from benchmarks.search.cases import Case
from benchmarks.search.whole import unpruned
from einnet.compile.garbage import collection_on_demand
from einnet.derivation.rules import FORCED
from einnet.expr.nodes import Scope
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Kernel
from einnet.search.choosing.candidate import Candidate
from einnet.search.choosing.making import candidates
from einnet.search.space import Options, Space


class Cost(Protocol):
    """Seconds of kernels, from the profile database where they were measured, else from a roofline."""

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]: ...


@dataclass(frozen=True)
class Limits:
    """Greatest depth, seconds for each search, for each without fingerprints, for the count of their states, and states of any."""

    depth: int = 7
    seconds: float = 60.0
    bare: float = 8.0
    count: float = 15.0
    states: int = 100_000


def measured(case: Case, cost: Cost, limits: Limits) -> dict[str, Any]:
    """What E4, E5 and E6 are drawn from, for one case."""
    scope = parse(case.text)
    options = Options(max_depth=limits.depth, states=limits.states)
    layers, best = by_depth(scope, options, limits, cost)
    found: dict[str, Any] = {"name": case.name, "expression": case.text, "layers": layers, "target": target(best, layers)}
    found["without_converging"] = by_depth(scope, replace(options, converge=False), limits, cost)[0]
    found["fingerprint"] = {"default": ablation(scope, options, limits), "isolated": isolated(scope, options, limits)}
    if case.published:
        found["published"] = asdict(case.published)
    return found


def by_depth(scope: Scope, options: Options, limits: Limits, cost: Cost) -> tuple[list[dict[str, Any]], Candidate]:
    """One row for every depth, and the best candidate; times add up from depth to depth, choosing left out.

    `states_per_s` is by seconds of the processor, which others on the machine do not stretch; garbage is collected as in `optimize`.
    """
    space = Space(replace(options, deadline=time.monotonic() + limits.seconds))
    rows: list[dict[str, Any]] = []
    seconds, processor, least, original = 0.0, 0.0, inf, inf
    for depth in range(limits.depth + 1):
        start, used = time.perf_counter(), time.process_time()
        with collection_on_demand():
            forms = space.forms(scope, depth)
        seconds += time.perf_counter() - start
        processor += time.process_time() - used
        ranked = candidates(forms, cost.estimates)
        if depth == 0:
            original = min(c.predicted for c in ranked if c.original)
        first = next((c for c in ranked if c.form.derivation.kind != "precision"), ranked[0])
        least = min(least, ranked[0].predicted)
        counts = asdict(space.statistics)
        rate = space.statistics.states / max(processor, 1e-9)
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
    """States and seconds with and without fingerprints, all else being equal, as far as they can be had.

    `visited` are the scopes that the search with fingerprints looks at, `states` those that steps made of others, and the scope itself: a search
    over whole expressions has one state for each of its steps, and none for the scopes that an expression reads.
    """
    result: dict[str, Any] = {}
    for name, chosen, most in (("with", options, limits.seconds), ("without", replace(options, fingerprint=False), limits.bare)):
        space = Space(replace(chosen, deadline=time.monotonic() + most))
        start = time.perf_counter()
        space.forms(scope)
        seconds, counts = time.perf_counter() - start, space.statistics
        (root,) = space.roots.values()
        made = 1 + sum(len(g.members) - 1 for g in space.groups.values())
        result[name] = {"states": made, "visited": counts.states, "seconds": seconds, "depth": root.layer, "stopped": counts.stopped}
    return result


def isolated(scope: Scope, options: Options, limits: Limits) -> dict[str, Any]:
    """The ablation with every other pruning off: scopes of any intensity are explored, whatever they move.

    The states without fingerprints are counted, over whole expressions, one for each sequence of steps; `orders` says how exactly.
    """
    everything = replace(options, intensity=0.0, slack=inf)
    result = ablation(scope, everything, limits)
    start = time.perf_counter()
    count = unpruned(scope, everything, limits.count)
    result["whole_expressions"] = {**asdict(count), "depth": everything.max_depth, "seconds": time.perf_counter() - start}
    if not result["with"]["stopped"] and count.states > 1:
        most = max(count.states, result["without"]["states"], result["with"]["states"])
        result["pruned"] = 1 - result["with"]["states"] / most
        result["pruned_of_visited"] = 1 - result["with"]["visited"] / most
    return result
