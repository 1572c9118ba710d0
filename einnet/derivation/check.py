"""The checker of derivations. It knows no rule: it compares what two expressions mean.

First the keys of the inlining normal forms; where these differ, both sides are evaluated at the same points modulo 2^61 - 1 with pseudo-random
tensors at the real extents. A difference there is a proof of inequality (up to identities of transcendental functions); none is evidence only,
and the proof says so. See derivation.md section 5.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from einnet.derivation.steps import KINDS, Derivation, Step, replace_at, subscope
from einnet.errors import CertificateError
from einnet.expr.index import Floor, Index
from einnet.expr.inline import OutOfReach, inline
from einnet.expr.nodes import Scope, index_functions, tensors, walk
from einnet.expr.points import evaluate_at, work

SEEDS = (1, 2)
_MOST_POINTS = 256
_FEWEST_POINTS = 4
_BUDGET = 3_000_000
"""Body evaluations per side and seed."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Why two scopes are the same tensor: "inline" (equal normal forms) or "random" (equal at `points` points for two seeds)."""

    method: str
    details: str
    points: int = 0


class Difference(CertificateError):
    """Two sides that differ at a point of the output."""

    def __init__(self, message: str, point: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.point = point


def check_equal(before: Scope, after: Scope) -> Proof:
    """The two scopes are the same tensor over the same box.

    Raises CertificateError where the boxes differ or a tensor is declared in two ways, Difference (with the point) where values differ.
    """
    if before.box != after.box:
        raise CertificateError(f"the boxes differ: {_box(before)} before, {_box(after)} after")
    _same_tensors(before, after)
    if before.key == after.key:
        return Proof("inline", "equal but for names and order")
    try:
        if inline(before).key == inline(after).key:
            return Proof("inline", "equal normal forms")
        reason = "normal forms differ"
    except OutOfReach as error:
        reason = f"no normal form: {error}"
    return _compare(before, after, reason)


def check(derivation: Derivation) -> list[Proof]:
    """A proof for every step, replayed on the whole expression.

    Raises CertificateError, with the step's number and rule, at the first step that is not proven.
    """
    proofs: list[Proof] = []
    state = derivation.start
    for number, step in enumerate(derivation.steps, 1):
        try:
            proofs.append(_check_step(state, step))
        except CertificateError as error:
            message = f"step {number} ({step.rule} {step.parameters}".rstrip() + f"): {error}"
            raise Difference(message, getattr(error, "point", ())) from error
        state = replace_at(state, step.path, step.after)
    return proofs


def _check_step(state: Scope, step: Step) -> Proof:
    try:
        found = subscope(state, step.path)
    except IndexError:
        raise CertificateError(f"there is no scope at {'.'.join(map(str, step.path))} in {state.text()}") from None
    if found.key != step.before.key:
        raise CertificateError(f"the step starts from\n    {step.before.text()}\nbut there stands\n    {found.text()}")
    if step.kind not in KINDS:
        raise CertificateError(f"{step.kind!r} is no numerical class: expected one of {', '.join(KINDS)}")
    if step.kind == "precision" and step.bound is None:
        raise CertificateError("a step of class precision needs an error bound")
    return check_equal(step.before, step.after)


def _box(scope: Scope) -> str:
    return "×".join(f"{lo}..{hi - 1}" for lo, hi in scope.box)


def _same_tensors(before: Scope, after: Scope) -> None:
    try:
        left, right = tensors(before), tensors(after)
    except ValueError as error:
        raise CertificateError(str(error)) from None
    for name in left.keys() & right.keys():
        if left[name] != right[name]:
            raise CertificateError(f"tensor {name} is {left[name]} before and {right[name]} after")


def _compare(before: Scope, after: Scope, reason: str) -> Proof:
    """Evaluate both sides at points; see the module's docstring."""
    size = prod(before.shape)
    if size == 0:
        return Proof("inline", "no elements")
    count = _MOST_POINTS
    while count > _FEWEST_POINTS and max(work(before, count), work(after, count)) > _BUDGET:
        count //= 2
    points = _points(before, after, count)
    for seed in SEEDS:
        left, right = evaluate_at(before, points, seed), evaluate_at(after, points, seed)
        differ = np.flatnonzero(left != right)
        if differ.size:
            at = tuple(int(x) for x in points[differ[0]])
            where = ", ".join(f"{i.name}={x}" for i, x in zip(before.loops, at, strict=True))
            values = f"{int(left[differ[0]])} before, {int(right[differ[0]])} after (modulo 2^61-1, seed {seed})"
            raise Difference(f"the two sides differ at [{where}]: {values}\n    before: {before.text()}\n    after:  {after.text()}", at)
    share = "all" if len(points) == size else f"{len(points)} of {size}"
    return Proof("random", f"{reason}; equal at {share} points modulo 2^61-1 for {len(SEEDS)} seeds", len(points))


def _points(before: Scope, after: Scope, count: int) -> NDArray[np.int64]:
    """All points of a small box; else corners, points near the constants of both sides, and uniform ones."""
    if prod(before.shape) <= count:
        return np.asarray(list(product(*(range(lo, hi) for lo, hi in before.box))), dtype=np.int64).reshape(prod(before.shape), len(before.shape))
    generator = random.Random(f"{before.key}{after.key}")
    constants = sorted({c for s in (before, after) for c in _constants(s)})
    near = [sorted(_near(lo, hi, constants)) for lo, hi in before.box]
    edges = [sorted({lo, min(lo + 1, hi - 1), max(hi - 2, lo), hi - 1}) for lo, hi in before.box]
    chosen: dict[tuple[int, ...], None] = {}
    for k in range(count):
        kind = k % 4
        pick = edges if kind == 0 else near if kind == 1 else None
        point = tuple(
            generator.choice(pick[axis]) if pick and (kind < 2) else generator.randrange(lo, hi) for axis, (lo, hi) in enumerate(before.box)
        )
        if kind == 2:
            axis = generator.randrange(len(point)) if point else 0
            point = tuple(generator.choice(edges[a]) if a == axis else x for a, x in enumerate(point))
        chosen[point] = None
    return np.asarray(list(chosen), dtype=np.int64).reshape(len(chosen), len(before.shape))


def _near(lo: int, hi: int, constants: Iterable[int]) -> set[int]:
    return {lo, hi - 1} | {x for c in constants for x in (c - 1, c, c + 1, hi - c) if lo <= x < hi}


def _constants(scope: Scope) -> Iterator[int]:
    """Bounds and integers of index functions: where pieces of an expression may begin or end."""
    for s in walk(scope):
        for i in (*s.loops, *s.sums):
            yield i.lo
            yield i.hi
        for e in index_functions(s.body):
            yield from _integers(e)


def _integers(e: Index) -> Iterator[int]:
    yield abs(e.const)
    yield e.den
    for atom, c in e.terms:
        yield abs(c)
        if isinstance(atom, Floor):
            yield atom.den
            yield from _integers(atom.num)
