"""What samples of engines on a card say: medians, the best baseline, ratios and their geometric mean. From the JSON alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

from benchmarks.card.engines import ENGINES, OURS

Entry = Mapping[str, Any]
STATES = {"hot": "one graph replay", "burst": "graph replays back to back", "cold": "one graph replay behind an overwritten cache"}


@dataclass(frozen=True, slots=True)
class Item:
    """An engine on a model at a batch size in an arithmetic. `again` numbers repetitions of the same, which tell the noise."""

    model: str
    batch: int
    math: str
    engine: str
    again: int = 0

    @property
    def name(self) -> str:
        return f"{self.model} b{self.batch} {self.math} {self.engine}" + (f" ({self.again + 1})" if self.again else "")


def items(models: Sequence[str], batches: Sequence[int], maths: Sequence[str], engines: Sequence[str]) -> list[Item]:
    """In the order in which they matter: strict float32 at batch 1 first, and all engines of a row beside each other; ours once more at the end."""
    found = []
    for math in maths:
        for batch in batches:
            for model in models:
                row = [Item(model, batch, math, engine) for engine in engines]
                found += [*row, *(Item(model, batch, math, e, 1) for e in engines if e == OURS[0])]
    return found


def missing_items(wanted: Iterable[Item], entries: Iterable[Entry]) -> list[Item]:
    """Those that were not measured yet."""
    done = {(e["model"], e["batch"], e["math"], e["engine"], e["again"]) for e in entries}
    return [i for i in wanted if (i.model, i.batch, i.math, i.engine, i.again) not in done]


def together(items: Iterable[Item]) -> list[list[Item]]:
    """Items of one model, batch size and arithmetic, which are compared with each other, in their order."""
    found: dict[tuple[str, int, str], list[Item]] = {}
    for i in items:
        found.setdefault((i.model, i.batch, i.math), []).append(i)
    return list(found.values())


def median(entry: Entry, state: str) -> float | None:
    """Milliseconds; None where there are no times, or they do not count since the outputs were wrong."""
    return statistics.median(entry[state]) * 1e3 if entry.get(state) and entry.get("right") else None


def rows(entries: Sequence[Entry], state: str) -> list[dict[str, Any]]:
    """A row for each model, batch size and arithmetic: medians by engine, the best that is not ours, how many times faster ours is, the noise."""
    found = []
    for place in dict.fromkeys((e["model"], e["batch"], e["math"]) for e in entries):
        here = [e for e in entries if (e["model"], e["batch"], e["math"]) == place]
        first = {e["engine"]: t for e in here if not e["again"] and (t := median(e, state)) is not None}
        second = [t for e in here if e["again"] and e["engine"] == OURS[0] and (t := median(e, state)) is not None]
        others = {n: t for n, t in first.items() if n not in OURS}
        best = min(others, key=lambda n: others[n], default=None)
        ours = first.get(OURS[0])
        absent = {e["engine"]: e["missing"].partition(":")[0] for e in here if e.get("missing", "").startswith("not installed")}
        found.append({
            "model": place[0], "batch": place[1], "math": place[2], "ms": first, "best": best, "absent": absent,
            "speedup": others[best] / ours if best and ours else None,
            "noise": abs(second[0] / ours - 1) if second and ours else None,
        })  # fmt: skip
    return found


def geometric_mean(values: Sequence[float]) -> float | None:
    return exp(sum(map(log, values)) / len(values)) if values else None


def lines(entries: Sequence[Entry]) -> list[str]:
    """The tables for people."""
    found = []
    for state, told in STATES.items():
        table = rows(entries, state)
        found.append(f"{state}: ms of {told}")
        for r in table:
            times = "  ".join(f"{n} {r['ms'][n]:.4f}" if n in r["ms"] else f"{n} {r['absent'].get(n, '-')}" for n in ENGINES)
            ratio = f"{r['speedup']:.2f}x of {r['best']}" if r["speedup"] else "no comparison"
            noise = f", noise {r['noise']:.1%}" if r["noise"] is not None else ""
            found.append(f"  {r['model']} b{r['batch']} {r['math']}: {times}  {ratio}{noise}")
        for math in dict.fromkeys(r["math"] for r in table):
            mean = geometric_mean([r["speedup"] for r in table if r["math"] == math and r["speedup"]])
            if mean is not None:
                found.append(f"  {math}: geometric mean {mean:.2f}x")
    return found
