"""A compiled graph beside the same graph in eager mode: the faster one runs, and eager mode where that is not certain."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from einnet.api.torch.agreement import difference, tolerance
from einnet.api.torch.families import Family, family_of
from einnet.api.torch.halves import HALVES
from einnet.api.torch.make import in_turns
from einnet.api.torch.part import Part, Told
from einnet.api.torch.waiting import Allowance

Compiled = Callable[..., Any]


class Whole:
    """A graph of dynamo's, called with its inputs.

    `compiled` is the graph in parts, `eager` as torch runs it: its operators are other ones than those that the parts are made of. The two are timed
    in turns once for each set of sizes, when the parts have been made; the inputs at the places that the graph `writes` are copies then, the same
    in every call.

    The first sizes have programs at once, or, where there is another graph of the same `weights` (their places among the inputs), when two calls with
    them follow each other. Of others nobody knows whether they come again: they run in eager mode until that has taken as long as programs take to
    make, as skis are rented until the rent comes up to their price. Where `every` size is to have programs, they are made at once; `made_s` is how
    long that may take, where nothing was made yet, or a store had the first ones.
    """

    def __init__(
        self, compiled: Compiled, eager: Compiled, parts: Sequence[Part], allowance: Allowance, *,
        dynamic: bool, writes: Collection[int], weights: Collection[int], slower: bool, every: bool, made_s: float,
    ) -> None:  # fmt: skip
        self.compiled, self.eager, self.parts = compiled, eager, list(parts)
        self._told: list[Told] = []
        self._sorts = any(part.sorts for part in self.parts)
        self._allowance = allowance
        self._dynamic, self._writes, self._fixed, self._every = dynamic, writes, slower, every
        self._made_s, self._price_s = made_s, 0.0
        self._weights, self._family, self._further = weights, Family(), False
        self._warned = False
        self._eager_s: dict[tuple[Any, ...], float] = {}
        self._chosen: dict[tuple[Any, ...], Compiled] = {}
        self._choosing = threading.Lock()
        live.add(self)

    def __call__(self, *args: Any) -> Any:
        """What the graph gives."""
        self._allowance.begin()
        if self._fixed and not self._sorts:
            return self.compiled(*args)
        key = tuple(a.shape if isinstance(a, torch.Tensor) else a for a in args) if self._dynamic else ()
        if not self._chosen and not self._eager_s:
            self._family = family_of(args, self._weights)
            self._further = self._family.further(self)
        again, chosen = self._family.again(self, key), self._chosen.get(key)
        if chosen is not None:
            return chosen(*args)
        first = not self._chosen and (again or not self._further)
        due = first or self._every or self._fixed or self._eager_s.get(key, 0.0) >= (self._price_s if self._chosen else self._made_s)
        return self._first(key, args) if due else self._waiting(key, args)

    @property
    def told(self) -> list[Told]:
        """What became of the graph as a whole, where it does not run in parts."""
        count = len(self._eager_s.keys() - self._chosen.keys())
        waiting = Told("the graph", self._allowance.operators, "eager", f"for {count} further sets of sizes: {self._until}")
        return [*self._told, waiting] if count else list(self._told)

    @property
    def _until(self) -> str:
        price = f"calls of the same sizes have to take {self._price_s or self._made_s:.3g} s there first, as long as programs take to make"
        return f"{price}{'' if self._chosen else ', or to follow each other'} (sizes='all': at once)"

    def _first(self, key: tuple[Any, ...], args: Sequence[Any]) -> Any:
        """A call for sizes without programs makes the parts', and chooses."""
        begin = time.perf_counter()
        given = {n: args[n].clone() for n in self._writes}  # before it is written
        with self._untimed():
            found = self.compiled(*args)
        if self._choosing.acquire(blocking=False):
            try:
                agrees = self._agrees(args, given)
                self._chosen[key] = self._faster(args, given) if agrees else self.eager
                stored = any(part.told[-1].stored for part in self.parts if part.told)
                self._price_s = max(self._price_s, time.perf_counter() - begin, self._made_s if stored else 0.0)
            finally:
                self._choosing.release()
            if not agrees:
                for n, x in given.items():
                    args[n].copy_(x)
                return self.eager(*args)
        return found

    @contextmanager
    def _untimed(self) -> Iterator[None]:
        """A part that is all of the graph is not compared with eager mode by itself: it is as the graph, a little later."""
        alone = self.parts if len(self.parts) == 1 else []
        for part in alone:
            part.timed = False
        try:
            yield
        finally:
            for part in alone:
                part.timed = True

    def _waiting(self, key: tuple[Any, ...], args: Sequence[Any]) -> Any:
        """A call in eager mode, which counts towards programs for these sizes."""
        if self._chosen and not self._warned:
            self._warned = True
            warnings.warn(f"einnet: sizes that differ from the first ones run in eager mode: {self._until}", RuntimeWarning, stacklevel=2)
        begin = time.perf_counter()
        found = self.eager(*args)
        self._eager_s[key] = self._eager_s.get(key, 0.0) + time.perf_counter() - begin
        return found

    def _agrees(self, args: Sequence[Any], given: Mapping[int, Any]) -> bool:
        """What the graph gives is eager mode's. A part that sorts may give equal elements in another order, which is right only where nothing else
        goes by torch's: another part that sorts the same, or who gets the result."""
        if not any(part.sorts and part.told and part.told[-1].runs == "einnet" for part in self.parts):
            return True
        call = repeated(args, given)
        with torch.random.fork_rng(devices=[]):
            state = torch.get_rng_state()
            wanted = tree_leaves(call(self.eager))
            torch.set_rng_state(state)
            found = tree_leaves(call(self.compiled))
        pairs = [(f, w) for f, w in zip(found, wanted, strict=True) if isinstance(w, torch.Tensor)]
        limit = tolerance(self.parts[0].settings)
        if all(difference(f, w) <= (NEAR if w.dtype in HALVES else limit) for f, w in pairs):
            return True
        self._told.append(Told("the graph", self._allowance.operators, "eager", "equal elements that it sorts are in another order there"))
        return False

    def _faster(self, args: Sequence[Any], given: Mapping[int, Any]) -> Compiled:
        """What runs from now on, by calls with these arguments, in which the inputs that the graph writes are as they were `given`."""
        if not any(part.told and part.told[-1].runs == "einnet" for part in self.parts):
            return self.eager
        if self._fixed:
            return self.compiled
        call = repeated(args, given)
        with torch.random.fork_rng(devices=[]):
            faster, eager_ms, einnet_ms = in_turns(lambda: call(self.eager), lambda: call(self.compiled), max(p.awake_s for p in self.parts))
        if len(self.parts) == 1:
            told = self.parts[0].told
            runs, why = (told[-1].runs, told[-1].why) if faster else ("eager", "it is no slower there")
            told[-1] = replace(told[-1], runs=runs, why=why, eager_ms=eager_ms, einnet_ms=einnet_ms)
        elif not faster:
            self._told.append(Told("the graph", self._allowance.operators, "eager", "as a whole it is no slower there", eager_ms, einnet_ms))
        return self.compiled if faster else self.eager


NEAR = 2.0**-4
"""How far numbers of half precision may be from eager mode's, relative to max|y|: each part was compared closely, and another order is far off."""


def repeated(args: Sequence[Any], given: Mapping[int, Any]) -> Callable[[Compiled], Any]:
    """Calls a graph with these arguments, in which those that it writes are as they were `given`."""
    copies = [given[n].clone() if n in given else a for n, a in enumerate(args)]

    def call(graph: Compiled) -> Any:
        for n, x in given.items():  # a counter that every call adds to would leave the table that it counts along
            copies[n].copy_(x)
        return graph(*copies)

    return call


live: weakref.WeakSet[Whole] = weakref.WeakSet()


def parts() -> list[Told]:
    """What became of every part of what is compiled now, and of graphs that are left in eager mode as a whole."""
    return [told for whole in live for told in (*(t for part in whole.parts for t in part.told), *whole.told)]
