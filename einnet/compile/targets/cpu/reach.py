"""How far the factors of products reach, on inputs that are drawn: what is rounded to an arithmetic must be among its numbers.

A number of float16 is at most 65504: a program in which a factor is beyond that gives infinities. What was drawn says little of how far other inputs
go, so that a factor has to stay far below.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from einnet.evidence.buffers.contents import part
from einnet.evidence.running import OnProcessor
from einnet.instantiate.kernels import Plan, View
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime.cpu.program import Executable

Array = np.ndarray[Any, np.dtype[Any]]

HEADROOM = 16.0
"""Factors of an arithmetic with fewer large numbers than float32 may reach the largest of them divided by this, on inputs that are drawn."""


def narrow(arithmetic: Arithmetic) -> bool:
    """Numbers that float32 has are beyond its largest one."""
    return arithmetic.rounds and arithmetic.largest < F32.largest / 2


def leaves(arithmetic: Arithmetic, reach: float) -> bool:
    """Factors that reach so far may leave an arithmetic for other inputs, or do so for these."""
    return narrow(arithmetic) and not reach <= arithmetic.largest / HEADROOM


def reaches(executable: Executable, places: Collection[int], draws: Sequence[Mapping[str, Array]]) -> dict[int, float]:
    """The greatest absolute value of a factor of each product, by its place in the plan: weights as they are, other tensors on draws of inputs.

    Infinite where that is not known, as a later kernel writes over what the product has read, or where a factor is no number.
    """
    plan = executable.plan
    products = {n: k for n in places if isinstance(k := plan.kernels[n], Contraction)}
    factors = {(n, i): v for n, product in products.items() for i, v in enumerate(product.inputs)}
    known = {key: greatest(part(np.asarray(plan.constants[v.buffer]), v)) for key, v in factors.items() if v.buffer in plan.constants}
    moving = {key: v for key, v in factors.items() if key not in known}
    named = {f"{n}.{i}": (n, v) for (n, i), v in moving.items() if kept(plan, n, v)}
    found = {n: max((x for (m, _), x in known.items() if m == n), default=0.0) for n in places}
    found |= {n: inf for (n, i) in moving if f"{n}.{i}" not in named}
    observed = OnProcessor(executable).observing({name: v for name, (_, v) in named.items()})
    for inputs in draws if named else ():
        for name, x in observed(inputs).items():
            found[named[name][0]] = max(found[named[name][0]], greatest(x))
    return found


def greatest(x: Array) -> float:
    """The greatest absolute value, infinite where one is no number."""
    most = float(np.max(np.abs(x), initial=0.0))
    return inf if np.isnan(most) else most


def kept(plan: Plan, place: int, view: View) -> bool:
    """No kernel from a place on writes to what a view shows."""
    return all(view.buffer != v.buffer for k in plan.kernels[place:] for v in k.result_views)
