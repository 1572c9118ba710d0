"""The rows of the benchmark of precision, and the table that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.contest.compare import REFERENCE

OTHERS = {"openvino_f32": ("openvino", "openvino"), "openvino_default": ("openvino", "benchmarks.precision.engines:openvino_default"),
          "torch_bf16": ("torch", "benchmarks.precision.engines:torch_bf16")}  # fmt: skip
"""Columns of other engines: the package that they need, and the kind of engine."""

COLUMNS = (REFERENCE, *OTHERS, "einnet_f32", "einnet")
TITLES = ("model", "max error", *COLUMNS, "of OpenVINO's default", "rounded", "bound", "noise", "within")

Row = dict[str, Any]


def row(
    name: str, error: float, results: Mapping[str, Any], apart: Mapping[str, float | None], report: Mapping[str, Any] | None, noisy: float | None,
    missing: Mapping[str, str],
) -> Row:  # fmt: skip
    """The figures of one model at one error. It is `within` its budget where our program is there, and its error on every draw is."""
    own = {column: f"{error:g}" if column == "einnet" else column for column in COLUMNS}
    precision = (report or {}).get("precision") or {"products": []}
    rounded = [p for p in precision["products"] if p["runs"]]
    errors = {column: apart[n] for column, n in own.items() if apart.get(n) is not None}
    return {
        "name": name, "max_error": error,
        "ms": {column: results[n]["median_ms"] for column, n in own.items() if "median_ms" in results.get(n, {})},
        "error": errors,
        "draws": {column: results[n]["draws"] for column, n in own.items() if "draws" in results.get(n, {})},
        "within": errors.get("einnet", float("inf")) <= error,
        "bound": max((p["bound"] for p in rounded if p.get("bound") is not None), default=None),
        "rounded": len(rounded), "products": len(precision["products"]), "runs": (report or {}).get("runs"),
        "noise": noisy, "missing": {column: missing[n] for column, n in own.items() if n in missing},
    }  # fmt: skip


def asked_for(found: Row) -> float | str:
    """The error of a row, or the engine whose own error that is."""
    return str(found["like"]) if "like" in found else float(found["max_error"])


def cells(found: Row) -> list[str]:
    """One row of the table: each time with its error."""
    figures = [f"{ms:.3g} ({found['error'].get(c, float('nan')):.1g})" if (ms := found["ms"].get(c)) else "–" for c in COLUMNS]
    ratio = against(found)
    bound = "–" if found["bound"] is None else f"{found['bound']:.1g}"
    noisy = "–" if found["noise"] is None else f"{found['noise']:.1%}"
    rounded = f"{found['rounded']} of {found['products']}"
    within = "yes" if found["within"] else "NO"
    budget = f"{found['max_error']:g}" + (" (OpenVINO's)" if "like" in found else "")
    return [found["name"], budget, *figures, f"{ratio:.2f}x" if ratio else "–", rounded, bound, noisy, within]


def against(found: Row, engine: str = "openvino_default") -> float | None:
    """The time of another engine, of OpenVINO as it comes, over ours."""
    ms = found["ms"]
    return ms[engine] / ms["einnet"] if {engine, "einnet"} <= ms.keys() else None


def no_worse(found: Row) -> bool:
    """Our measured error is no larger than that of OpenVINO as it comes."""
    errors = found["error"]
    return "einnet" in errors and errors["einnet"] <= errors.get("openvino_default", float("inf"))


def markdown(data: Mapping[str, Any]) -> str:
    """The table, with the machine above it, and geometric means and what is missing below."""
    found, models = data["machine"], data["models"]
    budgets = " or ".join(f"{b:g} s" for b in sorted({r["asked"]["time_budget"] for r in models if "asked" in r}))
    searched = f", searched for {budgets} at the widest error" if budgets else ""
    about = f"{found['cpu']}, {data['threads']} threads, batch 1{searched}. {instructions(found)}"
    lines = [f"Medians in ms, and in brackets the error on fresh inputs; {about}", ""]
    lines += ["| " + " | ".join(TITLES) + " |", "|---" * len(TITLES) + "|", *("| " + " | ".join(cells(r)) + " |" for r in models)]
    for error in sorted({asked_for(r) for r in models}, key=lambda e: (isinstance(e, str), e)):
        title = f"Error {error:g}" if isinstance(error, float) else "The error of OpenVINO as it comes"
        compared = [(r, one) for one in models if asked_for(one) == error and (r := against(one))]
        if compared:
            ratios = [r for r, _ in compared]
            mean, fair = float(np.exp(np.mean(np.log(ratios)))), sum(no_worse(one) for _, one in compared)
            told = f"{mean:.2f}x of OpenVINO's default in the geometric mean of {len(ratios)} models, least {min(ratios):.2f}x"
            lines += ["", f"{title}: {told}; our error is no larger in {fair}."]
        beside = [r for one in models if asked_for(one) == error and (r := against(one, REFERENCE))]
        if beside:
            lines += ["", f"{float(np.exp(np.mean(np.log(beside)))):.2f}x of ONNX Runtime, {len(beside)} models, least {min(beside):.2f}x."]
    return "\n".join([*lines, *absent(models)]) + "\n"


def absent(models: list[Row]) -> list[str]:
    """What is missing, and why, a line for each model and engine."""
    told = {f"- {r['name']}, {column}: {why}": None for r in models for column, why in r["missing"].items()}
    return ["", "What is missing:", "", *told] if told else []


def instructions(found: Mapping[str, Any]) -> str:
    """What the processor has for arithmetics other than float32."""
    return f"Instructions for other arithmetics: {', '.join(found['arithmetics']) or 'none'}."
