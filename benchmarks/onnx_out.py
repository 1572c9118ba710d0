"""The seven models as `.opt.onnx`: each runs in ONNX Runtime with the same outputs; how fast, beside the model that it came from.

    python -m benchmarks.onnx_out [resnet18 ...] [--target native|onnx] [--time-budget 60] [-o FILE.json] [--table]

Rows go into benchmarks/results/onnx-out.json, those for `--target onnx` into onnx-target.json; `--table` prints the file as a table instead. With
`--target native` the program is the one that is fastest as ours, which may be slower as plain ONNX; with `onnx` the one that is fastest in ONNX
Runtime. Exit code 1 where a written model gives other outputs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models import SEVEN, build
from benchmarks.verified import RESULTS, Row, command, run, stored, told


def one(name: str, options: argparse.Namespace) -> Row:
    """Optimize a model, write it as ONNX, and run it beside the original."""
    import einnet
    from einnet.compile.export.onnx_file import compare

    with tempfile.TemporaryDirectory() as folder:
        path = stored(build(name), folder)
        result = einnet.optimize(path, time_budget=options.time_budget, threads=options.threads, target=options.target)
        written = result.save(Path(folder) / "model.opt.onnx")
        found = compare(result, path, written)
        same = {
            "passed": bool(found.verification.passed),
            "max_rel": found.verification.max_rel,
            "model_in_onnxruntime_ms": found.original_ms,
            "written_in_onnxruntime_ms": found.optimized_ms,
            "speedup_in_onnxruntime": found.speedup,
            "megabytes": written.stat().st_size / 1e6,
        }
        return {"target": options.target, **told(result.report), **same}


def table(rows: Sequence[Row]) -> str:
    """Medians in ms in ONNX Runtime: of the search's interleaved comparison, and of another one with the file that was written."""
    lines = ["| model | derived | threads | ONNX Runtime | written for it | gain | noise | file beside model | max error |", "|---" * 9 + "|"]
    for r in rows:
        if "error" in r:
            lines.append(f"| {r['model']} | – | – | – | – | – | – | – | {r['error']} |")
            continue
        before, after = r["onnxruntime_ms"], r["optimized_ms"]
        times = f"{before:.3g} | {after:.3g} | {before / after:.2f}x | {r['noise']:.0%} | {r['speedup_in_onnxruntime']:.2f}x"
        lines.append(f"| {r['model']} | {r['changed']} of {r['subprograms']} | {r['threads']} | {times} | {r['max_rel']:.0e} |")
    return "\n".join(lines)


def main() -> int:
    arguments = command(__doc__ or "", list(SEVEN), "onnx-out.json", 60.0)
    arguments.add_argument("--target", default="native", choices=("native", "onnx"))
    arguments.add_argument("--table", action="store_true", help="print what was measured")
    options = arguments.parse_args()
    if options.target == "onnx" and options.output == arguments.get_default("output"):
        options.output = RESULTS / "onnx-target.json"
    if options.table:
        print(table(json.loads(options.output.read_text())["models"]))
        return 0
    return run(options, list(SEVEN), one)


if __name__ == "__main__":
    sys.exit(main())
