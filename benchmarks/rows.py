"""A benchmark by rows: each is computed in a process of its own and written when it is done, and one that is there already is left out."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]


def parser(module: str, doc: str | None, models: Iterable[str], seconds: float, output: str) -> argparse.ArgumentParser:
    """The options that such benchmarks have in common. `doc` is the text of the module, `seconds` the default budget of a search."""
    found = argparse.ArgumentParser(prog=f"python -m {module}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(models)} (default: all)")
    budget = f"of each search, counted in states: 250 are a second (default: {seconds:g})"
    found.add_argument("--time-budget", type=float, default=seconds, help=budget)
    found.add_argument("--max-depth", type=int, default=7, help="of each search (default: 7)")
    found.add_argument("--fresh", action="store_true", help="make rows again that are there")
    found.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks/results" / output)
    found.add_argument("--one", help=argparse.SUPPRESS)
    return found


def asked(options: argparse.ArgumentParser, arguments: Sequence[str] | None, models: Iterable[str]) -> argparse.Namespace:
    """The options given; a model that there is not ends the program with what there is."""
    found = options.parse_args(arguments)
    unknown = [name for name in found.models if name not in models]
    if unknown:
        options.error(f"no model {', '.join(unknown)}; there are {', '.join(models)}")
    return found


def one(row: Callable[..., Row], given: str) -> int:
    """Print the row of arguments given as JSON."""
    print(json.dumps(row(*json.loads(given))))
    return 0


def apart(module: str, given: Sequence[object], what: str) -> Row:
    """One row in a process of its own. Raises RuntimeError with what it wrote where it fails."""
    command = [sys.executable, "-m", module, "--one", json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{what}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
