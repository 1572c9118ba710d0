"""Subprograms computed together where that is measured to be faster than one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from einnet.expr.nodes import Scope, Tensor
from einnet.graph.bundle import Bundle, bundles
from einnet.graph.program import Program
from einnet.graph.split import Subprogram
from einnet.instantiate.kernels import Kernel, View
from einnet.instantiate.stitch import window_of
from einnet.search.choosing.candidate import Choice

GAIN = 0.03
"""Share of the time by which a bundle must be faster."""

Measure = Callable[[Sequence[Kernel], float], Sequence[float | None]]


class Chosen(Protocol):
    """A subprogram with what was chosen for it; `names` maps the tensors of the searched expression to those of the program."""

    @property
    def subprogram(self) -> Subprogram: ...
    @property
    def names(self) -> Mapping[str, str]: ...
    @property
    def choice(self) -> Choice: ...


@dataclass(frozen=True)
class Attempt:
    """A bundle that was searched: seconds of its parts one by one, and together, reading or copying the windows included."""

    bundle: Bundle
    choice: Choice
    apart: float
    together: float

    @property
    def pays(self) -> bool:
        """Something was derived for the whole, and it is faster."""
        return not self.choice.best.original and self.together < self.apart * (1 - GAIN)


def attempts_of(program: Program, results: Sequence[Chosen]) -> list[list[Bundle]]:
    """Bundles of the program by their expression, those first whose parts take longest, all of one expression together."""
    seconds = {r.subprogram.output.name: r.choice.best.cost for r in results}
    found: dict[str, list[Bundle]] = {}
    for bundle in bundles(program, [r.subprogram for r in results]):
        if all(seconds[name] < inf for name in bundle.names):
            found.setdefault(bundle.joint.key, []).append(bundle)
    return sorted(found.values(), key=lambda alike: -len(alike) * sum(seconds[name] for name in alike[0].names))


def apart(bundle: Bundle, results: Mapping[str, Chosen]) -> float:
    """Seconds of the parts one by one."""
    return sum(results[name].choice.best.cost for name in bundle.names)


def attempt(bundle: Bundle, choice: Choice, results: Mapping[str, Chosen], measure: Measure, until: float) -> Attempt:
    """What the bundle would take, its readers included, beside what they take now."""
    together = choice.best.measured
    for window in bundle.windows:
        readers = [r for name, r in results.items() if window.output.name in r.subprogram.inputs and name not in bundle.names]
        in_place = sum(slower_by(r, window.output, window.scope, measure, until) for r in readers)
        (copying,) = measure([copy_kernel(window.output, window.scope)], until)
        together += min(in_place, inf if copying is None else copying)
    return Attempt(bundle, choice, apart(bundle, results), together)


def slower_by(reader: Chosen, tensor: Tensor, window: Scope, measure: Measure, until: float) -> float:
    """Seconds that a reader's kernels take more when they read the tensor as a window of another; inf where they cannot, or nobody knows.

    Never less than 0: no kernel reads a window faster than a dense tensor, but a clock may say so.
    """
    buffers = {name for name, actual in reader.names.items() if actual == tensor.name}
    place = window_of(window)
    if place is None:
        return inf
    before = [k for k in reader.choice.best.build.kernels if any(v.buffer in buffers for v in _views(k))]
    after = [k.map_views(lambda v: place.view(v, v.buffer) or v if v.buffer in buffers else v) for k in before]
    times = [*measure(before, until), *measure(after, until)]
    if any(t is None for t in times):
        return inf
    dense, wide = (sum(t for t in part if t is not None) for part in (times[: len(before)], times[len(before) :]))
    return max(wide - dense, 0.0)


def copy_kernel(tensor: Tensor, window: Scope) -> Kernel:
    """The kernel that copies a window into a tensor of its own."""
    place = window_of(window)
    assert place is not None, "the windows of a bundle are windows"
    return place.copy(tensor.name, "joint")


def _views(kernel: Kernel) -> list[View]:
    found: list[View] = []

    def note(v: View) -> View:
        found.append(v)
        return v

    kernel.map_views(note)
    return found


