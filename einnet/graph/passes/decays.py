"""Weights that decay along a diagonal: W[.., t, s] = g[.., s]*exp(r[..]*(t - s)) where t - s >= late, and 0 elsewhere, for rates r.

The rate is read off the longest way in which the weight is not yet nearly 0, so that it is as exact as float32 permits; no element is further from
the power than rounding, relative to the largest. Derivations can take powers apart: exp(r*(t - s)) = exp(r*(t - p))*exp(r*(p - s)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from einnet.expr.index import Index, var
from einnet.expr.nodes import Cond, Iter

Array = NDArray[Any]

NEARLY_ZERO = 1e-30
"""What is less, relative to the largest, has lost digits in float32."""


class Decay(NamedTuple):
    """The distance t - s (or s - t), rates along the other dimensions, and what an element starts from, along these and s; both of extent 1 at t."""

    distance: Index
    rates: Array
    starts: Array


def decay(values: Array, conds: Sequence[Cond], loops: Sequence[Iter], rounding: float) -> Decay | None:
    """A weight that is 0 where the conditions do not hold, as such powers; None where it is none."""
    found = _diagonal(conds, loops)
    if found is None or (values < 0).any():
        return None
    t, s, late = found
    forward = conds[0].index.coefficient(loops[t].name)
    if late < 0 or values.shape[t] != values.shape[s] or values.shape[t] <= late + 1:
        return None
    moved = np.moveaxis(values.astype(np.float64), (t, s), (-2, -1))[..., ::forward, ::forward]
    first = np.diagonal(moved, -late, -2, -1)
    top = moved.max()
    column = moved[..., late:, 0]
    far = (column > NEARLY_ZERO * top).sum(-1, keepdims=True) - 1
    if (far < 1).any() or (first <= 0).any():
        return None
    rates = np.log(np.take_along_axis(column, far, -1) / column[..., :1]) / far
    starts = first * np.exp(-rates * late)
    starts = np.concatenate([starts, np.repeat(starts[..., -1:], late, -1)], -1)
    rows, columns = np.indices(moved.shape[-2:])
    distance = rows - columns
    whole = np.where(distance >= late, starts[..., None, :] * np.exp(rates[..., None] * np.maximum(distance, 0)), 0.0)
    if np.abs(whole - moved).max() > rounding * top:
        return None
    back = [np.moveaxis(a[..., ::forward, ::forward], (-2, -1), (t, s)) for a in (rates[..., None], starts[..., None, :])]
    return Decay((var(loops[t].name) - var(loops[s].name)) * forward, *back)


def _diagonal(conds: Sequence[Cond], loops: Sequence[Iter]) -> tuple[int, int, int] | None:
    """The dimensions t and s of the one condition ±(t - s) >= late, the later first."""
    if len(conds) != 1 or conds[0].equal or conds[0].index.den != 1:
        return None
    names = {i.name: n for n, i in enumerate(loops)}
    terms = {str(a): c for a, c in conds[0].index.terms}
    if sorted(terms.values()) != [-1, 1] or not terms.keys() <= names.keys():
        return None
    a, b = sorted(names[name] for name in terms)
    return a, b, -conds[0].index.const
