"""The seven models as `.opt.onnx`: each runs in ONNX Runtime with the same outputs; how fast, beside the model that it came from.

    python -m benchmarks.onnx_out [resnet18 ...] [--target native|onnx] [--time-budget 60] [-o benchmarks/results/onnx-out.json]

With `--target native` the program is the one that is fastest as ours, which may be slower as plain ONNX; with `onnx` the one that is fastest in
ONNX Runtime. Exit code 1 where a written model gives other outputs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.models import SEVEN, build
from benchmarks.verified import Row, command, run, stored, told


def one(name: str, options: argparse.Namespace) -> Row:
    """Optimize a model, write it as ONNX, and run it beside the original."""
    import einnet
    from einnet.api.onnx_out import compare

    with tempfile.TemporaryDirectory() as folder:
        path = stored(build(name), folder)
        result = einnet.optimize(path, time_budget=options.time_budget, threads=options.threads, target=options.target)
        written = result.save(Path(folder) / "model.opt.onnx")
        found = compare(result, path, written)
        same = {
            "passed": bool(found.verification["passed"]),
            "max_rel": found.verification["max_rel"],
            "model_in_onnxruntime_ms": found.original_ms,
            "written_in_onnxruntime_ms": found.optimized_ms,
            "speedup_in_onnxruntime": found.speedup,
            "megabytes": written.stat().st_size / 1e6,
        }
        return {"target": options.target, **told(result.report), **same}


if __name__ == "__main__":
    arguments = command(__doc__ or "", list(SEVEN), "onnx-out.json", 60.0)
    arguments.add_argument("--target", default="native", choices=("native", "onnx"))
    sys.exit(run(arguments.parse_args(), list(SEVEN), one))
