"""Optimize the benchmark models one after the other, each in a process of its own, and keep what their reports say.

    python -m benchmarks.seven resnet18 infogan --threads 2 --allow precision -o benchmarks/results/seven.json

Times are those of `einnet optimize`: ONNX Runtime, the model's own operators and the derived program, interleaved in one process. The file is
written after every model; models that are not named keep their earlier entries.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.models import SEVEN, build

NAMES = [n for n in SEVEN if n != "csrnet_full"]


def optimize(name: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The report of one model; an entry with the error's last line where it fails."""
    import onnx

    model, report = folder / f"{name}.onnx", folder / f"{name}.json"
    proto = build(name, batch=arguments.batch, seed=arguments.seed)
    onnx.save(proto, model, save_as_external_data=proto.ByteSize() > 1 << 30)
    command = [sys.executable, "-m", "einnet", "optimize", str(model), "-o", str(folder / f"{name}.einnet"), "--json", str(report), "--quiet"]
    command += ["--allow", arguments.allow, "--time-budget", str(arguments.time_budget), "--threads", str(arguments.threads)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        return {"model": name, "error": (run.stderr.strip().splitlines() or [f"ended with status {run.returncode}"])[-1]}
    full = json.loads(report.read_text())
    kept = {k: full[k] for k in ("threads", "versions", "settings", "totals", "spread_ms", "certificate", "verification", "notes")}
    changed = [{"nodes": s["nodes"], "operators": s["operators"], "measured_ms": s["measured_ms"], "original_ms": s["original_ms"]}
               for s in full["subprograms"] if s["changed"]]  # fmt: skip
    return {"model": name, "batch": arguments.batch, **kept, "changed": changed}


def line(entry: dict[str, Any]) -> str:
    """One row of the table."""
    if "error" in entry:
        return f"{entry['model']:18} {entry['error']}"
    t, v = entry["totals"], entry["verification"]
    return (
        f"{entry['model']:18} {t['onnxruntime_ms']:10.3f} {t['original_ms']:10.3f} {t['optimized_ms']:10.3f} {t['speedup']:8.2f} "
        f"{t['noise']:7.1%} {len(entry['changed']):8d} {v['max_rel']:10.1e} {'passed' if v['passed'] else 'FAILED':8} {t['total_s']:7.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(NAMES))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--time-budget", type=float, default=120)
    parser.add_argument("--allow", default="precision", choices=("exact", "reassociation", "precision"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/results/seven.json"))
    arguments = parser.parse_args()
    unknown = set(arguments.models) - set(NAMES)
    if unknown:
        parser.error(f"no model {sorted(unknown)[0]!r}; there are {', '.join(NAMES)}")
    found = json.loads(arguments.output.read_text()) if arguments.output.exists() else {"models": []}
    found["machine"] = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "system": platform.platform()}
    columns = (("ORT ms", 10), ("own ops ms", 10), ("ours ms", 10), ("speedup", 8), ("noise", 7), ("changed", 8), ("max error", 10))
    print(f"{'model':18} " + " ".join(f"{name:>{width}}" for name, width in columns) + f" {'':8} {'total s':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models or NAMES:
            entry = optimize(name, arguments, Path(folder))
            found["models"] = [e for e in found["models"] if e["model"] != name] + [entry]
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            temporary = arguments.output.with_suffix(".tmp")
            temporary.write_text(json.dumps(found, indent=1) + "\n")
            temporary.replace(arguments.output)
            print(line(entry), flush=True)


if __name__ == "__main__":
    main()
