"""Recursions with fewer equations: what is cheap to say again stands where it is read. Two recursions are compared equation by equation.

An equation may stand in the place of its tensor wherever that is read, at whatever time: that is what the equation says. By induction over time two
recursions are equal where each equation of the one is an equation of the other, with what the other does not store written into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from einnet.derivation.checker.check import check_equal
from einnet.errors import UsageError
from einnet.expr.index import substitute, var
from einnet.expr.nodes import (
    Body,
    Call,
    Const,
    Div,
    Read,
    Scope,
    Tensor,
    children,
    exchange_in,
    fresh,
    inside,
    map_indices,
    map_leaves,
    reads,
    tensors,
)  # fmt: skip
from einnet.expr.recursions.recursion import Equation, Recursion


def inlined(r: Recursion) -> Recursion:
    """The recursion without equations that are moves, or that their readers compute as seldom; each as long as there is one."""
    while (fewer := next(_fewer(r), None)) is not None:
        r = fewer
    return r


def _fewer(r: Recursion) -> Iterator[Recursion]:
    """The recursion without one of its equations, for each that is not to be stored."""
    for e in r.equations:
        name = e.tensor.name
        users = [u for u in r.equations if name in tensors(u.scope)]
        if name in r.outputs or (e not in r.after and any(u in r.after for u in users)) or not all(_opens(e, u, len(users) == 1) for u in users):
            continue
        before, steps, after = (tuple(_opened(e, u) if u in users else u for u in part if u != e) for part in (r.before, r.steps, r.after))
        try:
            yield replace(r, before=before, steps=steps, after=after)
        except UsageError:  # it is asked for at another time
            continue


def _opens(e: Equation, user: Equation, alone: bool) -> bool:
    """The user, `alone` or one of some, may compute the equation itself: at its own time, at no more points, and within its box."""
    own = [r for r in reads(user.scope.body) if isinstance(r.base, Tensor) and r.base.name == e.tensor.name]
    direct = len(own) == sum(e.tensor.name in (tensors(r.base) if isinstance(r.base, Scope) else {r.base.name}) for r in reads(user.scope.body))
    if user.tensor == e.tensor or not direct or not all(inside(r, user.scope.ranges) for r in own):
        return False
    if e.scope.sums:
        return user.scope.body == own[0] and not user.scope.sums
    points = prod(i.extent for i in (*user.scope.loops, *user.scope.sums))
    return _moves(e.scope.body) or (points <= prod(e.scope.shape) and (not _costs(e.scope.body) or (alone and len(own) == 1)))


def _moves(body: Body) -> bool:
    """The body is read elsewhere, or is a number."""
    return isinstance(body, Const) or (isinstance(body, Read) and isinstance(body.base, Tensor))


def _costs(body: Body) -> bool:
    """The body is more than sums and products."""
    return isinstance(body, (Call, Div)) or any(map(_costs, children(body)))


def _opened(e: Equation, user: Equation) -> Equation:
    """The user, with the equation in the place of its tensor."""
    s = user.scope
    names = {i.name: fresh(i.name, s.ranges.keys() | e.scope.ranges.keys()) for i in e.scope.sums}

    def swap(leaf: Body) -> Body:
        if not isinstance(leaf, Read) or leaf.base != e.tensor:
            return leaf
        from_names = {i.name: ix for i, ix in zip(e.scope.loops, leaf.index)}
        from_names |= {old: var(new) for old, new in names.items()}
        return map_indices(e.scope.body, lambda ix: substitute(ix, from_names))

    sums = (*s.sums, *(i._replace(name=names[i.name]) for i in e.scope.sums))
    return Equation(user.tensor, Scope(s.loops, sums, map_leaves(s.body, swap), e.scope.reduce if e.scope.sums else s.reduce))


def check_recursions(given: Recursion, other: Recursion) -> None:
    """Raise the checker's error, or UsageError, unless both give the same of the same inputs, by names that are those of one another.

    Each equation of `other` is compared with that of `given`, in which all that `other` does not define is written out.
    """
    if (given.count, given.inputs, given.outputs) != (other.count, other.inputs, other.outputs):
        raise UsageError("recursions of other times, inputs or outputs")
    scopes = {e.tensor.name: e for e in given.equations}
    kept = {e.tensor.name for e in other.equations}
    for e in other.equations:
        if e.tensor.name not in scopes or scopes[e.tensor.name].tensor != e.tensor:
            raise UsageError(f"the recursion has no {e.tensor.name}")
        wanted = written(scopes[e.tensor.name].scope, scopes, kept)
        if wanted != e.scope:
            check_equal(wanted, e.scope)


def written(scope: Scope, equations: Mapping[str, Equation], kept: Iterable[str]) -> Scope:
    """The scope with equations in the place of tensors that are not kept. Raises UsageError where one leads to itself."""
    for _ in range(len(equations) + 1):
        out = {n: equations[n].scope for n in tensors(scope) if n in equations and n not in kept}
        if not out:
            return scope
        scope = exchange_in(scope, out)
    raise UsageError("what a recursion leaves out depends on itself")
