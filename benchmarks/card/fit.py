"""The laws of a card from the record of one: the parameters by which everything is priced that nobody timed.

    python -m benchmarks.card.fit                    writes profiles/h100.json, whose times it keeps, and profiles/h200.json as an estimate

The parameters are those with the least error of the logarithm over all recorded kernels of a kind, found by the method of Nelder and Mead from
the starts below; the same record gives the same laws. A generated contraction that is priced too low counts twice: what nobody measured should not
be chosen for its price. So do, `USED` times, the kernels of the programs that were measured: most others are candidates that lost, small and alike.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import fields, replace
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.card.record import Record, kind, lasting, read
from einnet.instantiate.kernels import EOperator, Kernel
from einnet.runtime.cuda.fit import parts
from einnet.runtime.cuda.profiling import profile as profiles
from einnet.runtime.cuda.profiling.card_files import Card
from einnet.runtime.cuda.profiling.costs import estimate, modelled
from einnet.runtime.cuda.profiling.laws import PARTS, ConvolutionLaw, GeneratedLaw, Laws, ProductLaw, TransposedLaw
from einnet.runtime.cuda.profiling.profile import H200, MATHS, scaled_to

ROOT = Path(__file__).resolve().parents[2]
Row = tuple[Kernel, float]

START = {
    "fp32": Laws(
        132,
        ProductLaw(2.77e-6, 12.5e-9, 0.35, 1.9, 46.6e12, 3.73e-6, 1.69e12, 2.43e12, 1.3e-9, 0.6e-9, 3560.0),
        ConvolutionLaw(3e-6, 23.3e-9, 8.4, 50e12, False, 1.85e-6, 2.8e12, 8e-9, 2.5e-6, 0.3e-6, 8e-9, 8.4e-6),
        TransposedLaw(5.5e-6, 33e-9, 35e12, 2.3e-6, 0.6e12, 10e-9, 8.7e-6),
        GeneratedLaw(1.87e-6, 2.3e12, 5.7e12, 32e6, 2.5, 50e-9, 0.15e-12),
    ),
    "tf32": Laws(
        132,
        ProductLaw(3.42e-6, 3.16e-9, 0.86, 0.7, 454e12, 1.47e-6, 2.87e12, 2.81e12, 0.68e-9, 0.62e-9, 9220.0),
        ConvolutionLaw(4.6e-6, 2.2e-9, 1e6, 150e12, True, 1.7e-6, 2.8e12, 0.4e-9, 2.5e-6, 9e-6, 27e-9, 15e-6),
        TransposedLaw(6.8e-6, 31e-9, 84e12, 1.6e-6, 3e12, 1e-9, 5.9e-6),
        GeneratedLaw(1.87e-6, 2.3e12, 5.7e12, 32e6, 2.5, 50e-9, 0.15e-12),
    ),
}  # fmt: skip

FIXED = {"channels_last", "cache", "grouped"}
"""What is as it starts: what groups cost is the median of ten convolutions in float32, and of one program in TF32."""
FAR = 0.33
"""An error of the logarithm that counts extra: 40 %."""

USED = 3.0
"""How many times a kernel counts that a measured program had."""

ROUNDS = ((0.15, 100), (0.05, 50))
"""Size of the first simplex and number of its steps, one search after the other."""


def error(predicted: float, measured: float, contraction: bool) -> float:
    """What one kernel adds to the error of a law."""
    off = log(predicted / measured)
    return min(abs(off), 1.0) * (2.0 if contraction and off < 0 else 1.0) + (0.3 if abs(off) > FAR else 0.0)


def without_waiting(laws: Laws) -> Laws:
    """The laws where filters lie in a cache."""
    return replace(laws, convolutions=replace(laws.convolutions, cold=0.0), transposed=replace(laws.transposed, cold=0.0))


def fitted(laws: Laws, name: str, rows: Sequence[Row], hot: Sequence[Row], card: Card, used: Set[Kernel] = frozenset()) -> Laws:
    """The laws with the parameters of one of them fitted to the rows, those of kernels that are `used` before others, and to the `hot` ones, whose
    filters lie in a cache."""
    law = getattr(laws, name)
    free = [f.name for f in fields(law) if f.name not in FIXED]
    pieces = [(parts(k), t, isinstance(k, EOperator) and modelled(k)[1] > 0, USED if k in used else 1.0) for k, t in rows]
    warm = [(parts(k), t) for k, t in hot]
    whole = sum(weight for *_, weight in pieces) + len(warm)

    def of(point: Sequence[float]) -> Laws:
        change: dict[str, Any] = {f: float(f"{exp(x):.4g}") for f, x in zip(free, point, strict=True)}
        found: Any = replace(law, **change)
        change = {name: found}
        return replace(laws, **change)

    def loss(point: Sequence[float]) -> float:
        tried = of(point)
        cached = without_waiting(tried)
        found = [weight * error(sum(estimate(p, card, tried) for p in ps), t, contraction) for ps, t, contraction, weight in pieces]
        found += [error(sum(estimate(p, card, cached) for p in ps), t, False) for ps, t in warm]
        return sum(found) / whole

    point = [log(getattr(law, f)) for f in free]
    for size, steps in ROUNDS:
        point = nelder_mead(loss, point, size, steps)
    return of(point)


def nelder_mead(loss: Callable[[Sequence[float]], float], start: Sequence[float], size: float, steps: int) -> list[float]:
    """The best point that a simplex of that size finds in so many steps."""
    simplex = [list(start), *([*start[:n], start[n] + size, *start[n + 1 :]] for n in range(len(start)))]
    known = sorted(((loss(p), p) for p in simplex), key=lambda v: v[0])

    def along(worst: Sequence[float], centre: Sequence[float], factor: float) -> tuple[float, list[float]]:
        point = [c + factor * (c - w) for c, w in zip(centre, worst, strict=True)]
        return loss(point), point

    for _ in range(steps):
        (best, _), (_, worst) = known[0], known[-1]
        centre = [sum(column) / len(start) for column in zip(*(p for _, p in known[:-1]), strict=True)]
        found = along(worst, centre, 1.0)
        if found[0] < best:
            found = min(found, along(worst, centre, 2.0), key=lambda v: v[0])
        elif found[0] >= known[-2][0]:
            found = min(found, along(worst, centre, -0.5), key=lambda v: v[0])
        if found[0] < known[-1][0]:
            known[-1] = found
        else:
            first = known[0][1]
            shrunk = ([f + 0.5 * (x - f) for f, x in zip(first, p, strict=True)] for _, p in known[1:])
            known[1:] = [(loss(p), p) for p in shrunk]
        known.sort(key=lambda v: v[0])
    return known[0][1]


def laws_by(record: Record, math: str) -> Laws:
    """The card's laws in one arithmetic."""
    laws, card = START[math], record.card.card
    used = {k for program in record.programs for k, *_ in program.steps} - record.changed
    rows = [(k, t) for k, t in record.times(math) if lasting(k)]
    for name in PARTS:
        cached = [(k, t) for k, t in record.hot[math].items() if kind(k) == name != "generated"]
        laws = fitted(laws, name, [(k, t) for k, t in rows if kind(k) == name], cached, card, used)
    return laws


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both profiles: the times of the shipped one, and laws."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card.fit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "profiles", metavar="FOLDER", help="for both files (default: profiles)")
    options = parser.parse_args(arguments)
    record, shipped = read(), ROOT / "profiles" / "h100.json"
    known = [replace(profiles.load(shipped, math), finer=None) for math in profiles.held(shipped)]
    every = [replace(p, laws=laws_by(record, p.math)) if p.math in MATHS else p for p in known]
    found = [p for p in every if p.laws is not None]
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "h100.json"
    path.unlink(missing_ok=True)
    profiles.save(path, *every)
    (options.output / "h200.json").unlink(missing_ok=True)
    profiles.save(options.output / "h200.json", *(replace(H200, math=p.math, laws=scaled_to(H200, p)) for p in found))
    for p in found:
        print(p.math, len(p.seconds), "times", p.laws)
    return 0


if __name__ == "__main__":
    sys.exit(main())
