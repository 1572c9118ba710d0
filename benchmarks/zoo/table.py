"""The zoo's table: a line for each row, the geometric means below, and what is no expression, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

CLASSES = {"default": "reassociation", "precision": "precision"}
"""The rows of a model, and the worst class of step in each."""

TIMES = ("ONNX Runtime", "OpenVINO", "own operators", "optimized")
TITLES = ("model", "class", "nodes", "opaque", "parts", "changed", "operations", "kernels", "runs", *TIMES, "of the best", "noise", "verified")

WHOLE = "whole model"
"""What a row's `runs` says where ONNX Runtime was given the model as it is."""

Row = dict[str, Any]


def cells(row: Row) -> list[str]:
    """One row of the table."""
    ms = shown(row)
    times = [f"{ms[c]:.3g}" if c in ms else "–" for c in ("onnxruntime", "openvino", "einnet_no_derive", "einnet")]
    ratio = of_the_best(ms)
    whole = row.get("runs") == WHOLE
    kept = {**row, "changed": 0, "runs": "ONNX Runtime", "kernels": None, "operations": None} if whole else row
    kept = {**kept, "operations": saved(kept.get("operations"))}
    figures = [str(kept[c]) if kept.get(c) is not None else "–" for c in ("nodes", "opaque", "parts", "changed", "operations", "kernels", "runs")]
    return [row["name"], row["allow"], *figures, *times, f"{ratio:.2f}x" if ratio else "–", f"{row['noise']:.1%}" if row["noise"] else "–",
            "–" if row["verified"] is None else "yes" if row["verified"] else "NO"]  # fmt: skip


def saved(operations: Mapping[str, int] | None) -> str | None:
    """The share of the model's operations that what runs does without, or has more."""
    if not operations or not operations["model"]:
        return None
    share = operations["runs"] / operations["model"] - 1
    return f"{share:+.0%}".replace("-", "−") if abs(share) >= 0.005 else "0"


def shown(row: Row) -> Mapping[str, float]:
    """A row's times; where ONNX Runtime runs the whole model its own time is ours: a second measurement of one program is no gain."""
    ms: dict[str, float] = row["ms"]
    return {**ms, "einnet": ms["onnxruntime"]} if row.get("runs") == WHOLE and "onnxruntime" in ms else ms


def of_the_best(ms: Mapping[str, float]) -> float | None:
    """The time of the faster other engine over ours."""
    others = [ms[c] for c in ("onnxruntime", "openvino") if c in ms]
    return min(others) / ms["einnet"] if others and "einnet" in ms else None


def markdown(data: Mapping[str, Any]) -> str:
    """The table, with the machine above, the geometric means and the reasons of opaque nodes below it."""
    machine, models = data["machine"], data["models"]
    lines = [f"Medians in ms on {machine['cpu']}, {machine['cores']} cores, batch 1, {data['threads']} threads.", ""]
    lines += ["| " + " | ".join(TITLES) + " |", "|---" * len(TITLES) + "|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in models]
    for name in CLASSES:
        ratios = [r for row in models if row["allow"] == name and (r := of_the_best(shown(row)))]
        if ratios:
            mean = float(np.exp(np.mean(np.log(ratios))))
            found = f"geometric mean {mean:.2f}x, least {min(ratios):.2f}x"
            lines += ["", f"Class {name}, {len(ratios)} models, against the faster of ONNX Runtime and OpenVINO: {found}."]
    return "\n".join([*lines, *searched(models), *reasons(models)]) + "\n"


def searched(models: list[Row]) -> list[str]:
    """What time each class was given, as the rows tell."""
    given = sorted({tuple(row["asked"]["budgets"].items()) for row in models if "budgets" in row.get("asked", {})})
    said = [", ".join(f"{seconds:g} s for class {name}" for name, seconds in budgets) for budgets in given]
    return [line for budgets in said for line in ("", f"Optimized in one process, one class after the other: {budgets}.")]


def reasons(models: list[Row]) -> list[str]:
    """What is no expression, by model: the same in all classes."""
    told = {row["name"]: row["why_opaque"] for row in models if row.get("why_opaque")}
    return ["", "What is no expression:", "", *(f"- {name}: {'; '.join(why)}" for name, why in told.items())] if told else []
