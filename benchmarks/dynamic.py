"""One artifact for all batch sizes of a range beside a static artifact for each of some sizes: `python -m benchmarks.dynamic`.

For each model and measured size, the time of an inference through the loaded artifact of the range and through the loaded static artifact, in turns
in one process, with the noise of the same measurement; the target is a ratio of at most 1.05. Every size of the range was compared with ONNX
Runtime when the artifact was made, and the errors are in the row.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import einnet
from benchmarks.models import build
from benchmarks.verified import Row, command, run
from einnet.compile.ranges.served import RangedProgram
from einnet.compile.ranges.target import optimize_dynamic
from einnet.compile.targets.stored import StoredProgram
from einnet.runtime.timing import compare

MODELS = ("resnet18", "transformer")
TARGET = 1.05


def one(name: str, options: argparse.Namespace) -> Row:
    """A model: its range optimized, a static artifact for each size, both in turns."""
    size = json.loads(options.size)
    settings = {"threads": options.threads, "allow": options.allow}
    begin = time.monotonic()
    model = build(name, **size)
    found = optimize_dynamic(model, ("batch", options.lowest, options.highest), time_budget=options.time_budget, **settings)
    seconds = time.monotonic() - begin
    errors = {size: entry["verification"]["max_rel"] for size, entry in found.report["sizes"].items()}
    right = all(entry["verification"]["passed"] for entry in found.report["sizes"].values())
    with tempfile.TemporaryDirectory() as folder:
        served = einnet.load(found.save(Path(folder) / "range.einnet"))
        nbytes = (Path(folder) / "range.einnet").stat().st_size
        rows = {}
        for batch in options.sizes:
            static = einnet.optimize(build(name, batch=batch, **size), time_budget=options.static_budget, **settings)
            alone = einnet.load(static.save(Path(folder) / "static.einnet"))
            rows[str(batch)] = {"runs": static.report["runs"], **measured(served, alone, batch, options.seconds)}
    told = {"size": size, "range": [options.lowest, options.highest], "seconds": seconds, "artifact_bytes": nbytes, "errors": errors}
    told |= {"guards": found.report["guards"]["count"], "derivations": found.report["derivations"]}
    return {"passed": right, **told, "sizes": rows, "within": all(row["ratio"] <= TARGET + row["noise"] for row in rows.values())}


def measured(served: RangedProgram, alone: StoredProgram, batch: int, seconds: float) -> Row:
    """Both programs on the same inputs; ms, and the ratio of the medians."""
    rng = np.random.default_rng(batch)
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, (_, shape) in alone.inputs.items()}
    apart = [np.abs(x - y).max() / np.abs(y).max() for x, y in zip(served(inputs).values(), alone(inputs).values(), strict=True)]
    found = compare({"static": lambda: alone(inputs), "range": lambda: served(inputs)}, seconds)
    static, ranged = (found.timings[name] for name in ("static", "range"))
    times = {"static_ms": 1e3 * static.median, "range_ms": 1e3 * ranged.median, "spread_ms": [1e3 * static.spread, 1e3 * ranged.spread]}
    return {**times, "ratio": ranged.median / static.median, "noise": found.noise, "apart": float(max(apart))}


def main() -> int:
    """Run it."""
    parser = command(__doc__.splitlines()[0], MODELS, "dynamic.json", 60.0)
    parser.add_argument("--static-budget", type=float, default=25.0, metavar="SECONDS", help="for each static artifact (default: 25)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing for each size (default: 4)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 3, 16], metavar="N", help="batch sizes to time (default: 1 3 16)")
    parser.add_argument("--lowest", type=int, default=1, metavar="N")
    parser.add_argument("--highest", type=int, default=32, metavar="N")
    parser.add_argument("--allow", default="precision")
    parser.add_argument("--size", default="{}", metavar="JSON", help='other arguments of the generators, such as {"size": 64}')
    options = parser.parse_args()
    return run(options, MODELS, one)


if __name__ == "__main__":
    sys.exit(main())
