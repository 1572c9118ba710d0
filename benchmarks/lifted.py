"""Which subprograms are lifted from the plan and proven to be the model, for candidates that are drawn at random.

    python -m benchmarks.lifted                          the seven models and the thirteen topologies, at the sizes of the tests
    python -m benchmarks.lifted build/zoo/*.onnx         exported models (benchmarks.zoo.export makes them)

For each distinct subprogram a derived candidate is drawn where a short search finds one, whatever it costs: many forms are lifted that timing would
never keep. Nothing is timed. Exit code 1 where a subprogram is not proven. The table goes to benchmarks/results/lifted.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.drawn import forced
from benchmarks.models import SEVEN, TOPOLOGIES
from einnet.evidence.examine import proven, told_constants, told_lifting
from tests.models import tiny

RESULTS = Path(__file__).parent / "results" / "lifted.json"
COUNTS = ("subprograms", "derived", "proven", "by_derivation", "tested")


def row(name: str, model: Any, seed: int, depth: int, states: int) -> dict[str, Any]:
    """One model with candidates drawn by one seed."""
    begin = time.monotonic()
    program, plan, forms = forced(model, seed, depth, states)
    made = time.monotonic()
    found = proven(program, plan, [f.derivation for f in forms if f.steps])
    told, constants = told_lifting(program, found), told_constants(found.constants)
    changed = sum(any(s.kind != "exact" or s.rule not in ("fold", "tighten", "merge", "relayout", "reorder") for s in f.steps) for f in forms)
    seconds = {"search_s": round(made - begin, 1), "proof_s": round(time.monotonic() - made, 1)}
    counts = {key: told[key] for key in COUNTS}
    kinds = {"distinct": len(forms), "changed": changed, "kernels": len(plan.kernels), "constants": constants["constants"]}
    return {"model": name, "seed": seed, **counts, **kinds, **seconds, "problems": told["problems"] + constants["problems"]}


def main() -> int:
    """Print and store the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lifted", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of benchmark models or .onnx files; default the seven models and the topologies")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--states", type=int, default=200, help="states of a search (default: 200)")
    options = parser.parse_args()
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    bad = 0
    for name in options.models or [*SEVEN, *TOPOLOGIES]:
        for seed in range(options.seeds):
            source = Path(name) if name.endswith(".onnx") else tiny(name)
            found = row(Path(name).name, source, seed, options.depth, options.states)
            bad += bool(found["problems"]) or found["proven"] + found["by_derivation"] != found["subprograms"]
            print(", ".join(f"{key} {value}" for key, value in found.items()), flush=True)
            rows = [r for r in rows if (r["model"], r["seed"]) != (found["model"], seed)] + [found]
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
