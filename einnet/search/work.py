"""How much an expression computes and moves: counts that depend on no device."""

from __future__ import annotations

from math import prod

from einnet.derivation.facts import has_values, is_transform
from einnet.expr.nodes import Add, Body, Call, Div, Mul, Scope, children, is_weight, nested, reads, tensors, walk

BYTES = 4
"""Bytes of an element (f32)."""


def points(scope: Scope) -> int:
    """Points of the loops' and sums' box."""
    return prod(i.extent for i in (*scope.loops, *scope.sums))


def operations(body: Body) -> int:
    """Arithmetic operations of one evaluation."""
    own = len(body.args) - 1 if isinstance(body, (Add, Mul)) else 1 if isinstance(body, (Call, Div)) else 0
    return own + sum(operations(a) for a in children(body))


def flops(scope: Scope) -> int:
    """Operations of the scope and of those inside it, weight-only ones left out; transforms are counted one dimension after the other."""
    return sum(_own_flops(s) for s in dict.fromkeys(walk(scope)) if not is_weight(s))


def _own_flops(s: Scope) -> int:
    if is_transform(s):
        return 2 * prod(s.shape) * sum(i.extent for i in s.sums)
    return points(s) * (operations(s.body) + (1 if s.sums else 0))


def elements(scope: Scope) -> int:
    """Elements read from tensors and written."""
    return prod(scope.shape) + sum(prod(t.shape) for t in tensors(scope).values())


def moved(scope: Scope) -> int:
    """Bytes written and read again for the intermediate tensors of the scope, at least; weights are free."""
    return sum(2 * BYTES * prod(s.shape) for s in dict.fromkeys(nested(scope)) if not is_weight(s))


def intensity(scope: Scope) -> float:
    """Operations of the scope itself, not of those inside it, for every element it reads and writes (paper section 5, intensity analysis)."""
    bases = {r.base for r in reads(scope.body)}
    touched = prod(scope.shape) + sum(prod(b.shape) for b in bases)
    return points(scope) * (operations(scope.body) + (1 if scope.sums else 0)) / max(touched, 1)


def applies_algorithm(scope: Scope) -> bool:
    """A factor is a constant matrix of a bilinear algorithm: what remains of the scope is that algorithm's own transform."""
    return any(has_values(r) for r in reads(scope.body))
