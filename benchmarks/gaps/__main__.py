"""Rule synthesis backwards: which equal and cheaper expressions do the rules not reach?

    python -m benchmarks.gaps                     the shortest gaps, into benchmarks/results/gaps.json
    python -m benchmarks.gaps --seconds 600       more of them

All small scopes over a few tensors are grouped by what they evaluate to. In each group the cheapest (operations) is what a search from every other
member should find within a few steps; where it does not, and the checker proves the two equal, that is a gap. Shortest first.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gaps.expressions import Bounds, expressions, size
from benchmarks.verified import RESULTS
from einnet.derivation.checker.check import check_equal
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope, tensors
from einnet.expr.values.evaluate import evaluate
from einnet.search.space import Options, Space
from einnet.search.work import Weights, flops

DIGITS = 9
"""Decimal digits to which values are compared: integers are exact, quotients nearly so. The checker decides about what is found."""

OPERATIONS = Weights(balance=0.0, launch=0.0, generated=1.0)
"""The search counts operations, and nothing else."""


@dataclass(frozen=True)
class Gap:
    """`cheaper` is equal to `before`, as the checker proves, and the search from `before` ends at `reached` operations."""

    before: str
    cheaper: str
    ops_before: int
    ops_cheaper: int
    ops_reached: int
    proof: str


class Values:
    """What expressions evaluate to, at the same small integers whenever a tensor of the same name is read."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.held: dict[str, Any] = {}

    def print(self, e: Scope) -> tuple[Any, ...]:
        """A fingerprint of the values: those that are equal have the same."""
        for name, t in tensors(e).items():
            if name not in self.held:
                self.held[name] = self.rng.choice([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5], t.shape).astype(float)
        y = evaluate(e, self.held)
        scale = np.abs(y).max() or 1.0
        return (y.shape, tuple(i.name for i in e.loops), tuple((np.round(y / scale, DIGITS) + 0.0).ravel()), float(f"{scale:.{DIGITS}g}"))


def groups(found: Iterable[Scope], values: Values) -> list[list[Scope]]:
    """Expressions of equal values, the cheapest of each group first, then the shortest; those that have no cheaper equal are left out."""
    by_values: dict[int, dict[str, Scope]] = {}
    for e in found:
        by_values.setdefault(hash(values.print(e)), {}).setdefault(e.key, e)
    ordered = [sorted(g.values(), key=lambda e: (flops(e), size(e))) for g in by_values.values() if len(g) > 1]
    return [g for g in ordered if flops(g[0]) < flops(g[-1])]


def least(e: Scope, options: Options) -> int:
    """Operations of the cheapest form that a search from the expression finds."""
    return min(flops(form.derivation.end) for form in Space(options).forms(e))


def gaps(found: Sequence[Sequence[Scope]], options: Options, seconds: float) -> Iterator[tuple[int, Gap | None]]:
    """For each group, the shortest member from which the search does not reach the cheapest; None where it reaches it. Short groups first."""
    end = time.monotonic() + seconds
    for n, group in enumerate(sorted(found, key=lambda g: size(g[0]) + min(size(e) for e in g[1:]))):
        if time.monotonic() > end:
            return
        cheapest, wanted = group[0], flops(group[0])
        before = min((e for e in group if flops(e) > wanted), key=size)
        reached = least(before, options)
        gap = None
        if reached > wanted:
            try:
                proof = check_equal(before, cheapest).method
            except CertificateError:
                continue  # equal at these numbers only
            gap = Gap(before.text(), cheapest.text(), flops(before), wanted, reached, proof)
        yield n, gap


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gaps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of searching (default: 120)")
    parser.add_argument("--max-depth", type=int, default=4)
    parser.add_argument("--states", type=int, default=400, help="of each search (default: 400)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factors", type=int, default=Bounds().factors)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "gaps.json")
    options = parser.parse_args(arguments)
    everything = list(expressions(Bounds(factors=options.factors)))
    found = groups(everything, Values(options.seed))
    print(f"{len(everything)} expressions, {len(found)} groups with a cheaper equal", flush=True)
    search = Options(max_depth=options.max_depth, states=options.states, converge=False, weights=OPERATIONS, slack=float("inf"), intensity=0.0)
    tried, rows = 0, []
    for _, gap in gaps(found, search, options.seconds):
        tried += 1
        if gap:
            rows.append(gap)
            print(f"{gap.before}\n    = {gap.cheaper}\n    {gap.ops_before} -> {gap.ops_cheaper}, reached {gap.ops_reached}", flush=True)
    print(f"{len(rows)} gaps in {tried} groups that were tried")
    data = {"expressions": len(everything), "groups": len(found), "tried": tried, "max_depth": options.max_depth, "gaps": [asdict(g) for g in rows]}
    options.output.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
