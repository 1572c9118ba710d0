"""Scores of a suite's rows: how many are right, KernelBench's fast_p and GraphNet's S(t) and ES(t)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

Row = Mapping[str, Any]

PROGRAMS = "programs"
"""einnet with every program that can be made, however slow: for correctness, and not timed."""

OURS = ("einnet", PROGRAMS)

GRAPH = "the graph"
"""The name that a graph has among its parts where it is left in eager mode as a whole."""

FAST = (0.0, 1.0, 1.5, 2.0)
WRONG = 0.1
"""The speedup that GraphNet counts for what is wrong or fails, at a tolerance that does not forgive it."""

FORGIVEN = {"accuracy": 1, "failure": 3}
"""From which t on GraphNet counts an error as no gain instead."""


def usable(rows: Sequence[Row]) -> list[Row]:
    """The problems that eager mode runs within the limits."""
    return [row for row in rows if row["status"] not in ("unusable", "skipped") and "eager_s" in row]


def kind(row: Row, engine: str) -> str:
    """What became of a problem in an engine: right, in eager mode, wrong, a failure, or ended by a limit of time or memory."""
    found = row["engines"].get(engine)
    if found is None and row["status"] == "ended" and row["why"].startswith("more than"):
        return "ended"
    if found is None or "error" in found:
        return "failure"
    if not found["right"]:
        return "accuracy"
    if engine in OURS and not runs_program(found):
        return "eager"
    return "right"


def runs_program(found: Mapping[str, Any]) -> bool:
    """Some part runs a program of ours."""
    parts = found.get("parts", [])
    return any(p["runs"] == "einnet" for p in parts) and not any(p.get("part") == GRAPH for p in parts)


def speedup(row: Row, engine: str, over: str) -> float | None:
    """Times as fast as another engine, by the median of each; None where one of them was not timed."""
    ms = row.get("ms", {})
    return ms[over][0] / ms[engine][0] if over in ms and engine in ms else None


def fast(rows: Sequence[Row], engine: str, over: str, p: float) -> float:
    """KernelBench's fast_p: the share of problems that are right and more than p times as fast."""
    good = 0
    for row in rows:
        gain = speedup(row, engine, over)
        good += kind(row, engine) in ("right", "eager") and (p == 0.0 or (gain is not None and gain > p))
    return good / len(rows) if rows else 0.0


def scored(rows: Sequence[Row], engine: str, t: int) -> tuple[float, float]:
    """GraphNet's S(t) and ES(t), with its penalty of 0 for what is slower."""
    strict, forgiving = [], []
    for row in rows:
        gain, error = speedup(row, engine, "eager"), wrong_at(row, engine, min(t, 0))
        value = WRONG if error or gain is None else gain
        strict.append(value)
        forgiving.append(1.0 if error and t >= FORGIVEN[error] else value)
    return mean(strict), mean(forgiving)


def wrong_at(row: Row, engine: str, t: int) -> str | None:
    """The kind of error at a level of tolerance, None where the result passes it."""
    found = row["engines"].get(engine)
    if found is None or "error" in found:
        return "failure"
    return None if {"suite", str(t)} & set(found.get("within", ())) else "accuracy"


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return exp(sum(map(log, values)) / len(values)) if values else float("nan")
