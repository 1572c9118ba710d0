"""The tables of what a card measured, and what had been predicted of the same programs, from the JSON that `benchmarks/gpu.py` wrote.

    python -m benchmarks.card.measured benchmarks/results/cuda-h100.json

writes the table beside it. Measured and predicted times have columns of their own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.card.engines import ENGINES, OURS
from benchmarks.card.summary import geometric_mean, median, rows
from benchmarks.contest.results import write_whole
from benchmarks.models import OPERATORS, SEVEN

Entry = Mapping[str, Any]
MATHS = {"fp32": "Strict float32", "tf32": "TF32", "fp16": "float16", "bf16": "bfloat16"}
HEADS = {
    OURS[1]: "own operators",
    "torch": "torch",
    "torch-nhwc": "torch, channels last",
    "inductor": "torch, compiled",
    "inductor-nhwc": "compiled, channels last",
    "xla": "JAX",
}
assert {*HEADS, OURS[0]} == {*ENGINES}


def table(entries: Sequence[Entry], math: str, batch: int | None) -> list[str]:
    """The rows of one arithmetic: of the seven models at a batch size, or of the operator cases, which have their own."""
    found = [r for r in rows(entries, "hot") if r["math"] == math and belongs(r, batch)]
    others = [n for n in HEADS if any(n in r["ms"] for r in found)]
    heads = ["model", "ours", "back to back", *(HEADS[n] for n in others), "ratio", "error"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(cells(entries, r, others))} |" for r in found]
    mean = geometric_mean([r["speedup"] for r in found if r["speedup"]])
    if batch and mean:
        lines.append(f"| *geometric mean* |{' |' * (2 + len(others))} **{mean:.2f}** | |")
    return lines


def belongs(row: Mapping[str, Any], batch: int | None) -> bool:
    """The row is of one of the seven models at that batch size, or where none is given of an operator case."""
    return row["model"] not in SEVEN if batch is None else row["model"] in SEVEN and row["batch"] == batch


def cells(entries: Sequence[Entry], row: Mapping[str, Any], others: Sequence[str]) -> list[str]:
    """A row of the table."""
    ours = ours_of(entries, row) or {}
    ratio = f"{row['speedup']:.2f}" if row["speedup"] else "–"
    error = f"{ours['error']:.0e}" if "error" in ours else "–"
    times = (row["ms"].get(OURS[0]), median(ours, "burst"), *(row["ms"].get(n) for n in others))
    return [row["model"], *map(us, times), ratio, error]


def comparison(entries: Sequence[Entry]) -> list[str]:
    """What was predicted of the programs that were measured, replay behind replay, which have no time of launching in them."""
    heads = ["model", "batch", "arithmetic", "measured µs, back to back", "predicted µs", "predicted / measured", "steps", "of these timed before"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    off: list[float] = []
    for e in entries:
        took = median(e, "burst")
        if e["engine"] != OURS[0] or e["again"] or "predicted_us" not in e or took is None:
            continue
        share = e["predicted_us"] / (took * 1e3)
        off.append(abs(share - 1))
        row = e["model"], e["batch"], e["math"], us(took), f"{e['predicted_us']:.4g}", f"{share:.2f}", e["steps"], e["recorded"]
        lines.append(f"| {' | '.join(map(str, row))} |")
    if off:
        near = sum(x <= 0.15 for x in off)
        lines += ["", f"Off by {statistics.median(off):.0%} in the median; {near} of {len(off)} are within 15 %."]
    return lines


def place(entry: Entry) -> tuple[int, int, int]:
    """By arithmetic, batch size and model, as they are listed."""
    return list(MATHS).index(entry["math"]), entry["batch"], [*SEVEN, *OPERATORS].index(entry["model"])


def ours_of(entries: Sequence[Entry], row: Mapping[str, Any]) -> Entry | None:
    """The entry of our derived program in a row, its first."""
    wanted = row["model"], row["batch"], row["math"], OURS[0], 0
    return next((e for e in entries if (e["model"], e["batch"], e["math"], e["engine"], e["again"]) == wanted), None)


def us(ms: float | None) -> str:
    """Microseconds for a cell, with four digits."""
    return "–" if ms is None else f"{ms * 1e3:,.1f}" if ms < 1 else f"{ms * 1e3:,.0f}"


def told(data: Mapping[str, Any]) -> str:
    """The whole page."""
    entries, card = sorted(data["entries"], key=place), data["card"]
    lines = [f"One {card['name']} (CUDA {card['cuda']}, driver {card['driver']}).", "", *([data["words"], ""] if "words" in data else [])]
    for math, head in MATHS.items():
        for batch in sorted({e["batch"] for e in entries if e["math"] == math and e["model"] in SEVEN}):
            lines += [f"**{head}, batch {batch}**, µs", "", *table(entries, math, batch), ""]
        if any(e["math"] == math and e["model"] not in SEVEN for e in entries):
            lines += [f"**{head}, operators**, µs", "", *table(entries, math, None), ""]
    lines += ["**Predicted and measured**, the same programs", "", *comparison(entries)]
    return "\n".join([*lines, *alone(data.get("alone"))]) + "\n"


def alone(given: Mapping[str, Any] | None) -> list[str]:
    """Programs that were timed where no other engine was."""
    if given is None:
        return []
    heads = ["model", "batch", "arithmetic", "ours, µs", "back to back", "predicted µs", "error"]
    lines = ["", "**Ours alone**", "", given["words"], "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for r in given["rows"]:
        row = r["model"], r["batch"], r["math"], us(r["us"] / 1e3), us(r["back_to_back_us"] / 1e3), f"{r['predicted_us']:.4g}", f"{r['error']:.0e}"
        lines.append(f"| {' | '.join(map(str, row))} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page beside each file."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card.measured", description=__doc__, formatter_class=raw)
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args(arguments).files:
        write_whole(path.with_suffix(".md"), told(json.loads(path.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
