"""Figures from the saved measurements, never from a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plot(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """Speedup by depth (E4), seconds by depth (E5) and states with and without fingerprints (E6); the files that were written."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    lines = (("e4", "speedup", "predicted speedup", "linear"), ("e5", "seconds", "seconds of search", "log"))
    for name, field, label, scale in lines:
        figure, axes = pyplot.subplots(figsize=(8, 5))
        for case in data["cases"]:
            axes.plot([r["depth"] for r in case["layers"]], [r[field] for r in case["layers"]], marker="o", label=case["name"])
        axes.set(xlabel="greatest depth", ylabel=label, yscale=scale)
        axes.legend(fontsize="x-small", ncols=2)
        written.append(_save(figure, folder / f"search-{name}.svg"))
    figure, axes = pyplot.subplots(figsize=(8, 5))
    places = range(len(data["cases"]))
    scopes = [case["fingerprint"]["isolated"] for case in data["cases"]]
    without = [max(s["without"]["states"], s["whole_expressions"]["states"]) for s in scopes]
    axes.bar([p - 0.2 for p in places], without, 0.4, label="without (at least)")
    axes.bar([p + 0.2 for p in places], [s["with"]["states"] for s in scopes], 0.4, label="with fingerprints")
    axes.set(ylabel="states, no other pruning", yscale="log")
    axes.set_xticks(list(places), [case["name"] for case in data["cases"]], rotation=60, ha="right", fontsize="x-small")
    axes.legend()
    written.append(_save(figure, folder / "search-e6.svg"))
    return written


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path)
    return path
