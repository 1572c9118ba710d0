"""How far single precision may carry a derivation's two ends apart, known before anything runs (design.md: class `precision` has an error bound).

Along any way from an element read to an element of the result, every sum of n terms rounds n times at most and every operation once. To first
order in the unit roundoff u, the end of a derivation errs by no more than growth·roundings·u, where growth is the product of its steps' bounds
(which the checker compares with what is added up), and its start by no more than roundings·u; both relative to the greatest sum of absolute
products there can be. That holds for what is linear in each operand; other functions count as one rounding. Relative to max|y| it is an estimate:
cancellation in y, and layers that enlarge the errors of their inputs, are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

from einnet.derivation.steps import Derivation
from einnet.expr.nodes import Add, Body, Const, Mul, Read, Scope, Select, children

UNIT = 2.0**-24
"""The greatest relative error of one rounding in single precision."""


def growth(derivation: Derivation) -> float:
    """The greatest factor by which algorithms of class precision enlarge rounding errors: at most the product, steps being nested at worst."""
    return prod(s.bound for s in derivation.steps if s.bound is not None)


@lru_cache(maxsize=1 << 12)
def roundings(scope: Scope) -> int:
    """The most roundings on a way from an element read to an element of the result, those inside scopes that are read included."""
    terms = prod(i.extent for i in scope.sums) if scope.reduce == "sum" and scope.sums else 0
    return terms + _roundings(scope.body)


def _roundings(body: Body) -> int:
    if isinstance(body, Read):
        return roundings(body.base) if isinstance(body.base, Scope) else int(body.base.values is not None)
    if isinstance(body, Const):
        return int(float(body.value) % 1 != 0)
    parts = [_roundings(a) for a in children(body)]
    if isinstance(body, (Add, Select)):
        return max(parts) + (len(parts) - 1 if isinstance(body, Add) else 0)
    return sum(parts) + (len(parts) - 1 if isinstance(body, Mul) else 1 if parts else 0)


def error_bound(derivation: Derivation) -> float:
    """The most by which the two ends can differ in single precision, relative to the greatest sum of absolute products (see above)."""
    return UNIT * (growth(derivation) * roundings(derivation.end) + roundings(derivation.start))


def program_bound(derivations: Iterable[Derivation]) -> float:
    """The bounds of all parts of a program added up, one for each place where a part stands: each hands its error on, none enlarges it."""
    return sum(map(error_bound, derivations))
