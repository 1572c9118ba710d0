"""A fold as data: how often its step is done, what a step reads, what it hands on, and what of all that is given out. No ONNX type occurs here."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True)
class State:
    """What one step hands on to the next: the body's input and its result, and the outer value that the first step gets."""

    name: str
    result: str
    initial: str


@dataclass(frozen=True)
class Sequence:
    """An outer value of which each step reads one slice along an axis, the last one first where `backward`."""

    value: str
    axis: int = 0
    backward: bool = False


@dataclass(frozen=True)
class Gathered:
    """A result of every step, one after the other along an axis, the last one first where `backward`; `output` is its outer name."""

    output: str
    result: str
    axis: int = 0
    backward: bool = False


@dataclass(frozen=True)
class Fold:
    """`count` steps of a body. Names of the body are those of its inputs and results; outer names those of what the node reads and gives.

    `sequences` and `tables` are by the body's inputs: a table holds, for every step, what is known of an input at compile time. `constants` are
    outer values that are known. `finals` pairs outer results with the states that they are, by the body's result.
    """

    count: int
    states: tuple[State, ...]
    sequences: Mapping[str, Sequence]
    tables: Mapping[str, np.ndarray]
    gathered: tuple[Gathered, ...]
    finals: tuple[tuple[str, str], ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[str, ...]:
        """The body's results that somebody needs, each once."""
        return tuple(dict.fromkeys((*(s.result for s in self.states), *(g.result for g in self.gathered), *(r for _, r in self.finals))))

    def known(self, tables: Mapping[str, np.ndarray], outputs: Set[str]) -> Fold:
        """The fold without the states that tables hold, and without what is no output of these names."""
        states = tuple(s for s in self.states if s.name not in tables)
        gathered = tuple(g for g in self.gathered if g.output in outputs)
        return replace(self, states=states, gathered=gathered, finals=tuple((n, r) for n, r in self.finals if n in outputs))
