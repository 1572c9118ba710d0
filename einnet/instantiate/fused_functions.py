"""Which operation of a vendor kernel a function of its result is: told by its normal form, not by how it is written.

x·sigmoid(x), x/2·(1 + erf(x/√2)) and their like read the result several times; whatever they are of, a sum with a bias say, is found first.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einnet.derivation.checker.exact import marked
from einnet.expr.nodes import Body, Const, Read, Scope, Tensor, children, reads, rebuild, used_names
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach, by_bends
from einnet.expr.values.arithmetic import arithmetic
from einnet.expr.values.bodies import values
from einnet.instantiate.kernels.posts import ELEMENTWISE, ONE, ZERO

_Y = Read(Tensor("y", ()), ())
_MOST = 24
"""Nodes of a function, and numbers in it, beyond which it is none of these."""

_PLACES = np.array([-7.3, -3.1, -1.7, -0.6, -0.05, 0.0, 0.4, 1.1, 2.6, 5.9, 17.2])
"""Where two functions are compared before their normal forms are made: few that differ agree at all of these, and equal ones do but for rounding."""

Found = tuple[str, Const, Const]


def fused(body: Body, read: Read) -> tuple[Body, Found] | None:
    """The body as an operation on a part of it in which all its reads of the result stand: that part, and the operation with its parameters."""
    if _size(body) > 2 * _MOST:
        return None
    for part in _parts(body, read):
        outer = _replaced(body, part)
        if not used_names(outer) and all(r == _Y for r in reads(outer)):
            kind = recognised(outer)
            if kind is not None:
                return part, kind
    return None


@lru_cache(maxsize=1 << 10)
def recognised(function: Body) -> Found | None:
    """The kind of a function of y, and its parameters, which are numbers that stand in it."""
    if _size(function) > _MOST:
        return None
    there = _somewhere(function)
    numbers = tuple(dict.fromkeys((*_numbers(function), ONE)))[:6]
    for name, kind in ELEMENTWISE.items():
        for parameters in product(numbers, repeat=kind.parameters):
            alpha, beta = (*parameters, ZERO, ZERO)[:2]
            if kind.takes(*parameters) and _same(function, there, kind.meaning(_Y, alpha, beta)):
                return name, alpha, beta
    return None


def _same(function: Body, there: NDArray[Any], other: Body) -> bool:
    """Two functions of y have one normal form; `there` are values of the first one. That is asked only where their values agree."""
    if not np.allclose(there, _somewhere(other), rtol=1e-9, atol=1e-12, equal_nan=True):
        return False
    wanted = _keys(function)
    return wanted is not None and _keys(other) == wanted


@lru_cache(maxsize=1 << 12)
def _somewhere(function: Body) -> NDArray[Any]:
    """The values of a function of y at some places."""
    with np.errstate(all="ignore"):
        found = values(function, {}, arithmetic("float64"), lambda read, env: _PLACES)
    return np.broadcast_to(found, _PLACES.shape)


@lru_cache(maxsize=1 << 12)
def _keys(function: Body) -> tuple[str, str, str] | None:
    """The keys of both normal forms, and of one in which numbers that are added or multiplied in other groups are others."""
    scope = Scope((), (), function)
    try:
        plain, groups = inline(scope).key, inline(marked(scope)).key
        with by_bends():
            return plain, inline(scope).key, groups
    except OutOfReach:
        return None


def _parts(body: Body, read: Read) -> Iterator[Body]:
    """The parts in which the result is read, the largest first, the body itself left out."""
    found: dict[Body, int] = {}

    def visit(b: Body) -> None:
        if read in reads(b):
            found[b] = _size(b)
            for a in children(b):
                visit(a)

    visit(body)
    return iter(sorted((b for b in found if b != body), key=lambda b: -found[b]))


def _replaced(body: Body, part: Body) -> Body:
    """The body with y in place of a part."""
    if body == part:
        return _Y
    args = children(body)
    return rebuild(body, tuple(_replaced(a, part) for a in args)) if args else body


def _numbers(body: Body) -> Iterator[Const]:
    if isinstance(body, Const) and isinstance(body.value, Fraction):
        yield body
    for a in children(body):
        yield from _numbers(a)


def _size(body: Body) -> int:
    return 1 + sum(map(_size, children(body)))
