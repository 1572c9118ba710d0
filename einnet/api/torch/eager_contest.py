"""A compiled graph beside the same graph in eager mode: the faster one runs, and eager mode where that is not certain."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from einnet.api.torch.make import in_turns
from einnet.api.torch.part import Part, Told
from einnet.api.torch.waiting import Allowance

Compiled = Callable[..., Any]


class Whole:
    """A graph of dynamo's, called with its inputs.

    `compiled` is the graph in parts, `eager` as torch runs it: its operators are other ones than those that the parts are made of. The two are timed
    in turns once for each set of sizes, when the parts have been made; the inputs at the places that the graph `writes` are copies then.
    """

    def __init__(
        self, compiled: Compiled, eager: Compiled, parts: Sequence[Part], allowance: Allowance, *,
        dynamic: bool, writes: Collection[int], slower: bool,
    ) -> None:  # fmt: skip
        self.compiled, self.eager, self.parts = compiled, eager, list(parts)
        self.told: list[Told] = []
        self._allowance = allowance
        self._dynamic, self._writes, self._fixed = dynamic, writes, slower
        self._chosen: dict[tuple[Any, ...], Compiled] = {}
        self._choosing = threading.Lock()
        live.add(self)

    def __call__(self, *args: Any) -> Any:
        """What the graph gives."""
        self._allowance.begin()
        if self._fixed:
            return self.compiled(*args)
        key = tuple(a.shape if isinstance(a, torch.Tensor) else a for a in args) if self._dynamic else ()
        chosen = self._chosen.get(key)
        return chosen(*args) if chosen is not None else self._first(key, args)

    def _first(self, key: tuple[Any, ...], args: Sequence[Any]) -> Any:
        """The first call for these sizes makes the parts' programs, and chooses."""
        found = self.compiled(*args)
        if self._choosing.acquire(blocking=False):
            try:
                self._chosen[key] = self._faster(args)
            finally:
                self._choosing.release()
        return found

    def _faster(self, args: Sequence[Any]) -> Compiled:
        if not any(told.runs == "einnet" for part in self.parts for told in part.told):
            return self.eager
        args = [a.clone() if n in self._writes else a for n, a in enumerate(args)]
        with torch.random.fork_rng(devices=[]):
            faster, eager_ms, einnet_ms = in_turns(lambda: self.eager(*args), lambda: self.compiled(*args), max(p.awake_s for p in self.parts))
        if faster:
            return self.compiled
        operators = sum(part.operators for part in self.parts)
        self.told.append(Told("the graph", operators, "eager", "as a whole it is no slower there", eager_ms, einnet_ms))
        return self.eager


live: weakref.WeakSet[Whole] = weakref.WeakSet()


def parts() -> list[Told]:
    """What became of every part of what is compiled now, and of graphs that are left in eager mode as a whole."""
    return [told for whole in live for told in (*(t for part in whole.parts for t in part.told), *whole.told)]
