"""commute: element functions pass layout moves, in either direction. What a move brings from outside is its fill, so that f must keep it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from einnet.derivation.facts import is_copy
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.functions import KEEPS_ZERO
from einnet.expr.nodes import Body, Call, Const, Read, Scope, bodies_in, children, indices, inside, rebuild


@rule("commute", order=210, guard="Φ stays in the box of z, or f(0) = 0 and outside is 0; σ moves something", family="inter")
def commute(e: Scope) -> Iterator[Outcome]:
    """f({L[z] A[σ(z)]}[Φ(x)]) = {L[z] f(A[σ(z)])}[Φ(x)]

    Into the move: whoever reads the copy reads what is computed already. Out of it: the move is of a tensor again, and can be merged or
    cancelled with another. Every element is computed from the same number; arguments of f besides the moved one are constants.
    """
    found = False
    for n, part in enumerate(dict.fromkeys(bodies_in(e.body))):
        moved = _inwards(part) if isinstance(part, Call) else _outwards(part)
        if moved is None:
            continue
        found = True
        why = _outside_problem(e, *moved[:2])
        way = "inwards" if isinstance(part, Call) else "outwards"
        yield Refused(why) if why else Rewrite(replace(e, body=_put(e.body, part, moved[2])), f"part={n} {way}")
    if not found:
        yield Refused("no element function stands before or behind a layout move")


Move = tuple[Read, Call, Body]
"""The read of the layout move, the function that passes it, and what comes of the two."""


def _inwards(call: Call) -> Move | None:
    """f of a copy: the copy of f."""
    read = _argument(call)
    if read is None or not isinstance(read.base, Scope) or not is_copy(read.base) or not _moves(read.base, read.base.body):
        return None
    return read, call, replace(read, base=replace(read.base, body=_put(call, read, read.base.body)))


def _outwards(read: Body) -> Move | None:
    """A copy of f: f of the copy."""
    if not isinstance(read, Read) or not isinstance(read.base, Scope) or read.base.sums or not isinstance(read.base.body, Call):
        return None
    call = read.base.body
    inner = _argument(call)
    if inner is None or not _moves(read.base, inner):
        return None
    return read, call, _put(call, inner, replace(read, base=replace(read.base, body=inner)))


def _argument(call: Call) -> Read | None:
    """The only argument that is no constant, if it is a read."""
    varying = [a for a in call.args if not isinstance(a, Const)]
    return varying[0] if len(varying) == 1 and isinstance(varying[0], Read) else None


def _moves(scope: Scope, body: Body) -> bool:
    """The scope does not read its operand element by element as it stands."""
    return isinstance(body, Read) and (body.index != indices(scope.loops) or body.base.box != scope.box)


def _outside_problem(e: Scope, read: Read, call: Call) -> str:
    """Why f and what is read outside the move's box do not commute, or ''."""
    if inside(read, e.ranges) or (read.fill == 0 and len(call.args) == 1 and call.name in KEEPS_ZERO):
        return ""
    return f"the move can be read outside its box, and {call.name} is not known to keep its fill {read.fill}"


def _put(body: Body, old: Body, new: Body) -> Body:
    """The body with `new` wherever `old` stands."""
    if body == old:
        return new
    inside_it = children(body)
    return rebuild(body, tuple(_put(b, old, new) for b in inside_it)) if inside_it else body
