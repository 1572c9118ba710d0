"""The seven models and the operator cases on a CUDA card: ours against torch, eager (in a CUDA graph) and compiled, and JAX, in float32 and in TF32.

    python benchmarks/gpu.py --prepare build/card            searches, on any machine: the programs of ours, in minutes each
    python benchmarks/gpu.py --programs build/card           measures on a card; what eight minutes do not hold is left for the next call

Neither TVM nor a search is needed on the card. The engines of a row, one model at one batch size in one arithmetic, are prepared one after the
other, each library in a process of its own, and then sampled by turns, so that all see the same card: single replays, replays back to back, and
single replays behind an overwritten cache. Outputs are compared with ONNX Runtime's before times count; `einnet` takes part twice, which tells the
noise. Batch norms are folded for all. The results are written after every row. An engine that is not installed has a reason instead of times. JAX
has no events: its times are the clock's, launching included. g2bmm is left out unless it is named: as ONNX it needs 41 GB.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from benchmarks.card.crew import LATE, Crew  # noqa: E402
from benchmarks.card.engines import ENGINES, OURS  # noqa: E402
from benchmarks.card.programs import expected, program_of, reference_of  # noqa: E402
from benchmarks.card.summary import STATES, Item, items, lines, missing_items, together  # noqa: E402
from benchmarks.contest.machine import random_inputs  # noqa: E402
from benchmarks.contest.results import text, write_whole  # noqa: E402
from benchmarks.models import OPERATORS, SEVEN, build, parameters  # noqa: E402

MATHS = ("fp32", "tf32", "fp16", "bf16")
TURNS = 10
EACH_TURN = {"hot": 5, "burst": 1, "cold": 3}
"""Rounds over the engines of a row, and samples of each engine in a round."""

EACH_S = 90.0
"""Seconds that an engine has to be prepared for one item: loading, compiling, choosing algorithms."""

Row = Mapping[Item, dict[str, Any]]


def measured(row: Sequence[Item], crew: Crew, left: float, each: float) -> dict[Item, dict[str, Any]]:
    """The items of a row, prepared one after the other and sampled by turns; why there are no times, where there are none.

    What would not be prepared in the time that is `left`, though it may take longer, is not in the result.
    """
    ends, found = time.monotonic() + left, dict[Item, dict[str, Any]]()
    for item in row:
        prepared = replace(item, again=0)
        rest = ends - time.monotonic()
        known = found.get(prepared) if item.again else None
        answer = dict(known) if known is not None else crew.prepare(prepared, min(rest, each)) if rest > 0 else {"missing": f"{LATE} 0 s"}
        if LATE not in answer.get("missing", "") or rest >= each:
            found[item] = answer
    runs = [item for item, answer in found.items() if "missing" not in answer]
    for item in runs:
        found[item].update({state: [] for state in STATES})
    for turn in range(TURNS):
        for item in (*runs[turn % max(len(runs), 1) :], *runs[: turn % max(len(runs), 1)]):
            sampled(item, crew, found[item])
    for item in row:
        crew.drop(replace(item, again=0))
    return found


def sampled(item: Item, crew: Crew, entry: dict[str, Any]) -> None:
    """One turn of an engine, added to its samples."""
    for state, count in EACH_TURN.items():
        if "missing" not in entry:
            answer = crew.sample(replace(item, again=0), state, count)
            if "missing" in answer:
                entry["missing"] = answer["missing"]
            else:
                entry[state] += answer["seconds"]


def as_row(item: Item) -> dict[str, Any]:
    return {"model": item.model, "batch": item.batch, "math": item.math, "engine": item.engine, "again": item.again}


def published(wanted: Sequence[Item]) -> list[Item]:
    """Operator cases have the batch size of the paper's table."""
    return list(dict.fromkeys(replace(i, batch=parameters(i.model)["batch"]) if i.model in OPERATORS else i for i in wanted))


def prepare(folder: Path, wanted: Sequence[Item], profile: Path | None, seconds: float, depth: int) -> None:
    """The programs of ours, and ONNX Runtime's outputs, that are not there yet. Needs no card."""
    from benchmarks.card.predicted import derived, keep, row_of
    from einnet.compile.targets.cuda.target import on_host
    from einnet.evidence.comparison.verify import compare_outputs
    from einnet.instantiate.kernels.arithmetics import MATHS as ARITHMETICS
    from einnet.search.settings import rounded, tolerance

    folder.mkdir(parents=True, exist_ok=True)
    for item in wanted:
        path = program_of(folder, item)
        wants_program = item.engine in OURS and not path.exists()
        if not wants_program and reference_of(folder, item).exists():
            continue
        model = build(item.model, item.batch)
        inputs = random_inputs(model, 0)
        wanted_outputs = expected(folder, item, model, inputs)
        if not wants_program:
            continue
        settings = {"derive": item.engine == OURS[0], "time_budget": seconds, "max_depth": depth}
        found, cost, last = derived(model, item.math, settings, profile)
        made, _, got = on_host(found.outcome, cost, inputs, found)
        limit = rounded(tolerance("precision", None), ARITHMETICS[item.math])
        compared = compare_outputs(got, dict(zip(got, wanted_outputs, strict=True)), limit)
        if not compared.passed:
            raise SystemExit(f"{item.name}: wrong on the host, by {compared.max_rel:.2g} of max|y|")
        keep(folder, item, made, cost, last, {**row_of(made, cost), "settings": settings, "max_rel": compared.max_rel})
        print(path, f"{made.program.launches} launches", flush=True)


def foretold(folder: Path, item: Item) -> dict[str, Any]:
    """What was predicted of a program of ours when it was prepared, and how many steps of it had been timed on their own."""
    path = program_of(folder, item).with_suffix(".json")
    if item.engine not in OURS or not path.exists():
        return {}
    report = json.loads(path.read_text())
    recorded = sum(s["from"] == "record" for s in report["steps"])
    return {"predicted_us": report["predicted_us"], "steps": len(report["steps"]), "recorded": recorded, "launches": report["launches"]}


def properties() -> dict[str, Any]:
    """The card. Raises BackendError where there is none."""
    from einnet.runtime.cuda.driver import Driver

    driver = Driver()
    return {**driver.properties(), **driver.versions()}


def run(wanted: Sequence[Item], programs: Path, output: Path, seconds: float, each: float = EACH_S) -> dict[str, Any]:
    """Measure what the output does not hold, until the time is over, no engine prepared longer than `each`; the file is written after every row."""
    card, ends = properties(), time.monotonic() + seconds
    data: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    if data.get("card") != card:
        data = {"card": card, "entries": []}
    output.parent.mkdir(parents=True, exist_ok=True)
    programs.mkdir(parents=True, exist_ok=True)
    with Crew(programs) as crew:
        for row in together(missing_items(wanted, data["entries"])):
            left = ends - time.monotonic()
            if left <= 0:
                break
            begun = time.monotonic()
            found = measured(row, crew, left, each)
            data["entries"] += [{**as_row(item), **foretold(programs, item), **answer} for item, answer in found.items()]
            write_whole(output, text(data))
            missing = ", ".join(f"{item.engine}: {answer['missing']}" for item, answer in found.items() if "missing" in answer)
            took = f"{len(found)} of {len(row)} in {time.monotonic() - begun:.0f} s"
            print(f"{row[0].model} b{row[0].batch} {row[0].math}: {took} {missing}", flush=True)
    return data


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, measure, print."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python benchmarks/gpu.py", description=__doc__, formatter_class=raw)
    known = [*SEVEN, *OPERATORS]
    usual = [name for name in known if name != "g2bmm"]
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)} (default: all but g2bmm)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="of the seven models (default: 1); operator cases have their own")
    parser.add_argument("--math", nargs="+", choices=MATHS, default=["fp32", "tf32"], help="arithmetics of products (default: fp32 tf32)")
    parser.add_argument("--engines", nargs="+", choices=tuple(ENGINES), default=list(ENGINES))
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="write the programs of ours there and measure nothing; needs no card")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/card", metavar="DIR", help="where they were written (default: build/card)")
    parser.add_argument("--profile", type=Path, help="of the card, for the searches (default: a recorded H100)")
    parser.add_argument("--time-budget", type=float, default=120.0, help="seconds of each search")
    parser.add_argument("--max-depth", type=int, default=7, help="of each search")
    parser.add_argument("--seconds", type=float, default=460.0, help="of measuring (default: 460)")
    parser.add_argument("--each", type=float, default=EACH_S, help=f"most seconds of one engine on one model (default: {EACH_S:g})")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks/results/gpu.json")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.models if name not in known]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = published(items(options.models or usual, options.batch, options.math, options.engines))
    if options.prepare:
        prepare(options.prepare, wanted, options.profile, options.time_budget, options.max_depth)
        return 0
    from einnet.errors import EinNetError

    try:
        data = run(wanted, options.programs, options.output, options.seconds, options.each)
    except EinNetError as error:
        print(error, file=sys.stderr)
        return 2
    print(*lines(data["entries"]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
