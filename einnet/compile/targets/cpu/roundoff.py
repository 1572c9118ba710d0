"""A-priori bounds of products whose factors are rounded: of each alone, for the values that the program handed to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from einnet.compile.targets.cpu.reach import kept
from einnet.evidence.buffers.contents import part
from einnet.evidence.error_limits import bounded_at, some_points
from einnet.evidence.running import OnProcessor
from einnet.expr.nodes import Tensor
from einnet.instantiate.kernels import Shown
from einnet.instantiate.kernels.arithmetics import Arithmetic
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime.cpu.program import Executable

Array = np.ndarray[Any, np.dtype[Any]]

BUDGET, POINTS = 1 << 16, 256
"""Evaluations of the body, and elements, at most for one product."""


def bounds(executable: Executable, rounded: Mapping[int, Arithmetic], inputs: Mapping[str, Array], seed: int = 0) -> dict[int, float]:
    """For the places of products in a plan: how far each may err in an arithmetic before its posts, relative to the greatest element of its result.

    The values are those of one run on the inputs. A product that reads what a later kernel writes over has none.
    """
    plan = executable.plan
    products = {n: k for n in rounded if isinstance(k := plan.kernels[n], Contraction) and all(kept(plan, n, v) for v in k.inputs)}
    named = {f"{n}.{k}": v for n, product in products.items() for k, v in enumerate(product.inputs) if v.buffer not in plan.constants}
    held = OnProcessor(executable).observing(named)(inputs)
    constants = {v.buffer for product in products.values() for v in product.inputs} & plan.constants.keys()
    flat = {name: np.asarray(plan.constants[name]) for name in constants}

    def values(n: int) -> list[Array]:
        shown = enumerate(products[n].inputs)
        return [part(flat[v.buffer], v) if v.buffer in flat else held[f"{n}.{k}"] for k, v in shown]

    return {n: bound(product, rounded[n], values(n), seed) for n, product in products.items()}


def bound(product: Contraction, arithmetic: Arithmetic, values: list[Array], seed: int) -> float:
    """The greatest bound of an element, relative to the greatest element, at some points of the result."""
    tensors = {v: Tensor(f"x{n}", v.shape) for n, v in enumerate(dict.fromkeys(product.inputs))}
    arrays = {tensors[v].name: x for v, x in zip(product.inputs, values, strict=True)}
    scope = product.with_posts(()).meaning(Shown(lambda view: tensors[view]))
    points = some_points(scope, BUDGET, POINTS, seed)
    value, error = bounded_at(scope, points, arrays, {}, arithmetic=arithmetic)
    scale = float(np.max(np.abs(value), initial=0.0))
    return float(np.max(error, initial=0.0)) / scale if scale else 0.0
