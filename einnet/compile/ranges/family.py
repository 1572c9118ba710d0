"""The programs of one model at the sizes of a dimension: one of them is searched, the others are the same expressions at other sizes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice, takewhile
from math import log, sqrt
from typing import Any

import numpy as np

from einnet.derivation.checker.check import check_equal
from einnet.errors import CertificateError, ModelError
from einnet.expr.resize import Resize
from einnet.graph.dimension import Dimension
from einnet.graph.onnx.dynamic import Carried
from einnet.graph.onnx.importer import load
from einnet.graph.passes.prepare import prepare
from einnet.graph.program import Node, Program, ProgramNode
from einnet.search.settings import Settings

Array = np.ndarray[Any, np.dtype[Any]]

LEAST_PRIME = 11
"""Smaller ones divide the numbers of kernels, strides and tiles."""

TRIED = 6
"""Primes that are tried."""


@dataclass(frozen=True)
class Member:
    """The program at one size. `problem` says why its expressions are not those of the searched size; then it is the model's own at this size.

    `proven` nodes were written otherwise at this size and proven equal; all others are the same but for the size.
    """

    size: int
    program: Program
    proven: int = 0
    problem: str | None = None


class Family:
    """A model with a ranged dimension. `representative` is the size that is searched: a prime that divides no other number of the program.

    `reading_s` are the seconds that it takes to read the model at a size, at most.

    Raises ModelError for a model that cannot be read at a size.
    """

    def __init__(self, model: Carried, dimension: Dimension, settings: Settings) -> None:
        self.model, self.dimension, self.settings = model, dimension, settings
        started = time.monotonic()
        self.representative, self.program, self.problem = self._choose()
        self.reading_s = (time.monotonic() - started) / 2

    def imported(self, size: int) -> Program:
        """The model at a size, as the importer writes it."""
        shapes = self.model.shapes(self.dimension, size, self.settings.shapes)
        try:
            program = load(self.model.model, shapes=shapes)
            return prepare(program, permuted=self.settings.target == "native", tables=self.settings.tables, finite=False)
        except ModelError as error:
            raise ModelError(f"{error} (at {self.dimension.name} = {size})") from error

    def _choose(self) -> tuple[int, Program, str | None]:
        """The prime, its program, and why none serves where none does."""
        problem: str | None = None
        for size in representatives(self.dimension):
            program, other = self.imported(size), next(p for p in primes(size + 1))
            found = compared(program, self.imported(other), Resize(size, other), exactly=True)
            if found.problem is None:
                return size, program, None
            problem = problem or found.problem
        return size, program, problem

    def at(self, size: int) -> Member:
        """The program at a size: the expressions of the searched size at this one, proven to be the model's own here."""
        if self.problem:
            return Member(size, self.imported(size), problem=self.problem)
        return compared(self.program, self.imported(size), Resize(self.representative, size))

    @cached_property
    def names(self) -> frozenset[str]:
        """The tensors of the program."""
        return frozenset(self.program.tensors())


def primes(start: int) -> Iterator[int]:
    """The primes from a number on."""
    return (n for n in count(max(start, 2)) if all(n % d for d in range(2, int(n**0.5) + 1)))


def representatives(dimension: Dimension) -> list[int]:
    """Primes to search at, those near the middle of the range by ratio first; they need not be in the range."""
    target = max(sqrt(dimension.lowest * dimension.highest), LEAST_PRIME)
    near = takewhile(lambda p: p <= 4 * target, primes(LEAST_PRIME))
    found = sorted(near, key=lambda p: abs(log(p / target)))
    return list(islice(found, TRIED))


def compared(searched: Program, imported: Program, resize: Resize, exactly: bool = False) -> Member:
    """The searched program at another size beside what the importer makes of the model there, node by node.

    With `exactly`, nothing is proven: the two have to be the same expressions.
    """
    size = resize.new
    if [t.name for n in searched.nodes for t in n.outputs] != [t.name for n in imported.nodes for t in n.outputs]:
        return Member(size, imported, problem="the importer makes other nodes of the model at this size")
    nodes: list[ProgramNode] = []
    proven = 0
    for ours, theirs in zip(searched.nodes, imported.nodes):
        if not (isinstance(ours, Node) and isinstance(theirs, Node)):
            if isinstance(ours, Node) or isinstance(theirs, Node):
                return Member(size, imported, problem=f"{place(theirs.origin)} can be expressed at one size only")
            nodes.append(theirs)
            continue
        try:
            scope = resize.scope(ours.scope)
            if scope != theirs.scope:
                if exactly:
                    return Member(size, imported, problem=f"{place(theirs.origin)} follows the size otherwise than by multiples of it")
                check_equal(theirs.scope, scope)
                proven += 1
        except (CertificateError, ValueError) as error:
            return Member(size, imported, problem=f"{place(theirs.origin)} follows the size otherwise than by multiples of it: {error}")
        nodes.append(replace(theirs, scope=scope))
    return Member(size, replace(imported, nodes=tuple(nodes), weights=shared(imported.weights, searched.weights)), proven)


def shared(values: Mapping[str, Array], known: Mapping[str, Array]) -> dict[str, Array]:
    """The values, those that are known already as the arrays that are there."""
    return {name: known[name] if name in known and same(value, known[name]) else value for name, value in values.items()}


def same(a: Array, b: Array) -> bool:
    """The same numbers, bit by bit."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def place(origin: tuple[str, ...]) -> str:
    """The model's node, for people."""
    return origin[0] if origin else "a node"
