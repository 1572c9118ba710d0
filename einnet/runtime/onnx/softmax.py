"""Softmax in the language: a quotient of exponentials and their sum, under a mask or none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from einnet.expr.index import var
from einnet.expr.nodes import INF, Add, Body, Call, Cond, Const, Div, Read, Scope, Select, children, make_add, rebuild, substitute_body, used_names
from einnet.runtime.onnx.skew import unskewed


def softmax(quotient: Div, s: Scope) -> tuple[Body, frozenset[str]] | None:
    """(score, iterators) such that the quotient is exp(score) by its sum over these iterators of the scope; None where it is something else.

    [c] exp(x + m) / Σ[t] [c] exp(x + m) = softmax over t of x where c, of -inf elsewhere: what does not depend on t goes out.
    """
    sums = quotient.den
    if not (isinstance(sums, Read) and isinstance(sums.base, Scope) and sums.base.reduce == "sum"):
        return None
    power = exponent(once(quotient.num))
    if power is None:
        return None
    for over, body in rows(unskewed(sums.base), sums, s):
        other = exponent(once(body))
        if other is not None and over <= used_names(power) and same(power, other, s):
            return score(power, over), over
    return None


def rows(total: Scope, at: Read, s: Scope) -> Iterator[tuple[frozenset[str], Body]]:
    """What a read sum adds up, written over iterators of the scope in the place of its own sums; and these."""
    fixed = {n for ix in at.index for n in ix.names()}
    free = [i for i in (*s.loops, *s.sums) if i.name not in fixed]
    given = dict(zip((i.name for i in total.loops), at.index, strict=True))
    for chosen in permutations(free, len(total.sums)):
        if all(i.range == j.range for i, j in zip(chosen, total.sums)):
            mapping = {**given, **{j.name: var(i.name) for i, j in zip(chosen, total.sums)}}
            yield frozenset(i.name for i in chosen), substitute_body(total.body, mapping)


def same(one: Body, other: Body, s: Scope) -> bool:
    """Equal up to the names of what is summed inside and the order of operands."""
    frame = (*s.loops, *s.sums)
    return one == other or Scope(frame, (), one).key == Scope(frame, (), other).key


def exponent(body: Body) -> Body | None:
    """x for exp(x), x or -inf for exp(x) or 0."""
    if isinstance(body, Select) and body.other == Const(0):
        inner = exponent(body.then)
        return None if inner is None else Select(tuple(sorted(body.conds)), inner, Const(-INF))
    return body.args[0] if isinstance(body, Call) and body.name == "exp" else None


def score(power: Body, over: frozenset[str]) -> Body:
    """Without the terms that are the same for all values of these iterators."""
    if isinstance(power, Select):
        return Select(power.conds, score(power.then, over), power.other)
    if isinstance(power, Add):
        return make_add(a for a in power.args if used_names(a) & over)
    return power


def once(body: Body) -> Body:
    """The body that asks for every condition once: not where it holds already, and for conditions with one alternative together."""
    return _granted(body, frozenset())


def _granted(body: Body, conds: frozenset[Cond]) -> Body:
    if not isinstance(body, Select):
        return rebuild(body, tuple(_granted(b, conds) for b in children(body)))
    wanted = tuple(c for c in body.conds if c not in conds)
    then = _granted(body.then, conds | {*wanted})
    if not wanted:
        return then
    other = _granted(body.other, conds)
    if isinstance(then, Select) and then.other == other:
        return Select((*wanted, *then.conds), then.then, other)
    return Select(wanted, then, other)
