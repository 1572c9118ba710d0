"""Common topologies beside the seven models: each is verified, and none is slower than in ONNX Runtime beyond noise.

    python benchmarks/topologies.py                      all of them at batch 1 on one and two threads
    python benchmarks/topologies.py unet dense --threads 2 --engines onnxruntime openvino einnet

Exit code 1 where a program is missing, wrong or slower. Results, a table and a figure go to benchmarks/results.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from benchmarks.contest.command import parser, run  # noqa: E402
from benchmarks.models import TOPOLOGIES, build  # noqa: E402


def failures(data: dict[str, Any]) -> list[str]:
    """What must not be: no program of ours, or one that is slower than ONNX Runtime beyond the entry's noise."""
    found = []
    for e in data["models"]:
        place = f"{e['model']} b{e['batch']} t{e['threads']}"
        ours, theirs = e["median_ms"].get("einnet"), e["median_ms"].get("onnxruntime")
        if ours is None or theirs is None:
            found.append(f"{place}: {e['missing']}")
        elif theirs / ours < 1 - e["noise"]:
            found.append(f"{place}: {theirs / ours:.2f}x of ONNX Runtime, noise {e['noise']:.1%}")
    return found


def main() -> int:
    """Measure, print and judge."""
    arguments = parser("python benchmarks/topologies.py", __doc__ or "", list(TOPOLOGIES), str(ROOT / "benchmarks/results/topologies.json"))
    arguments.set_defaults(batch=[1], engines=["onnxruntime", "einnet_no_derive", "einnet"], time_budget=45.0, patience=30.0)
    options = arguments.parse_args()
    unknown = [name for name in options.models if name not in TOPOLOGIES]
    if unknown:
        arguments.error(f"no topology {', '.join(unknown)}; there are {', '.join(TOPOLOGIES)}")
    found = failures(run(options, {name: partial(build, name) for name in TOPOLOGIES}))
    print("\n".join(found) or "all verified, none slower")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
