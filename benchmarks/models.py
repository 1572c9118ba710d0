"""E1 (figure 12): the seven models against other engines, batch 1 and 16, one and two threads.

    python benchmarks/models.py                  everything, into benchmarks/results/cpu-models.json with a table and a figure beside it
    python benchmarks/models.py --short          three models at batch 1, in under five minutes, into build/bench
    python benchmarks/models.py resnet18 gcn --batch 1 --threads 2 --engines onnxruntime einnet --time-budget 60

A run that was cut short goes on where it stopped. This file is a script; the name `benchmarks.models` imports the package of generators that
stands beside it.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from benchmarks.contest.command import parser, run  # noqa: E402
from benchmarks.models import SEVEN, build  # noqa: E402

SHORT = ["infogan", "fsrcnn", "resnet18"]
NAMES = [name for name in SEVEN if name != "csrnet_full"]


def main() -> int:
    """Measure and print; 2 for an unknown model."""
    arguments = parser("python benchmarks/models.py", __doc__ or "", NAMES, str(ROOT / "benchmarks/results/cpu-models.json"))
    arguments.add_argument("--short", action="store_true", help=f"{', '.join(SHORT)} at batch 1 on all cores, little time for each")
    options = arguments.parse_args()
    unknown = [name for name in options.models if name not in SEVEN]
    if unknown:
        arguments.error(f"no model {', '.join(unknown)}; there are {', '.join(SEVEN)}")
    options.models = options.models or (SHORT if options.short else NAMES)
    if options.short:
        options.batch, options.threads, options.fresh = [1], options.threads[:1], True
        options.time_budget, options.rounds, options.seconds, options.patience = 20.0, 5, 0.1, 20.0
        options.output = ROOT / "build/bench/cpu-models-short.json"
    run(options, {name: partial(build, name) for name in SEVEN})
    return 0


if __name__ == "__main__":
    sys.exit(main())
