"""The values of recursions, time by time, in any number system that scopes are evaluated in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.recursions.recursion import Equation, Recursion
from einnet.expr.values.arithmetic import arithmetic
from einnet.expr.values.evaluate import Evaluation, evaluate, nothing, own_values

Array = NDArray[Any]


def evaluate_recursion(r: Recursion, given: Mapping[str, Array], dtype: str = "float64") -> dict[str, Array]:
    """What the recursion gives, by name, of values of its inputs by name."""
    system = arithmetic(dtype)
    held: dict[str, Array] = {t.name: system.values(given[t.name]) for t in r.inputs}
    for e in r.before:
        held[e.tensor.name] = _value(e, held, dtype)
    for e in r.steps:
        held[e.tensor.name] = np.zeros(e.tensor.shape, system.dtype)
    tables = {t.name: own_values(t, system) for t in r.tables}
    run = Evaluation(system, {**held, **tables}, nothing)  # scopes inside the steps read nothing that steps define
    with np.errstate(all="ignore"):
        for time in range(r.count):
            for e in r.steps:
                run.part(e.scope, {**e.scope.ranges, e.scope.loops[0].name: (time, time + 1)}, held[e.tensor.name][time : time + 1])
    for e in r.after:
        held[e.tensor.name] = _value(e, held, dtype)
    return {name: held[name] for name in r.outputs}


def _value(e: Equation, held: Mapping[str, Array], dtype: str) -> Array:
    return evaluate(e.scope, {t.name: held[t.name] for t in e.scope.read if t.values is None}, dtype)
