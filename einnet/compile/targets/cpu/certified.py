"""A certified bound of a whole program: how far its outputs are at most from the exact values of its expressions, for some inputs.

A running error analysis goes through the plan, kernel after kernel: every element of every buffer has a value and a bound of its error, and each
kernel hands on what its operands err by, adds its own roundings, for every order of additions, and those of its factors where it rounds them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from einnet.evidence.buffers.contents import part
from einnet.evidence.error_limits import Bounded
from einnet.evidence.meaning import meaning
from einnet.expr.nodes import Number, Scope, Tensor
from einnet.expr.values.arithmetic import Array
from einnet.expr.values.points import effort, values_at
from einnet.expr.values.running_errors import pair
from einnet.instantiate.kernels import Kernel, NotLifted, Plan, Shown, View
from einnet.instantiate.kernels.arithmetics import Arithmetic
from einnet.instantiate.kernels.contractions import arithmetic_of
from einnet.search.settings import ALIKE, Limits

AT_ONCE = 1 << 21
"""Evaluations of a body between two looks at the clock."""

Points = np.ndarray[Any, np.dtype[np.int64]]


def certified(plan: Plan, inputs: Mapping[str, Array], until: float, limits: Limits = ALIKE) -> float | None:
    """The greatest bound of an output's error, relative to its greatest element; infinite where nothing holds. Bounds of outputs that have limits of
    their own count in terms of the others' limit.

    None where there is no bound: time.monotonic() reached `until` before it was known, or a kernel has no expression.
    """
    held = {b.name: (np.zeros(b.size), np.zeros(b.size)) for b in plan.buffers}
    for name, value in plan.constants.items():
        held[name][0][...] = np.asarray(value, np.float64).reshape(-1)
    for name, view in plan.inputs:
        part(held[view.buffer][0], view)[...] = np.asarray(inputs[name], np.float64).reshape(view.shape)
    for kernel in plan.kernels:
        if not _computed(kernel, held, until):
            return None
        if any(np.isinf(part(held[v.buffer][1], v)).any() for v in kernel.result_views):
            return math.inf  # it may be no number, which no function of it bounds
    found = {name: _relative(*(part(x, view) for x in held[view.buffer])) for name, view in plan.outputs}
    return max((limits.counted(name, bound) for name, bound in found.items()), default=0.0)


def _computed(kernel: Kernel, held: Mapping[str, tuple[Array, Array]], until: float) -> bool:
    """The kernel's result with its bounds, written to its buffer; False where that cannot be told, or in time."""
    named: dict[View, Tensor] = {}
    try:
        scope = meaning(kernel, Shown(lambda v: named.setdefault(v, Tensor(f"x{len(named)}", v.shape))), number)
    except NotLifted:
        return False
    (out,) = kernel.result_views
    shown = {t.name: tuple(np.array(part(x, v)).reshape(-1) for x in held[v.buffer]) for v, t in named.items()}
    value, error = np.empty(math.prod(scope.shape)), np.empty(math.prod(scope.shape))
    for where, points in chunks(scope):
        if time.monotonic() >= until:
            return False
        value[where], error[where] = bounded(scope, points, shown, arithmetic_of(kernel))
    for x, y in zip(held[out.buffer], (value, error), strict=True):
        part(x, out)[...] = y.reshape(out.shape)
    return True


def bounded(scope: Scope, points: Points, shown: Mapping[str, tuple[Array, ...]], arithmetic: Arithmetic) -> tuple[Array, Array]:
    """Values of a scope at points and bounds of their errors, by the values and bounds of what it reads."""

    def element(t: Tensor, address: Array) -> Array:
        value, error = (np.take(x, address, mode="clip") for x in shown[t.name])
        return pair(value, error if error.any() else 0.0)

    system = Bounded(arithmetic=arithmetic)
    with np.errstate(all="ignore"):
        found = values_at(scope, points, system, element, system.places)
    return found.real, np.where(np.isnan(found.imag) | np.isnan(found.real), np.inf, found.imag)


def chunks(scope: Scope) -> Iterator[tuple[slice, Points]]:
    """All points of a scope over loops from 0, in order, so many at once as take no more than `AT_ONCE` evaluations."""
    size, count = math.prod(scope.shape), math.prod(scope.shape)
    while count > 1 and effort(scope, count) > AT_ONCE:
        count = -(-count // 2)
    for first in range(0, size, max(count, 1)):
        flat = np.arange(first, min(first + count, size))
        columns = np.unravel_index(flat, scope.shape) if scope.shape else ()
        yield slice(first, first + len(flat)), np.stack(columns, axis=1) if scope.shape else np.zeros((1, 0), np.int64)


def number(x: Number) -> Number:
    """What a kernel computes with: that very number, or an infinity."""
    return x if math.isinf(x) else Fraction(x)


def _relative(value: Array, error: Array) -> float:
    """A bound relative to the greatest element; infinite where that is not known."""
    worst, scale = float(np.max(error, initial=0.0)), float(np.max(np.abs(value), initial=0.0))
    return 0.0 if worst == 0 else worst / scale if scale > 0 and math.isfinite(worst) else math.inf
