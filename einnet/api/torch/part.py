"""One part of a compiled graph: programs for the sizes and weights with which it is called, eager mode for the rest."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from einnet.api.torch.frozen import freeze
from einnet.api.torch.make import AWAKE_S, Eager, Making, make, waits_actively_s
from einnet.api.torch.options import Options
from einnet.api.torch.order import sorts
from einnet.api.torch.program import Bound
from einnet.api.torch.waiting import Allowance, NotReady
from einnet.api.torch.weights import Watch
from einnet.errors import EinNetError
from einnet.search.settings import Settings

STILL = 3
"""Calls in a row that find changed weights unchanged before a program is made for them: who trains between calls waits for none."""


@dataclass(frozen=True)
class Told:
    """What became of a part: `runs` is "einnet" or "eager", `why` the verdict or the reason, times in ms of one call."""

    part: str
    operators: int
    runs: str
    why: str
    eager_ms: float | None = None
    einnet_ms: float | None = None
    stored: bool = False
    error: float | None = None
    """Greatest difference from eager mode, or from the part in float32 where its numbers are of half precision, relative to max|y|."""

    def __str__(self) -> str:
        times = f" ({self.eager_ms:.3g} ms in eager mode, {self.einnet_ms:.3g} ms here)" if self.eager_ms and self.einnet_ms else ""
        return f"{self.part}: {self.operators} operators run in {self.runs}: {self.why}{times}"


@dataclass
class Entry:
    """A program for one set of sizes and weights, or eager mode."""

    watch: Watch
    runs: Bound | Eager


@dataclass
class Changed:
    """Weights that have no program yet, and how many calls in a row have had them."""

    watch: Watch
    calls: int = 0


@dataclass
class Sized:
    """What there is for one set of sizes."""

    entries: list[Entry] = field(default_factory=list)
    changed: Changed | None = None


def results(module: Any) -> Any:
    """What a graph module gives: a node, or some."""
    return next(node for node in module.graph.nodes if node.op == "output").args[0]


class Part:
    """A submodule of a graph, called with tensors and sizes. Calls from several threads are safe; one of them makes a program, others run eager."""

    def __init__(
        self, name: str, module: Any, weights: Sequence[int], options: Options, settings: Settings, allowance: Allowance
    ) -> None:  # fmt: skip
        self.allowance = allowance
        self.name, self.module, self.weights = name, module, tuple(weights)
        self.options, self.settings = options, settings
        self.operators = sum(n.op == "call_function" for n in module.graph.nodes)
        allowance.operators += self.operators
        self.told: list[Told] = []
        self._sized: dict[tuple[Any, ...], Sized] = {}
        self._tensors = [n for n in range(sum(n.op == "placeholder" for n in module.graph.nodes)) if n not in self.weights]
        self._single = not isinstance(results(module), (tuple, list))
        self.awake_s = AWAKE_S
        self.sorts = sorts(module)
        self.timed = True
        """Whether a program is compared with eager mode here; not where the part is all of a graph that is compared as a whole."""
        self._making = threading.Lock()
        self.full = False
        """Nothing is made any more."""

    def __call__(self, *args: Any) -> Any:
        """The outputs, as the submodule gives them."""
        entry = self.entry(args)
        if entry is None or isinstance(entry.runs, Eager):
            return self.module(*args)
        found = entry.runs(args)
        return found[0] if self._single else found

    def entry(self, args: Sequence[Any]) -> Entry | None:
        """What there is for the sizes and weights of a call, made where there was nothing yet; None where nothing is to be made now."""
        key = tuple(a.shape if isinstance(a, torch.Tensor) else a for a in (args[n] for n in self._tensors))
        sized = self._sized.get(key)
        for entry in sized.entries if sized else ():
            if entry.watch.current(args):
                return entry
        return self._missing(key, args)

    def _missing(self, key: tuple[Any, ...], args: Sequence[Any]) -> Entry | None:
        """Make what there is not yet; None while another thread does."""
        if self.full or not self._making.acquire(blocking=False):
            return None
        try:
            sized = self._sized.setdefault(key, Sized())
            watch = Watch([(n, args[n]) for n in self.weights])
            if not self._due(sized, watch, args):
                return None
            sized.entries = [e for e in sized.entries if not e.watch.replaced(args)]
            if sum(len(s.entries) for s in self._sized.values()) >= self.options.programs:
                self.full = True
                self._kept(Eager(f"there are {self.options.programs} programs of it already, for other sizes or weights", warn=True))
                return None
            made = Entry(watch, self._made(args))
            sized.entries.append(made)
            return made
        finally:
            self._making.release()

    def _due(self, sized: Sized, watch: Watch, args: Sequence[Any]) -> bool:
        """A program is to be made: for new sizes or new weights now, for weights that were written when they have stood still."""
        if not any(e.watch.replaced(args) for e in sized.entries):
            return True
        if sized.changed is None or not sized.changed.watch.current(args):
            sized.changed = Changed(watch)
        sized.changed.calls += 1
        if sized.changed.calls < STILL:
            return False
        sized.changed = None
        return True

    def _made(self, args: Sequence[Any]) -> Bound | Eager:
        try:
            # a mode in which torch watches the first call of a graph takes longer for each operator than many an operator does
            with torch.no_grad(), _disable_current_modes():
                frozen, turn = freeze(self.module, args, self.weights), self.allowance.turn(self.operators)
                making = make(self.module, args, frozen, self.options, self.settings, turn, self.timed)
        except NotReady as error:
            if self.options.strict:
                raise
            budget = f"no program was ready when the {self.allowance.seconds:g} s of the graph were over (graph_budget)"
            return self._kept(Eager(f"{budget}: {error}", warn=True))
        except EinNetError as error:
            if self.options.strict:
                raise
            return self._kept(Eager(str(error).splitlines()[0], warn=True))
        return self._kept(making.runs, making)

    def _kept(self, runs: Bound | Eager, making: Making | None = None) -> Bound | Eager:
        """Write down what became of the part; a warning where it is what nobody asked for."""
        if isinstance(runs, Bound):
            self.awake_s = max(self.awake_s, waits_actively_s(runs.executable))
        where, why = ("eager", runs.why) if isinstance(runs, Eager) else ("einnet", making.verdict if making else "")
        times = (making.eager_ms, making.einnet_ms, making.stored, making.error) if making else (None, None, False, None)
        self.told.append(Told(self.name, self.operators, where, why, *times))
        if isinstance(runs, Eager) and runs.warn:
            warnings.warn(f"einnet: {self.name} ({self.operators} operators) runs in eager mode: {why}", RuntimeWarning, stacklevel=2)
        return runs
