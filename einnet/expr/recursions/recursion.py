"""A recursion: equations X[t,..] = body, of which the bodies read X and each other at times before t, and at t what stands before them.

Such equations have one solution, which is what the recursion means: at time 0 nothing but what is given is read, and every time follows from those
before. A first value is a choice by time, `select(t-1>=0, X[t-1,i], B[i])`; several states are several equations; the state after all
times and the states at all times are both tensors. An equation is a closed scope whose first loop is time, over tensors of the whole length: whatever
holds for scopes holds for it, and where two recursions have equal equations they are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from einnet.errors import UsageError
from einnet.expr.index import Index, var
from einnet.expr.nodes import Scope, Tensor, exchange_in, reads, tensors


class Equation(NamedTuple):
    """tensor = scope."""

    tensor: Tensor
    scope: Scope


@dataclass(frozen=True)
class Recursion:
    """`count` times. `before` are equations of what is given, each by those that stand before it; `steps` are those along time; `after` read all.

    `inputs` are given, `outputs` are the names of what is asked for. Raises UsageError for equations that do not say what every element is.
    """

    count: int
    inputs: tuple[Tensor, ...]
    before: tuple[Equation, ...]
    steps: tuple[Equation, ...]
    after: tuple[Equation, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        named = [t.name for t in (*self.inputs, *(e.tensor for e in self.equations))]
        if len(set(named)) != len(named):
            raise UsageError("two tensors of a recursion have one name")
        if missing := [name for name in self.outputs if name not in named]:
            raise UsageError(f"a recursion gives {missing[0]}, which it does not define")
        known = {t.name: t for t in self.inputs}
        for e in self.before:
            _fits(e)
            _known(e, known)
            known[e.tensor.name] = e.tensor
        _follows(self.count, self.steps, known)
        known |= {e.tensor.name: e.tensor for e in self.steps}
        for e in self.after:
            _fits(e)
            _known(e, known)
            known[e.tensor.name] = e.tensor

    @property
    def equations(self) -> tuple[Equation, ...]:
        return (*self.before, *self.steps, *self.after)

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The tensors that carry their values, which equations read."""
        return tuple(dict.fromkeys(t for e in self.equations for t in tensors(e.scope).values() if t.values is not None))

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that it gives."""
        every = {t.name: t for t in (*self.inputs, *(e.tensor for e in self.equations))}
        return tuple(every[name] for name in self.outputs)

    @property
    def key(self) -> str:
        """32 hex digits, equal for recursions that differ by names, and by what scopes with one key may differ by."""
        names = {t.name: f"x{n}" for n, t in enumerate((*self.inputs, *(e.tensor for e in self.equations)))}
        same = self.renamed(names)
        parts = [[f"{t.dtype}{t.shape}" for t in same.inputs], *([e.scope.key for e in part] for part in (same.before, same.steps, same.after))]
        return hashlib.blake2b(repr((self.count, parts, same.outputs)).encode(), digest_size=16).hexdigest()

    def renamed(self, names: Mapping[str, str]) -> Recursion:
        """The recursion with other names for its tensors."""

        def tensor(t: Tensor) -> Tensor:
            return t if t.values is not None else Tensor(names.get(t.name, t.name), t.shape, t.dtype, t.weight)

        def part(equations: Iterable[Equation]) -> tuple[Equation, ...]:
            return tuple(Equation(tensor(e.tensor), exchange_in(e.scope, {n: tensor(t) for n, t in tensors(e.scope).items()})) for e in equations)

        outputs = tuple(names.get(n, n) for n in self.outputs)
        return Recursion(self.count, tuple(map(tensor, self.inputs)), part(self.before), part(self.steps), part(self.after), outputs)


def _fits(e: Equation) -> None:
    if e.scope.shape != e.tensor.shape or any(i.lo for i in e.scope.loops):
        raise UsageError(f"{e.tensor.name}{list(e.tensor.shape)} is not of the shape of its equation: {e.scope.text()}")


def _known(e: Equation, known: Mapping[str, Tensor]) -> None:
    for name, t in tensors(e.scope).items():
        if t.values is None and known.get(name) != t:
            raise UsageError(f"the equation of {e.tensor.name} reads {name}{list(t.shape)}, which is not known there")


def lags(e: Equation, names: Iterable[str]) -> Iterator[tuple[str, Index]]:
    """How long before its own time an equation reads tensors of these names. Raises UsageError where a scope within it reads one."""
    inside = set(names)
    for r in reads(e.scope.body):
        if isinstance(r.base, Scope):
            if inside.intersection(tensors(r.base)):
                raise UsageError(f"a scope within the equation of {e.tensor.name} reads what the recursion defines")
        elif r.base.name in inside:
            yield r.base.name, var(e.scope.loops[0].name) - r.index[0]


def _follows(count: int, steps: tuple[Equation, ...], known: Mapping[str, Tensor]) -> None:
    """Raise UsageError unless each step reads what is known, or what is there by then."""
    every = {**known, **{e.tensor.name: e.tensor for e in steps}}
    there: set[str] = set()
    for e in steps:
        _fits(e)
        _known(e, every)
        if not e.scope.loops or e.scope.loops[0].extent != count:
            raise UsageError(f"the first dimension of {e.tensor.name} is not the {count} times of the recursion")
        for name, lag in lags(e, every.keys() - known.keys()):
            if not lag.is_const or lag.den != 1 or lag.const < (0 if name in there else 1):
                raise UsageError(f"the equation of {e.tensor.name} reads {name} at a time at which it may not be known")
        there.add(e.tensor.name)
