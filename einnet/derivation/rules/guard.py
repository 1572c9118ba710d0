"""guard: choices whose conditions are known for all numbers, as the guard against NaN behind a softmax of what is finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Range
from einnet.expr.nodes import Body, Call, Scope, children, rebuild
from einnet.expr.normal.edges import explicit
from einnet.expr.normal.totals import BROKEN, state
from einnet.expr.normal.truths import known


@rule("guard", order=5, guard="the condition is known, or both sides are one; of elements of tensors it is known that they are numbers")
def guard(e: Scope) -> Iterator[Outcome]:
    """isnan(x) = 0, choose(0, x, y) = y, choose(1, x, y) = x, choose(c, x, x) = x"""
    conditional = [b for b in _calls(e.body) if b.name in ("isnan", "choose")]
    if not conditional:
        yield Refused("there is no choice by data")
        return
    body = decided(e.body, e.ranges)
    if body != e.body:
        yield Rewrite(replace(e, body=body), "all")
    elif any(b.name == "isnan" and state(b.args[0]) == BROKEN for b in conditional):
        yield Refused("what is asked to be NaN need not be a number")
    else:
        yield Refused("the condition depends on data")


def decided(body: Body, ranges: Mapping[str, Range]) -> Body:
    """The body without the choices that are known, innermost first, for iterators of these ranges."""
    args = children(body)
    if args:
        new = tuple(decided(a, ranges) for a in args)
        body = body if all(a is b for a, b in zip(args, new)) else rebuild(body, new)
    if not isinstance(body, Call):
        return body
    asked = tuple(explicit(a, ranges) for a in body.args)
    found = known(body.name, asked)
    return body if found is None else dict(zip(asked, body.args)).get(found, found)


def _calls(body: Body) -> Iterator[Call]:
    if isinstance(body, Call):
        yield body
    for a in children(body):
        yield from _calls(a)
