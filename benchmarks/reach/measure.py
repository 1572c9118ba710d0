"""What is made of a probe: searched without running anything, or optimized as a user would."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import einnet
from benchmarks.reach.probes import Probe
from einnet.derivation.checker.check import check
from einnet.derivation.steps import KINDS, Derivation
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Node
from einnet.graph.split import subprograms
from einnet.search.forms import Form
from einnet.search.outcome import canonical
from einnet.search.space import Options, Space
from einnet.search.work import flops

TOLERANCE = 1.05
"""Times the best known count of operations that still counts as reached: element functions are in what is counted, not in the best count."""


@dataclass(frozen=True)
class Reached:
    """Operations as the model has them, and of the form that is chosen; what it took, and how sure it is.

    `ratio` is the time of the model's own operators beside that of the chosen program, `noise` the relative one of that; 0 where nothing ran.
    `least` is the fewest operations among all candidates, and `runs` what the last decision, by measured time, let run: "derived", "own" for the
    model's own operators, or "onnxruntime" for the whole model; "" where nothing ran.
    """

    model: int
    chosen: int
    states: int
    seconds: float
    proof: str
    ratio: float = 0.0
    noise: float = 0.0
    stopped: str = ""
    least: int = 0
    runs: str = ""
    forms: tuple[Form, ...] = field(default=(), repr=False)

    def found(self, probe: Probe) -> bool:
        """The chosen form takes what the best known one takes, or less."""
        return self.chosen <= enough(probe)

    def among(self, probe: Probe) -> bool:
        """So does one of the candidates, whatever was chosen."""
        return (self.least or self.chosen) <= enough(probe)


def enough(probe: Probe) -> float:
    """Operations that count as those of the best known form."""
    return TOLERANCE * probe.best + (elementwise(probe) if probe.left is None else probe.left)


def elementwise(probe: Probe) -> int:
    """Operations of the model's nodes that reduce nothing: they may remain where the probe does not say what is left of them."""
    return sum(flops(n.scope) for n in load(probe.model()).nodes if isinstance(n, Node) and not n.scope.sums)


def operations(probe: Probe) -> int:
    """Operations of the model as it is written."""
    return sum(flops(n.scope) for n in load(probe.model()).nodes if isinstance(n, Node))


def explored(probe: Probe, seconds: float, most: int = Options.states) -> Reached:
    """Search the probe's pieces, each for its share of some seconds and `most` states, and take the forms with fewest operations; nothing is run."""
    begin = time.monotonic()
    pieces = subprograms(prepare(load(probe.model())))
    whole = sum(flops(p.expression) for p in pieces)
    best: list[Form] = []
    states, stopped = 0, ""
    for p in pieces:
        share = seconds * flops(p.expression) / max(whole, 1)
        space = Space(Options(kinds=KINDS[: KINDS.index(probe.allow) + 1], deadline=time.monotonic() + share, states=most))
        best.append(min(space.forms(canonical(p.expression)), key=lambda f: flops(f.tree)))
        states += space.statistics.states
        stopped = stopped or space.statistics.stopped
    chosen, took = sum(flops(f.tree) for f in best), time.monotonic() - begin
    return Reached(operations(probe), chosen, states, took, proof([f.derivation for f in best]), stopped=stopped, forms=tuple(best))


def optimized(probe: Probe, seconds: float, threads: int) -> Reached:
    """Optimize the probe within a budget of time, measure it beside the model's own operators, and count the operations of what was chosen."""
    begin = time.monotonic()
    found = einnet.optimize(probe.model(), time_budget=seconds, threads=threads, allow=probe.allow, fresh=True)
    took, totals = time.monotonic() - begin, found.report["totals"]
    forms = tuple(r.candidate.form for r in found.outcome.results)
    chosen = operations(probe) if found.outcome.whole else sum(flops(f.tree) for f in forms)
    least = sum(min(flops(c.form.tree) for c in r.choice.candidates) for r in found.outcome.results)
    runs = "onnxruntime" if found.outcome.whole else "derived" if any(r.changed for r in found.outcome.results) else "own"
    before, after = totals["original_ms"], totals["optimized_ms"]
    ratio = before / after if before and after else 0.0
    proven, states = proof(found.derivations), found.outcome.states
    return Reached(operations(probe), chosen, states, took, proven, ratio, totals["noise"], least=least, runs=runs, forms=forms)


def proof(derivations: list[Derivation]) -> str:
    """ "proven" where every step is; "evidence" where the checker has only evaluated one."""
    return "proven" if all(p.method == "inline" for d in derivations for p in check(d)) else "evidence"
