"""Every backend test case of the installed onnx package through import, search and execution.

    python -m benchmarks.coverage [--kind node] [--match conv] [--depth 1] [-o benchmarks/results/coverage.json]

A case passes if the program gives the case's expected outputs. Where it does not, the model is run by ONNX Runtime alone: if that fails or
gives something else too, the case is "beyond ONNX Runtime"; else it is "failed", and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from einnet.compile.budget import Schedule
from einnet.compile.program_search import search
from einnet.errors import EinNetError, NotStaticError
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Opaque, Program
from einnet.runtime.costs import CpuCost
from einnet.runtime.cpu.program import Executable
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.ort import Session
from einnet.runtime.whole import Whole
from einnet.search.outcome import is_constant
from einnet.search.settings import Settings

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
CATEGORIES = ("expressions", "mixed", "opaque", "whole", "beyond ONNX Runtime", "failed")


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    kind: str
    name: str
    category: str
    detail: str = ""


@dataclass(frozen=True)
class Case:
    """A model with inputs and the outputs that are expected of it, by name; values may be lists (sequences) or None (absent optionals)."""

    kind: str
    name: str
    model: onnx.ModelProto
    data: Sequence[tuple[dict[str, Any], dict[str, Any]]]
    rtol: float
    atol: float


def cases(kinds: Sequence[str] = KINDS, match: str = "") -> list[Case]:
    """The cases of the installed package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = [(kind, t) for kind in kinds for t in load_model_tests(kind=kind) if match in t.name]
    return [case(kind, t) for kind, t in found]


def case(kind: str, test: Any) -> Case:
    """One case of the package, its values read."""
    model = test.model if test.model is not None else onnx.load(Path(test.model_dir) / "model.onnx")
    initialised = {i.name for i in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in initialised]
    if test.data_sets is not None:
        sets = [([array(v) for v in given], [array(v) for v in wanted]) for given, wanted in test.data_sets]
        inputs = list(model.graph.input) if sets and len(sets[0][0]) > len(inputs) else inputs
    else:
        folders = sorted(Path(test.model_dir).glob("test_data_set_*"))
        sets = [(stored(f, "input", inputs), stored(f, "output", model.graph.output)) for f in folders]
    data = [(dict(zip((v.name for v in inputs), i)), dict(zip((v.name for v in model.graph.output), o))) for i, o in sets]
    return Case(kind, test.name, model, data, test.rtol, test.atol)


def array(value: Any) -> Any:
    """Tensors of types that numpy lacks come as protos."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def stored(folder: Path, role: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    """The values of one data set."""
    found: list[Any] = []
    for n, info in enumerate(infos):
        path = folder / f"{role}_{n}.pb"
        if not path.exists():
            break
        if info.type.HasField("sequence_type"):
            sequence = onnx.SequenceProto()
            sequence.ParseFromString(path.read_bytes())
            found.append(numpy_helper.to_list(sequence))
        else:
            found.append(numpy_helper.to_array(onnx.load_tensor(str(path))))
    return found


def attempt(c: Case, depth: int, cost: CpuCost) -> Outcome:
    """Run the case through einnet, and through ONNX Runtime alone where that does not give what is expected."""
    try:
        category, runnable = executable(c, depth, cost)
        problem = next((p for given, wanted in c.data if (p := difference(runnable(plain(given)), wanted, c))), "")
    except EinNetError as error:
        category, problem = "failed", f"{type(error).__name__}: {error}".splitlines()[0]
    except Exception as error:  # whatever it is, it is a finding
        category, problem = "failed", f"{type(error).__name__}: {error}".splitlines()[0]
    if not problem:
        return Outcome(c.kind, c.name, category)
    alone = reference_problem(c)
    return Outcome(c.kind, c.name, "beyond ONNX Runtime" if alone else "failed", alone or problem)


def executable(c: Case, depth: int, cost: CpuCost) -> tuple[str, Any]:
    """The case's category and a call."""
    given = c.data[0][0] if c.data else {}
    symbolic = {v.name for v in c.model.graph.input if any(not d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)}
    shapes = {n: v.shape for n, v in given.items() if n in symbolic and isinstance(v, np.ndarray)}
    try:
        program = prepare(load(c.model, shapes=shapes))
    except NotStaticError:
        return "whole", Whole(c.model.SerializeToString(), 1, c.name)
    settings = Settings(max_depth=depth, time_budget=20.0, threads=1)
    outcome = search(program, settings, cost, Schedule(time.monotonic(), settings.time_budget))
    return categorised(program), Executable(outcome.plan(), 1)


def categorised(program: Program) -> str:
    opaque = sum(isinstance(n, Opaque) for n in program.nodes)
    return "expressions" if not opaque else "opaque" if opaque == len(program.nodes) else "mixed"


def plain(values: dict[str, Any]) -> dict[str, Any]:
    return {n: v if isinstance(v, list) or v is None else np.asarray(v) for n, v in values.items()}


def difference(got: dict[str, Any], wanted: dict[str, Any], c: Case) -> str:
    """Where the outputs differ beyond the case's tolerance; empty where they do not."""
    for name, y in wanted.items():
        problem = unequal(got[name], y, c) if name in got else "is missing"
        if problem:
            return f"output {name!r} {problem}"
    return ""


def unequal(x: Any, y: Any, c: Case) -> str:
    if y is None or x is None:
        return "" if x is None and y is None else "is absent in one of both"
    if isinstance(y, list):
        problems = [unequal(a, b, c) for a, b in zip(x, y)] if len(x) == len(y) else ["has another length"]
        return next((p for p in problems if p), "")
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape:
        return f"has shape {x.shape}, not {y.shape}"
    if y.dtype.kind in "OUS" or y.dtype.kind == "b":
        return "" if (x == y).all() else "differs"
    if not np.allclose(x.astype(np.complex128), y.astype(np.complex128), c.rtol, c.atol, equal_nan=True):
        return f"differs by {np.nanmax(np.abs(x.astype(np.float64) - y.astype(np.float64))):.3g}"
    return ""


def reference_problem(c: Case) -> str:
    """Why ONNX Runtime alone does not pass the case; empty if it does."""
    try:
        session = Session(c.model.SerializeToString(), 1, title=c.name)
        return next((f"ONNX Runtime: {p}" for given, wanted in c.data if (p := difference(session(plain(given)), wanted, c))), "")
    except Exception as error:
        return f"ONNX Runtime: {str(error).splitlines()[0]}"


def table(outcomes: Sequence[Outcome]) -> str:
    """Cases by kind and category."""
    counts = Counter((o.kind, o.category) for o in outcomes)
    kinds = list(dict.fromkeys(o.kind for o in outcomes))
    lines = [f"{'':20}{'cases':>8}" + "".join(f"{c:>{len(c) + 3}}" for c in CATEGORIES)]
    for kind in kinds:
        total = sum(counts[kind, c] for c in CATEGORIES)
        lines.append(f"{kind:20}{total:8}" + "".join(f"{counts[kind, c]:{len(c) + 3}}" for c in CATEGORIES))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append", help="one kind of cases only; may be repeated")
    parser.add_argument("--match", default="", help="cases with this in their name only")
    parser.add_argument("--depth", type=int, default=1, help="depth of the search (default: 1)")
    parser.add_argument("-o", "--output", type=Path, help="write the outcomes as JSON")
    options = parser.parse_args(arguments)
    outcomes = []
    cost = CpuCost(1, ProfileDatabase(), measure=False, constant=is_constant)
    found = cases(tuple(options.kind or KINDS), options.match)
    for n, c in enumerate(found, 1):
        outcomes.append(attempt(c, options.depth, cost))
        if outcomes[-1].category == "failed":
            print(f"failed: {c.kind} {c.name}: {outcomes[-1].detail}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{n} of {len(found)}", end="", file=sys.stderr, flush=True)
    print(table(outcomes))
    if options.output:
        temporary = options.output.with_suffix(".tmp")
        data = {"onnx": onnx.__version__, "depth": options.depth, "cases": [asdict(o) for o in outcomes]}
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        temporary.replace(options.output)
    return 1 if any(o.category == "failed" for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
