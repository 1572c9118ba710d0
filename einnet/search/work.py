"""How much an expression computes and moves: counts that depend on no device."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, starmap
from math import prod

from einnet.derivation.facts import ONE, has_values, is_transform
from einnet.derivation.matrix_steps import has_matrix, matrix_steps
from einnet.derivation.rules.transitions import Recurrence, running
from einnet.expr.nodes import Add, Body, Call, Div, Mul, Read, Scope, Tensor, children, is_weight, make_mul, nested, reads, tensors, used_names, walk
from einnet.instantiate.address import is_alias
from einnet.instantiate.row_fusion import in_one_kernel

BYTES = 4
"""Bytes of an element (f32)."""


def points(scope: Scope) -> int:
    """Points of the loops' and sums' box."""
    return prod(i.extent for i in (*scope.loops, *scope.sums))


def operations(body: Body) -> int:
    """Arithmetic operations of one evaluation."""
    own = len(body.args) - 1 if isinstance(body, (Add, Mul)) else 1 if isinstance(body, (Call, Div)) else 0
    return own + sum(operations(a) for a in children(body))


@lru_cache(maxsize=1 << 14)
def flops(scope: Scope) -> int:
    """Operations of the scope and of those inside it, weight-only ones left out; transforms are counted one dimension after the other."""
    return sum(_own_flops(s) for s in walk(scope) if not is_weight(s))


@lru_cache(maxsize=1 << 15)
def _own_flops(s: Scope) -> int:
    if has_matrix(s):
        return matrix_steps(s)
    if is_transform(s):
        return 2 * prod(s.shape) * sum(i.extent for i in s.sums)
    if _is_apart(s):
        return 0
    r = running(s)
    return _walked(s, r) if r is not None else points(s) * (operations(s.body) + (1 if s.sums else 0))


def _walked(s: Scope, r: Recurrence) -> int:
    """Operations of a recurrence. At each step what comes in is added to what is left of the state, of which something is asked; how much is left is
    computed once for all of the state that share it.
    """
    asked, left, coming = ([f for f in factors if f != ONE] for factors in (r.asked, r.between, r.coming))
    step = operations(make_mul(coming)) + 1 + (operations(make_mul(asked)) + 1 if asked else 0) + (1 if left else 0)
    loops = (*s.loops, *r.sums)
    gate = r.gate()
    return prod(i.extent for i in loops) * step + prod(i.extent for i in loops if i.name in used_names(gate)) * operations(gate)


def _is_apart(s: Scope) -> bool:
    """Parts of a tensor put side by side: reads at the same places of scopes whose boxes have no point in common, so that nothing is added."""
    args = s.body.args if isinstance(s.body, Add) and not s.sums else ()
    parts = [a for a in args if isinstance(a, Read) and isinstance(a.base, Scope) and a.fill == 0]
    return 0 < len(args) == len(parts) and all(starmap(_disjoint, combinations(parts, 2)))


def _disjoint(a: Read, b: Read) -> bool:
    """The boxes do not meet in a dimension along which both are read at one place."""
    sides = zip(a.index, b.index, a.base.box, b.base.box)
    return any(i == j and (own[1] <= other[0] or other[1] <= own[0]) for i, j, own, other in sides)


def elements(scope: Scope) -> int:
    """Elements read from tensors and written."""
    return prod(scope.shape) + sum(prod(t.shape) for t in tensors(scope).values())


@lru_cache(maxsize=1 << 15)
def moved(scope: Scope) -> int:
    """Bytes written and read again for the intermediate tensors of the scope, at least; weights are free.

    Sums by small matrices that stand in each other are one kernel, in which they are handed on in cache.
    """
    if any(map(has_matrix, walk(scope))) and in_one_kernel(scope, matched=False):
        return 0
    return sum(2 * BYTES * prod(s.shape) for s in dict.fromkeys(nested(scope)) if not is_weight(s))


@lru_cache(maxsize=1 << 14)
def intensity(scope: Scope) -> float:
    """Operations of the scope itself, not of those inside it, for every element it reads and writes (paper section 5, intensity analysis)."""
    bases = {r.base for r in reads(scope.body)}
    touched = prod(scope.shape) + sum(prod(b.shape) for b in bases)
    return points(scope) * (operations(scope.body) + (1 if scope.sums else 0)) / max(touched, 1)


@lru_cache(maxsize=1 << 14)
def streamed(scope: Scope) -> int:
    """Elements that a product takes from the nearest memory: what it reads is at hand again along the iterators that the read does not depend on.

    Overlapping windows are as many elements as there are points, however few tensor elements these are: a row times a window uses each once.
    """
    return sum(_points_read(scope).values())


def _read(scope: Scope) -> int:
    """Elements of what is read, no more of a tensor than there are points at which it is read."""
    return sum(min(prod(base.shape), count) for base, count in _points_read(scope).items())


def _points_read(scope: Scope) -> Counter[Tensor | Scope]:
    """At how many points each tensor is read, by all different reads of it."""
    extents = {i.name: i.extent for i in (*scope.loops, *scope.sums)}
    found: Counter[Tensor | Scope] = Counter()
    for r in dict.fromkeys(reads(scope.body)):
        found[r.base] += prod(extents[n] for n in used_names(r))
    return found


def applies_algorithm(scope: Scope) -> bool:
    """A factor is a constant matrix of a bilinear algorithm: what remains of the scope is that algorithm's own transform."""
    return any(has_values(r) for r in reads(scope.body))


@dataclass(frozen=True, slots=True)
class Weights:
    """How costs of different kinds compare, in FLOPs: `balance` for a byte moved, `near` for one that a vendor's kernel takes from a cache,
    `launch` for starting a kernel, `generated` for an operation of a generated reduction, `rows` for one of sums that are computed row by row inside
    each other (a vendor kernel's counts 1), `walked` for one of a walk along time, whose state stays in registers or in the nearest cache."""

    balance: float = 10.0
    near: float = 1.25
    launch: float = 5e5
    generated: float = 4.0
    walked: float = 1.5
    rows: float = 2.0


MACHINE = Weights()
"""A processor of today, roughly: the search wants an order of promise, costs that count are measured."""


def cost(scope: Scope, vendor: bool, weights: Weights) -> int:
    """What computing the scope alone costs at least, its operands given, in FLOPs: arithmetic or traffic, whichever is more, and a launch.

    Weight-only scopes are evaluated at compile time, aliases need no kernel, and parts that are stitched are written in place: all are free.
    What was counted is kept with the scope, as one search counts by the same weights.
    """
    known: tuple[Weights, list[int | None]] | None = scope.__dict__.get("_costs")
    if known is None or known[0] != weights:
        fresh: list[int | None] = [None, None]
        known = scope.__dict__["_costs"] = (weights, fresh)
    found = known[1][vendor]
    if found is None:
        found = known[1][vendor] = _cost(scope, vendor, weights)
    return found


def _cost(scope: Scope, vendor: bool, weights: Weights) -> int:
    if is_weight(scope) or is_alias(scope) or _is_stitched(scope):
        return 0
    touched = prod(scope.shape) + _read(scope)
    dear = weights.walked if running(scope) is not None else weights.generated
    arithmetic = _own_flops(scope) * (1.0 if vendor or not scope.sums or is_transform(scope) else dear)
    near = weights.near * BYTES * streamed(scope) if vendor and scope.sums else 0.0
    return int(max(arithmetic, weights.balance * BYTES * touched, near) + weights.launch)


def in_one(tree: Scope, weights: Weights) -> int:
    """What a scope costs as one kernel whose rows hand on their sums in cache: all arithmetic, or what goes in and out, and a launch."""
    touched = prod(tree.shape) + sum(prod(t.shape) for t in tensors(tree).values() if not t.weight)
    return int(max(flops(tree) * weights.rows, weights.balance * BYTES * touched) + weights.launch)


def _is_stitched(scope: Scope) -> bool:
    """A sum of reads of scopes, nothing else: parts that are 0 outside their boxes, put side by side."""
    body = scope.body
    return not scope.sums and isinstance(body, Add) and all(isinstance(a, Read) and isinstance(a.base, Scope) for a in body.args)
