"""The values of recursions, time by time, in any number system that scopes are evaluated in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.index import Index
from einnet.expr.nodes import Scope, substitute_body, tensors
from einnet.expr.recursions.recursion import Equation, Recursion
from einnet.expr.values.arithmetic import arithmetic
from einnet.expr.values.evaluate import evaluate

Array = NDArray[Any]


def evaluate_recursion(r: Recursion, given: Mapping[str, Array], dtype: str = "float64") -> dict[str, Array]:
    """What the recursion gives, by name, of values of its inputs by name."""
    system = arithmetic(dtype)
    held: dict[str, Array] = {t.name: system.values(given[t.name]) for t in r.inputs}
    for e in r.before:
        held[e.tensor.name] = _value(e.scope, held, dtype)
    for e in r.steps:
        held[e.tensor.name] = np.zeros(e.tensor.shape, system.dtype)
    for time in range(r.count):
        for e in r.steps:
            held[e.tensor.name][time : time + 1] = _value(at(e, time), held, dtype)[None]
    for e in r.after:
        held[e.tensor.name] = _value(e.scope, held, dtype)
    return {name: held[name] for name in r.outputs}


def at(e: Equation, time: int) -> Scope:
    """The equation at a time."""
    first, *rest = e.scope.loops
    return Scope(tuple(rest), e.scope.sums, substitute_body(e.scope.body, {first.name: Index((), time)}), e.scope.reduce)


def _value(scope: Scope, held: Mapping[str, Array], dtype: str) -> Array:
    return evaluate(scope, {name: held[name] for name, t in tensors(scope).items() if t.values is None}, dtype)
