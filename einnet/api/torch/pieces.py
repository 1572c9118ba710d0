"""A program in pieces: what has fixed sizes in a graph where others change from call to call.

A text that is generated with a cache that grows has other sizes for every token, and all but the attention to the cache has the same ones. What has
fixed sizes is one part of many pieces, with the rest of the graph between them: it is searched and compared with eager mode as one, and each piece
runs what computes its own results, on constants that all share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from einnet.api.torch.make import Eager
from einnet.api.torch.options import Options
from einnet.api.torch.order import outputs
from einnet.api.torch.part import Entry, Part, results
from einnet.api.torch.program import Bound
from einnet.api.torch.waiting import Allowance
from einnet.api.torch.weights import Watch
from einnet.search.settings import NEVER, Settings

GraphModule = Any
Node = Any
Compiled = Callable[..., Any]

MOST = 0.5
"""The share of a graph's elements from which on what has fixed sizes has a program of its own, which serves all sizes of the others."""

WORTH_A_CALL = 4
"""Operators of a piece without weights that take as long in eager mode as the call of a program."""


class Piece:
    """One of the submodules, called with tensors. It tells its group with what, as long as that wants to know."""

    def __init__(self, group: Group, number: int, module: GraphModule, weights: Collection[int]) -> None:
        self.module, self.weights = module, tuple(weights)
        self.known: list[Entry] = []
        self._group, self._number = group, number
        self._single = not isinstance(results(module), (tuple, list))

    @property
    def count(self) -> int:
        """How many results it gives."""
        return len(outputs(results(self.module)))

    def learn(self, args: Sequence[Any], runs: Bound | Eager) -> None:
        """Run this with the weights among these arguments, and with the same tensors nothing from before they were written."""
        kept = [known for known in self.known if not known.watch.replaced(args)]
        self.known = [*kept, Entry(Watch([(n, args[n]) for n in self.weights]), runs)]

    def __call__(self, *args: Any) -> Any:
        """The outputs, as the submodule gives them."""
        self._group.called(self._number, args)
        for known in self.known:
            if known.watch.current(args):
                if isinstance(known.runs, Eager):
                    break
                found = known.runs(args)
                return found[0] if self._single else found
        else:
            self._group.missing()
        return self.module(*args)


class _Call(threading.local):
    """A call of the graph in this thread: the arguments of its pieces so far, and whether one had no program for its weights."""

    def __init__(self) -> None:
        self.args: dict[int, Sequence[Any]] = {}
        self.missing = False


class Group:
    """The pieces of one graph, with their places among the arguments of the `part` that they are together.

    `pieces` are submodules with the names of what they are called with in the graph, by which a weight of several is one; `constants` are the names
    of weights.
    """

    def __init__(
        self, pieces: Sequence[tuple[GraphModule, Sequence[str]]], constants: Collection[str], name: str, options: Options, settings: Settings,
        allowance: Allowance,
    ) -> None:  # fmt: skip
        places: dict[str | tuple[int, int], int] = {}
        self._sources: list[tuple[int, int]] = []
        """Of each argument of the part: the first piece that takes it, and its place there."""
        self._places: list[list[int]] = []
        """Of each argument of each piece among those of the part."""
        for number, (_, given) in enumerate(pieces):
            keys: list[str | tuple[int, int]] = [arg if arg in constants else (number, place) for place, arg in enumerate(given)]
            for place, key in enumerate(keys):
                if key not in places:
                    places[key] = len(places)
                    self._sources.append((number, place))
            self._places.append([places[key] for key in keys])
        module = together([module for module, _ in pieces], self._places)
        apart = replace(settings, whole=NEVER)  # ONNX Runtime with the whole of it would be one piece
        weights = [place for key, place in places.items() if isinstance(key, str)]
        self.part = Part(f"{name} in {len(pieces)} {'piece' if len(pieces) == 1 else 'pieces'}", module, weights, options, apart, allowance)
        self.pieces = [Piece(self, number, module, among(given, constants)) for number, (module, given) in enumerate(pieces)]
        self._call, self._wanted = _Call(), True

    def calling(self, graph: Compiled) -> Compiled:
        """The graph whose pieces these are, which makes programs for them behind a call in which one had none."""

        def call(*args: Any) -> Any:
            self._call.args, self._call.missing = {}, False
            found = graph(*args)
            given, self._call.args = self._call.args, {}
            if self._call.missing and not self.part.full:
                self._wanted = True
                if len(given) == len(self.pieces):
                    self._make(given)
            return found

        return call

    def missing(self) -> None:
        """A piece has no program for its weights."""
        self._call.missing = True

    def called(self, number: int, args: Sequence[Any]) -> None:
        """A piece is called with these arguments."""
        if self._wanted:
            self._call.args[number] = args

    def _make(self, given: Mapping[int, Sequence[Any]]) -> None:
        """Programs for these arguments of all pieces."""
        args = [given[number][place] for number, place in self._sources]
        entry = self.part.entry(args)
        if entry is None:
            return
        first, taken = 0, False
        for number, piece in enumerate(self.pieces):
            own = {place: n for n, place in enumerate(self._places[number])}
            runs = entry.runs.piece(own, range(first, first + piece.count)) if isinstance(entry.runs, Bound) else None
            piece.learn(given[number], runs or Eager(""))
            first, taken = first + piece.count, taken or runs is not None
        if isinstance(entry.runs, Bound):
            entry.runs.rest()
            if not taken:
                self.part.told[-1] = replace(self.part.told[-1], runs="eager", why="its program cannot be taken apart")
        self._wanted = False


def together(modules: Sequence[GraphModule], places: Sequence[Sequence[int]]) -> GraphModule:
    """One graph that gives what these give, one after the other; the arguments of each stand at these places of its own."""
    graph, root = torch.fx.Graph(), torch.nn.Module()
    given: dict[int, Node] = {}
    for module, own in zip(modules, places, strict=True):
        for node, place in zip((n for n in module.graph.nodes if n.op == "placeholder"), own, strict=True):
            if place not in given:
                given[place] = graph.placeholder(f"a{place}")
                given[place].meta = dict(node.meta)
    found: list[Node] = []
    for number, (module, own) in enumerate(zip(modules, places, strict=True)):
        root.add_module(f"piece{number}", module)
        arguments = iter(own)
        values: dict[Node, Node] = {}
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = given[next(arguments)]
            elif node.op == "output":
                found += torch.fx.map_arg(outputs(results(module)), values.__getitem__)
            else:
                values[node] = graph.node_copy(node, values.__getitem__)
                if node.op == "get_attr":
                    values[node].target = f"piece{number}.{node.target}"
    graph.output(tuple(found))
    return torch.fx.GraphModule(root, graph)


def among(given: Sequence[str], constants: Collection[str]) -> list[int]:
    """The places of weights among the arguments of these names."""
    return [place for place, arg in enumerate(given) if arg in constants]


def worth_a_call(module: GraphModule, given: Sequence[str], constants: Collection[str]) -> bool:
    """A piece that is called with arguments of these names takes longer in eager mode than the call of a program."""
    return bool(among(given, constants)) or sum(node.op == "call_function" for node in module.graph.nodes) >= WORTH_A_CALL
