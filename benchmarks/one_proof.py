"""How many derivations of a search have one proof for every batch size, and what it costs beside a proof at each: `python -m benchmarks.one_proof`.

A model is searched at the size that stands for all. Every derivation among the candidates is written with the size as a name; those whose expressions
are copies of one are counted, the others by reason. For those that the search chose, the one proof is timed, and proofs at some sizes spread over a
range: these have to hold where there is one proof.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.models import build
from benchmarks.verified import Row, command, run
from einnet.compile.budget import Schedule
from einnet.compile.program_search import search
from einnet.compile.ranges.family import Family
from einnet.derivation.checker.slices import sliced, told
from einnet.derivation.ranged import RangedFile, ranged
from einnet.errors import CertificateError
from einnet.expr.nodes import Scope
from einnet.expr.sized import Unsliced
from einnet.graph.dimension import Dimension
from einnet.graph.onnx.dynamic import carried
from einnet.runtime.costs import CpuCost
from einnet.search.choosing.candidate import Choice, Estimate
from einnet.search.outcome import is_constant
from einnet.search.settings import Settings

MODELS: dict[str, dict[str, int]] = {"resnet18": {"size": 64}, "transformer": {"sequence": 32, "hidden": 64, "heads": 4, "layers": 2}}
RANGE = (1, 32)


class Kept:
    """Knows nothing before, and keeps what is found."""

    def __init__(self) -> None:
        self.choices: list[Choice] = []

    def recall(self, expressions: Mapping[str, Scope], estimate: Estimate) -> dict[str, Choice]:
        """Nothing."""
        return {}

    def remember(self, choices: Sequence[Choice]) -> None:
        """All."""
        self.choices += choices


def one(name: str, options: argparse.Namespace) -> Row:
    """A model: its derivations by the proofs that they have, and times in seconds."""
    size = {**MODELS[name], **json.loads(options.size)}
    found = derivations(name, size, options)
    reasons = Counter(re.sub(r"^the read [^:]*:", "a read:", why) for why in map(unsliced, found) if why)
    chosen = [text for text, wanted in found.items() if wanted and not unsliced(text)]
    begin = time.perf_counter()
    proven = [not isinstance(text.for_every_size(), str) for text in chosen]
    counts = {"size": size, "derivations": len(found), "sliced": len(found) - reasons.total(), "reasons": dict(reasons)}
    counts |= {"chosen": sum(found.values()), "chosen_sliced": len(chosen), "proofs_s": time.perf_counter() - begin}
    each = {str(top): at_each(chosen, top, options.sizes) for top in options.highest}
    return {"passed": all(proven) and all(row["hold"] for row in each.values()), **counts, "at_each": each}


def derivations(name: str, size: Mapping[str, int], options: argparse.Namespace) -> dict[RangedFile, bool]:
    """The derivations of all candidates, and whether the search chose them."""
    threads = options.threads or 1
    settings = Settings(threads=threads, time_budget=options.time_budget, max_depth=options.max_depth, allow="precision")
    family = Family(carried(build(name, **size), "batch"), Dimension("batch", *RANGE), settings)
    kept = Kept()
    search(family.program, settings, CpuCost(threads, constant=is_constant), Schedule(time.monotonic(), options.time_budget), kept)
    found: dict[RangedFile, bool] = {}
    for choice in kept.choices:
        for form in (c.form for c in choice.candidates if c.form.steps):
            text = ranged(form.derivation, [], family.representative, "batch", RANGE, RANGE)
            found[text] = found.get(text, False) or form is choice.best.form
    return found


def unsliced(text: RangedFile) -> str | None:
    """Why the expressions of a derivation are not known to be copies of one."""
    try:
        sliced(text.sized())
    except Unsliced as reason:
        return told(reason, text.name)
    return None


def at_each(texts: Sequence[RangedFile], highest: int, most: int) -> Row:
    """Seconds that a proof of all takes at a size, over sizes spread from 1 to the highest."""
    sizes = tuple(sorted({1 + (highest - 1) * n // (most - 1) for n in range(most)}))
    begin, holds = time.perf_counter(), True
    for text in texts:
        try:
            for size in sizes:
                replace(text, highest=highest, sizes=sizes).at_one(size)
        except CertificateError:
            holds = False
    return {"sizes": sizes, "hold": holds, "s_per_size": (time.perf_counter() - begin) / len(sizes)}


def main() -> int:
    """Run it."""
    parser = command(__doc__.splitlines()[0], tuple(MODELS), "one-proof.json", 60.0)
    parser.add_argument("--max-depth", type=int, default=4, metavar="N")
    parser.add_argument("--highest", type=int, nargs="+", default=[32, 1024], metavar="N", help="ranges from 1 (default: 32 1024)")
    parser.add_argument("--sizes", type=int, default=8, metavar="N", help="sizes at which a proof of its own is timed (default: 8)")
    parser.add_argument("--size", default="{}", metavar="JSON", help='other arguments of the generators, such as {"size": 32}')
    return run(parser.parse_args(), tuple(MODELS), one)


if __name__ == "__main__":
    sys.exit(main())
