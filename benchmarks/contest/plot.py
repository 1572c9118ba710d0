"""Results as a figure: how many times faster than ONNX Runtime each engine is, one panel for each number of threads, from the JSON alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contest.table import COLUMNS

SHADES = dict(zip(COLUMNS, ("#9aa0a6", "#6b8fb5", "#c9a26b", "#b5776b", "#8fb58a", "#1e7d32"), strict=True))
BAR = 0.13


def plot(data: dict[str, Any], path: Path) -> None:
    """Write the figure; its format follows the path's suffix."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    threads = sorted({e["threads"] for e in data["models"]}, reverse=True)
    most = max((sum(e["threads"] == t for e in data["models"]) for t in threads), default=1)
    figure, panels = pyplot.subplots(len(threads) or 1, 1, figsize=(max(7.0, 1.2 + 0.95 * most), 3.4 * max(len(threads), 1)), squeeze=False)
    for count, (panel,) in zip(threads, panels, strict=False):
        entries = sorted((e for e in data["models"] if e["threads"] == count), key=lambda e: (e["batch"], e["model"]))
        draw(panel, entries)
        panel.set_title(f"{count} thread{'s' * (count > 1)}", loc="left", fontsize=10)
    panels[0][0].legend(ncols=len(COLUMNS), fontsize=7, frameon=False, loc="upper right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def draw(panel: Any, entries: list[dict[str, Any]]) -> None:
    """A group of bars for each entry; the height is the ratio to ONNX Runtime's median, the noise a band around 1."""
    for c, column in enumerate(COLUMNS):
        places, heights = [], []
        for n, e in enumerate(entries):
            times = e["median_ms"]
            if column in times and "onnxruntime" in times:
                places.append(n + (c - (len(COLUMNS) - 1) / 2) * BAR)
                heights.append(times["onnxruntime"] / times[column])
        panel.bar(places, heights, BAR, color=SHADES[column], label=column)
    for n, e in enumerate(entries):
        if e["noise"]:
            panel.fill_between([n - 0.45, n + 0.45], 1 - e["noise"], 1 + e["noise"], color="#000000", alpha=0.12, linewidth=0)
    panel.set_xticks(range(len(entries)), [f"{e['model']}\nbatch {e['batch']}" for e in entries], fontsize=7)
    panel.axhline(1, color="#444444", linewidth=0.6)
    panel.set_ylabel("times ONNX Runtime", fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
