"""What programs for the recorded card would take, kernel by kernel: recorded times where there are some, else its laws. Nothing runs on a card.

    python -m benchmarks.card.predicted [MODEL ...] [-o benchmarks/results/cuda-predicted.json]

Each model is searched in both arithmetics, each row in a process of its own; the same search gives the same row. `measured_us` is what the
program that an earlier search found took on the card: another program, measured; it is there to be compared, and null where nothing was.
`search_s` are seconds of the processor until the program was there, lowered, with all imports. Arithmetics of 16 bits are searched where they
are asked for (`--math fp16 bf16`): no time of theirs was recorded, so that every price of a product in them is an estimate.
With `--programs` the programs are kept as well, ready to be measured on a card (`benchmarks/gpu.py --programs`).
A row that is there already by the same settings is left out unless `--fresh`. Where NVRTC is, a row says for which architectures it compiles all
texts of the program; with `--host` also what the host driver ran of it, and by how much that differs from ONNX Runtime. Beside the JSON stands a
table that itemises every row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import rows as by_row
from benchmarks.card.engines import OURS
from benchmarks.card.programs import program_of
from benchmarks.card.summary import Item
from benchmarks.contest.machine import random_inputs
from benchmarks.contest.results import text, write_whole
from benchmarks.models import build
from benchmarks.rows import Row
from einnet.instantiate.kernels.arithmetics import MATHS

if TYPE_CHECKING:
    from onnx import ModelProto

    from einnet.compile.targets.cuda.lowering import Lowered
    from einnet.runtime.cuda.profiling.costs import CudaCost
    from einnet.runtime.cuda.program import CudaProgram

MODELS = ("infogan", "dcgan", "fsrcnn", "gcn", "resnet18", "csrnet", "longformer")
RECORDED = ("fp32", "tf32")
"""Arithmetics in which kernels of the card were timed."""
ARCHITECTURES = ("sm_90", "sm_100")
SEED = 1
"""Of the inputs that the host driver gets."""


def predict(name: str, batch: int, math: str, seconds: float, depth: int, host: bool = False, programs: str | None = None) -> Row:
    """One row, in this process; its program is kept in a folder, if one is given."""
    settings = {"time_budget": seconds, "max_depth": depth}
    model, begin = build(name, batch), time.process_time()
    made, cost, last = derived(model, math, settings)
    used = time.process_time() - begin
    row = {
        **row_of(made, cost), "search_s": round(used, 1), "model": name, "batch": batch, "math": math,
        "measured_us": measured(name, batch, math), "settings": settings, "channels_last": last,
        "compiled_for": compiled_for(made.program.texts), "host": on_host(name, batch, made.program, math) if host else None,
    }  # fmt: skip
    if programs:
        keep(Path(programs), Item(name, batch, math, OURS[0]), made, cost, last, row)
    return row


def keep(folder: Path, item: Item, made: Lowered, cost: CudaCost, channels_last: bool, row: Row) -> None:
    """A program that is ready for a card, and beside it what is predicted of it."""
    from benchmarks.card import lean

    folder.mkdir(parents=True, exist_ok=True)
    path = program_of(folder, item)
    lean.write(path, made, cost.channels_last, channels_last)
    write_whole(path.with_suffix(".json"), text({**row, "launches": made.program.launches}))


def derived(model: ModelProto, math: str, settings: Mapping[str, Any], profile: Path | None = None) -> tuple[Lowered, CudaCost, bool]:
    """What a search finds for the recorded card, or that of a profile, the costs that it went by, and whether data has its channels last."""
    from einnet.compile.targets.cuda.layout import in_order
    from einnet.compile.targets.cuda.target import searched
    from einnet.graph.onnx.importer import load
    from einnet.runtime.cuda.profiling.costs import CudaCost
    from einnet.runtime.cuda.profiling.profile import load as load_profile
    from einnet.runtime.cuda.profiling.profile import shipped
    from einnet.search.outcome import is_constant
    from einnet.search.settings import Settings

    wanted, known = Settings(backend="cuda", allow="precision", **settings), load_profile(profile, math) if profile else shipped(math)
    cost = CudaCost(known, is_constant)
    program, last = in_order(load(model), wanted, cost, cost.channels_last)
    return *searched(program, wanted, known), last


def row_of(made: Lowered, cost: CudaCost) -> Row:
    """What a program is predicted to take, step by step."""
    from einnet.compile.targets.cuda.cuda_report import step_reports

    steps = [
        {"kernel": s.kernel, "us": round((s.predicted_ms or 0.0) * 1e3, 2), "from": "law" if s.estimated else "record"}
        for s in step_reports(made, cost.like(made.plan))
    ]
    return {"predicted_us": round(sum(s["us"] for s in steps), 1), "steps": steps, "states": made.outcome.states, "texts": len(made.program.texts)}


def compiled_for(texts: Mapping[str, str]) -> list[str]:
    """The architectures for which NVRTC compiles every text; none where it is not there."""
    from einnet.runtime.cuda import nvrtc

    if nvrtc.available():
        return []
    return [a for a in ARCHITECTURES if all(isinstance(code, bytes) for _, code in nvrtc.compiled_or_refused(texts, a))]


def on_host(name: str, batch: int, program: CudaProgram, math: str) -> Row:
    """The whole program as the host driver executes it, its products in the arithmetic of the program, beside ONNX Runtime.

    Raises ArithmeticError where it differs by too much.
    """
    from einnet.evidence.comparison.verify import compare_outputs
    from einnet.runtime.cuda.host import Host
    from einnet.search.settings import rounded, tolerance

    inputs = random_inputs(build(name, batch), SEED)
    expected = one_by_one(build(name, 1), inputs, batch)
    host = Host(program)
    compared = compare_outputs(host(inputs), expected, rounded(tolerance("precision", None), MATHS[math]))
    if not compared.passed:
        raise ArithmeticError(f"the host driver's result differs by {compared.max_rel:.1e}")
    return {"ran": "whole", "generated": host.generated, "max_rel": float(f"{compared.max_rel:.1e}")}


def one_by_one(model: ModelProto, inputs: Mapping[str, np.ndarray], batch: int | None) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs for each sample of a batch by the model for one, which has the same weights: all at once takes too much memory.

    Without a batch the model takes the inputs as they are.
    """
    from einnet.runtime.ort import Session

    session = Session(model.SerializeToString(), 1)
    if batch is None:
        return dict(session(inputs))
    found = [session({k: v[n : n + 1] for k, v in inputs.items()}) for n in range(batch)]
    return {name: np.concatenate([outputs[name] for outputs in found]) for name in found[0]}


def measured(name: str, batch: int, math: str) -> float | None:
    """Microseconds of a replay of the derived program that was measured; None where none was."""
    return replayed().get((name, math)) if batch == 1 else None


@cache
def replayed() -> dict[tuple[str, str], float]:
    """Microseconds of replays of derived programs that were measured, by model and arithmetic: the record takes most of a second to read."""
    from benchmarks.card.record import read as recorded

    return {(p.model, p.math): p.us for p in reversed(recorded().programs) if p.search == "measured"}


def apart(name: str, batch: int, math: str, options: argparse.Namespace) -> Row:
    """One row in a process of its own."""
    given = [name, batch, math, options.time_budget, options.max_depth, options.host, options.programs and str(options.programs)]
    return by_row.apart("benchmarks.card.predicted", given, f"{name}, {math}")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Totals, with what was tried without a card, then each row itemised: equal kernels once, with how often they run."""
    lines = ["Predicted by recorded times and laws of an H100: no program of this table ran on a card. What was measured is an earlier program.", ""]
    heads = ["model", "batch", "arithmetic", "predicted µs", "kernels", "by law", "measured µs of an earlier program"]
    heads += ["texts", *ARCHITECTURES, "host driver", "search, processor s"]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for r in rows:
        by_law = sum(s["from"] == "law" for s in r["steps"])
        us = "–" if r["measured_us"] is None else f"{r['measured_us']:.4g}"
        compiled = ["yes" if a in (r.get("compiled_for") or ()) else "–" for a in ARCHITECTURES]
        counts = len(r["steps"]), by_law, us, r.get("texts", "–")
        cells = r["model"], r["batch"], r["math"], f"{r['predicted_us']:.4g}", *counts, *compiled, tried(r), r.get("search_s", "–")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for r in rows:
        lines += ["", f"## {r['model']}, batch {r['batch']}, {r['math']}", "", "| times | µs each | from | kernel |", "|---|---|---|---|"]
        for (kernel, us, source), count in Counter((s["kernel"], s["us"], s["from"]) for s in r["steps"]).items():
            lines.append(f"| {count} | {us:g} | {source} | `{shortened(kernel)}` |")
    return "\n".join(lines) + "\n"


def tried(row: Mapping[str, Any]) -> str:
    """What the host driver ran of a row's program, and its largest error beside ONNX Runtime."""
    host = row.get("host")
    return f"{host['ran']}, {host['max_rel']:.0e}" if host else "–"


def shortened(kernel: str, most: int = 160) -> str:
    """A kernel's text for a cell."""
    whole = kernel.replace("|", "\\|").replace("\n", " ")
    return whole if len(whole) <= most else whole[: most - 1] + "…"


def place(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return list(MATHS).index(row["math"]), row["batch"], MODELS.index(row["model"])


def write(path: Path, rows: Sequence[Row]) -> None:
    """The rows in order, and their table beside them."""
    ordered = sorted(rows, key=place)
    content = {"profile": "profiles/h100.json", "rows": ordered}
    for target, written in ((path, text(content)), (path.with_suffix(".md"), table(ordered))):
        write_whole(target, written)


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict what is missing, write, print the totals."""
    parser = by_row.parser("benchmarks.card.predicted", __doc__, MODELS, 8.0, "cuda-predicted.json")
    parser.add_argument("--math", nargs="+", choices=MATHS, default=list(RECORDED), help="arithmetics of products (default: fp32 and tf32)")
    parser.add_argument("--host", action="store_true", help="execute each program by the host driver, too")
    parser.add_argument("--batch", nargs="+", type=int, default=[1], help="batch sizes (default: 1)")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="keep the programs there, ready for a card")
    options = by_row.asked(parser, arguments, MODELS)
    if options.one:
        return by_row.one(predict, options.one)
    rows = json.loads(options.output.read_text())["rows"] if options.output.exists() else []
    asked = {"time_budget": options.time_budget, "max_depth": options.max_depth}
    for math in options.math:
        for batch in options.batch:
            for name in options.models or MODELS:
                same = [r for r in rows if (r["model"], r["batch"], r["math"]) == (name, batch, math)]
                if same and same[0]["settings"] == asked and not options.fresh:
                    continue
                row = apart(name, batch, math, options)
                rows = [r for r in rows if r not in same] + [row]
                write(options.output, rows)
                print(f"{name}, batch {batch}, {math}: {row['predicted_us']:.4g} µs predicted, measured earlier {row['measured_us']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
