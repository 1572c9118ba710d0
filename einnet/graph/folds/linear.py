"""States that a step multiplies by a number and adds to: h(t) = a(t)*h(t-1) + k(t) is h(t) = D(t,-1)*h(-1) + Σ[s<=t] D(t,s)*k(s).

D(t,s) = a(s+1)*..*a(t) is the exponential of a sum of logarithms; so a must be a number of which the logarithm is known: an exponential, a sigmoid,
a positive weight, or a product or quotient of such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import log

import numpy as np

from einnet.expr.index import Index, substitute, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Iter,
    Mul,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    fresh,
    indices,
    make_add,
    make_div,
    make_mul,
    map_indices,
    negate,
    reads,
    tensors,
    used_names,
)
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))


LEAST = Fraction(-88)
"""Its exponential is less than any normal number of float32."""


@dataclass(frozen=True)
class Affine:
    """a and k over loops of which the first is time; None for an a of 1, and for a k of 0."""

    loops: tuple[Iter, ...]
    gate: Body | None
    coming: Body | None


def affine(update: Scope, state: str) -> Affine | None:
    """What a step makes of a state, in its own places, as an affine function of it; None where it is none. The first loop is time.

    A gate of 0 is none: the state then is no state.
    """
    try:
        form = inline(update)
    except OutOfReach:
        return None
    if form.reduce != "sum":
        return None
    terms = form.body.args if isinstance(form.body, Add) and not form.sums else (form.body,)
    gates: list[Body] = []
    rest: list[Body] = []
    for term in terms:
        if not holds(term, state):
            rest.append(term if not form.sums else Read(form, indices(form.loops)))
            continue
        gate = None if form.sums else gate_of(term, state, form.loops)
        if gate is None:
            return None
        gates.append(gate)
    coming = make_add(rest) if rest else None
    gate = make_add(gates) if gates else None
    return Affine(form.loops, gate, None if coming == ZERO else coming) if gate is not None else None


def factors(body: Body) -> tuple[Body, ...]:
    """The factors of a product; a body that is no product is its own factor."""
    return body.args if isinstance(body, Mul) else (body,)


def holds(body: Body, name: str) -> bool:
    """The body reads the tensor, in a nested scope or not."""
    return any(name in tensors(r.base) if isinstance(r.base, Scope) else r.base.name == name for r in reads(body))


def gate_of(term: Body, state: str, loops: tuple[Iter, ...]) -> Body | None:
    """What a product multiplies the state by: it stands in it once, at its own place."""
    parts, found = list(factors(term)), 0
    for n, part in enumerate(parts):
        numerator = part.num if isinstance(part, Div) else part
        if isinstance(numerator, Read) and isinstance(numerator.base, Tensor) and numerator.base.name == state and own_place(numerator, loops[1:]):
            parts[n] = make_div(ONE, part.den) if isinstance(part, Div) else ONE
            found += 1
    rest = make_mul(p for p in parts if p != ONE)
    return rest if found == 1 and not holds(rest, state) else None


def own_place(read: Read, loops: tuple[Iter, ...]) -> bool:
    """The read is at the loops; a unit loop may be written as 0."""
    return all(ix == var(i.name) or (i.extent == 1 and ix == Index()) for ix, i in zip(read.index, loops, strict=True))


@dataclass(frozen=True)
class Logarithms:
    """Logarithms of what is positive. `scopes` defines tensors without sums, `values` knows weights, `weight` makes one."""

    scopes: Mapping[str, Scope]
    values: Mapping[str, np.ndarray]
    weight: Callable[[str, np.ndarray], Tensor]

    def of(self, body: Body) -> Body | None:
        """The logarithm as an expression; None where nothing is known of the sign, or it is too involved."""
        match body:
            case Const(value) if isinstance(value, Fraction) and value > 0:
                return ZERO if value == 1 else Const(Fraction(log(value)))
            case Call("exp", (power,)):
                return power
            case Call("sigmoid", (x,)):
                return negate(Call("softplus", (negate(x),)))
            case Div(num, den):
                above, below = self.of(num), self.of(den)
                return None if above is None or below is None else make_add((above, negate(below)))
            case Add((left, right)):
                return self.complement(left, right) or self.complement(right, left)
            case Read() if (opened := self.opened(body)) is not body:
                return self.of(opened)
            case Read(Tensor() as base, index, _) if base.name in self.values and (self.values[base.name] > 0).all():
                return Read(self.weight(f"{base.name}_log", np.log(self.values[base.name].astype(np.float64))), index)
        parts = factors(body)
        logs = [self.of(p) for p in parts] if len(parts) > 1 else [None]
        return None if None in logs else make_add(x for x in logs if x is not None and x != ZERO)

    def spread(self, body: Body) -> Body:
        """A product, with what is known of its factors in their place as far as they are products."""
        parts = [self.opened(f) for f in factors(body)]
        return make_mul(self.spread(new) if new is not old and isinstance(new, (Mul, Read)) else old for new, old in zip(parts, factors(body)))

    def complement(self, one: Body, other: Body) -> Body | None:
        """log(1 - sigmoid(x)) = -softplus(x)."""
        match one, tuple(map(self.opened, factors(other))):
            case Const(1), (Const(-1), Call("sigmoid", (x,))):
                return negate(Call("softplus", (x,)))
        return None

    def opened(self, body: Body) -> Body:
        """What a read is of, where that is known and no sum."""
        if not isinstance(body, Read) or not isinstance(body.base, Tensor) or body.base.name not in self.scopes:
            return body
        defined = self.scopes[body.base.name]
        if defined.sums:
            return body
        mapping = {i.name: ix for i, ix in zip(defined.loops, body.index)}
        return self.opened(map_indices(defined.body, lambda e: substitute(e, mapping)))


@dataclass(frozen=True)
class Decay:
    """D(t,s) = exp(rate*(P(t) - P(s))), where P is a running sum of `moving`, or time itself where that is None."""

    t: Iter
    rate: tuple[Body, ...]
    moving: Scope | None

    def left(self, total: Tensor | None, t: Index, s: Index) -> Body:
        """What is left at t of what came in at s; `total` is P."""
        if self.moving is None or total is None:
            return Call("exp", (make_mul((*self.rate, Val(t - s))),))
        ends = [Read(total, tuple(x if i == self.moving.loops[0] else var(i.name) for i in self.moving.loops)) for x in (t, s)]
        return Call("exp", (make_mul((*self.rate, make_add((ends[0], negate(ends[1]))))),))

    def begun(self, total: Tensor | None, t: Index) -> Body:
        """What is left at t of what was there before the first time."""
        if self.moving is None or total is None:
            return Call("exp", (make_mul((*self.rate, Val(t + 1))),))
        sums = Read(total, tuple(t if i == self.moving.loops[0] else var(i.name) for i in self.moving.loops))
        return Call("exp", (make_mul((*self.rate, sums)),))


def decay(logarithm: Body, loops: tuple[Iter, ...]) -> Decay | None:
    """The decay of which the logarithm at each time is given; None where there is none. What does not depend on time is a rate.

    Without one, logarithms are no less than LEAST: what forgets its state at a time, by a gate of 0 or nearly so, leaves the running sum fit to tell
    what comes after.
    """
    t = loops[0]
    if logarithm == ZERO:
        return None
    parts = factors(logarithm)
    rate: tuple[Body, ...] = tuple(p for p in parts if t.name not in used_names(p))
    moving = [p for p in parts if t.name in used_names(p)]
    if not moving:
        return Decay(t, rate, None)
    body = make_mul(moving)
    if all(isinstance(p, Const) for p in rate):
        body, rate = Call("max", (make_mul((*rate, *moving)), Const(LEAST))), ()
    own = tuple(i for i in loops if i.name in used_names(body))
    s = Iter(fresh("s", {i.name for i in loops}), 0, t.extent)
    turned = map_indices(body, lambda e: substitute(e, {t.name: var(s.name)}))
    total = Scope(own, (s,), Select((Cond(var(t.name) - var(s.name)),), turned, ZERO))
    return Decay(t, rate, total)


def walk(a: Affine, decayed: Decay | None, total: Tensor | None) -> Scope:
    """Σ[s<=t] D(t,s)*k(s)."""
    t = a.loops[0]
    assert a.coming is not None
    s = Iter(fresh("s", {i.name for i in a.loops}), 0, t.extent)
    coming = map_indices(a.coming, lambda e: substitute(e, {t.name: var(s.name)}))
    left = [] if decayed is None else [decayed.left(total, var(t.name), var(s.name))]
    return Scope(a.loops, (s,), Select((Cond(var(t.name) - var(s.name)),), make_mul((*left, coming)), ZERO))
