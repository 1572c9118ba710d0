"""Results as tables: one row for each entry, times in ms, made from the JSON alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS = ("onnxruntime", "openvino", "torch", "inductor", "einnet_no_derive", "einnet")
TITLES = ("model", "batch", "threads", *COLUMNS, "of the best", "noise", "% of peak", "MB", "ORT's MB")


def rows(entries: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Cells of the table in the order of TITLES."""
    return [row(e) for e in sorted(entries, key=lambda e: (-e["threads"], e["batch"], e["model"]))]


def row(e: dict[str, Any]) -> list[str]:
    """One entry: a dash where an engine has no time, the fastest time starred."""
    times = e["median_ms"]
    best = min(times.values(), default=None)
    cells = [f"{times[c]:.3g}{'*' if times[c] == best else ''}" if c in times else "–" for c in COLUMNS]
    share, memory = e["share_of_peak"].get("einnet"), e["memory_bytes"]
    return [
        e["model"], str(e["batch"]), str(e["threads"]), *cells,
        "–" if e["speedup"] is None else f"{e['speedup']:.2f}x {e['best_baseline']}",
        "–" if e["noise"] is None else f"{e['noise']:.1%}",
        "–" if share is None else f"{share:.0%}",
        *(f"{memory[c] / 1e6:.0f}" if c in memory else "–" for c in ("einnet", "onnxruntime")),
    ]  # fmt: skip


def text(data: dict[str, Any]) -> str:
    """The table for a terminal, with what is missing below it."""
    cells = [list(TITLES), *rows(data["models"])]
    widths = [max(len(r[c]) for r in cells) for c in range(len(TITLES))]
    lines = ["  ".join(v.ljust(w) if c == 0 else v.rjust(w) for c, (v, w) in enumerate(zip(r, widths, strict=True))) for r in cells]
    return "\n".join([*lines, *reasons(data["models"])])


def markdown(data: dict[str, Any]) -> str:
    """The table in Markdown, with the machine above and what is missing below it."""
    machine = data["machine"]
    peaks = ", ".join(f"{v:.0f} GFLOP/s on {n} threads" for n, v in machine["peak_gflops"].items())
    lines = [f"Medians in ms on {machine['cpu']}, {machine['cores']} cores; peak {peaks} (a matrix product). * is the fastest.", ""]
    lines += ["| " + " | ".join(TITLES) + " |", "|---" * len(TITLES) + "|"]
    lines += ["| " + " | ".join(r) + " |" for r in rows(data["models"])]
    return "\n".join([*lines, "", *(f"- {r}" for r in reasons(data["models"]))]) + "\n"


def reasons(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Why an engine has no time, and every entry in which ours is slower than another beyond noise."""
    found = [f"{e['model']} b{e['batch']} t{e['threads']}: {c}: {why}" for e in entries for c, why in e["missing"].items()]
    slow = [e for e in entries if e["speedup"] is not None and e["speedup"] < 1 - (e["noise"] or 0.0)]
    return found + [f"{e['model']} b{e['batch']} t{e['threads']}: slower than {e['best_baseline']}: {e['speedup']:.2f}x" for e in slow]
