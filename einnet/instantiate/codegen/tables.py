"""Small operands whose values are known when code is written: literals where they are read at known places."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.expr.constant_matrices import TABLE_SIZE
from einnet.expr.nodes import tensors
from einnet.instantiate.kernels import EOperator, View


def known_tables(op: EOperator, constants: Mapping[str, NDArray[Any]]) -> dict[str, dict[int, float]]:
    """The small operands whose elements are known at compile time, by `constants` or by the tensors themselves."""
    views = dict(op.operands)
    own = {t.name: np.array(t.values, dtype=np.float32).reshape(t.shape) for t in tensors(op.scope).values() if t.values is not None}
    return {n: table(views[n], v) for n, v in {**constants, **own}.items() if n in views and v.size <= TABLE_SIZE}


def table(view: View, values: NDArray[Any]) -> dict[int, float]:
    """The values of a small constant by their address."""
    found = {}
    for flat in range(prod(view.shape)):
        at, rest = view.offset, flat
        index = []
        for n in reversed(view.shape):
            rest, i = divmod(rest, n)
            index.append(i)
        index.reverse()
        at += sum(s * i for s, i in zip(view.strides, index))
        found[at] = float(values[tuple(index)])
    return found
