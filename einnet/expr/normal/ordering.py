"""What the order of numbers says of `max`, `min`, `relu` and `less`: one form for what is equal for all numbers, whichever is the greater.

Maxima and minima of some bodies have a form as the greatest of some least ones, without those that another one is never below. `less` of such a form
is made of comparisons of two of its bodies. Every equation here leaves out only bodies that have a value whatever the elements of tensors are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from einnet.expr.functions import FUNCTIONS, PARTIAL
from einnet.expr.functions.record import ANY
from einnet.expr.nodes import INF, Add, Body, Call, Const, Div, Mul, Read, Scope, children, negate
from einnet.expr.normal.infinities import BOTH, infinities, keeps_infinities
from einnet.expr.notation.printing import print_body

LATTICE = frozenset({"max", "min", "relu"})
_MOST = 12
"""Least ones of a form, and bodies of each."""

_ZERO, _ONE = Const(Fraction(0)), Const(Fraction(1))

Meet = frozenset[Body]
"""The least of some bodies."""


def ordered(name: str, args: tuple[Body, ...]) -> Body:
    """A call of max, min or relu in its form."""
    found = _joined(Call(name, args))
    if found is None:
        return Call(name, args)
    kept = list(_maximal(found))
    if not all(map(_has_value, {*_leaves(Call(name, args))} - {b for meet in kept for b in meet})):
        return Call(name, args)
    return _body(kept)


def _leaves(body: Body) -> Iterator[Body]:
    """What maxima and minima are taken of."""
    if isinstance(body, Call) and body.name in LATTICE:
        for a in body.args:
            yield from _leaves(a)
    else:
        yield body


_NOT_NEGATIVE = frozenset(f.name for f in FUNCTIONS.values() if f.arity < 3 and f.exists is None and f.range(*(ANY,) * f.arity).lo >= 0)


def _has_value(body: Body) -> bool:
    """The body is a number, or infinite, whatever the elements of tensors are: nowhere inf - inf, 0 times inf, or a function without a limit."""
    if isinstance(body, Div) or (isinstance(body, Call) and body.name in PARTIAL):
        return False
    if isinstance(body, Read):
        return not isinstance(body.base, Scope) or (_has_value(body.base.body) and (not body.base.sums or not _opposite(body.base)))
    return all(map(_has_value, children(body))) and not _without_limit(body)


def _opposite(scope: Scope) -> bool:
    """Infinities of two signs may be added up."""
    return scope.reduce == "sum" and infinities(scope.body) == BOTH


def _without_limit(body: Body) -> bool:
    """An operand may be infinite so that there is no value."""
    match body:
        case Add(args):
            return infinities(Add(args)) == BOTH
        case Mul(args):
            return any(map(infinities, args))
        case Call(name, args):
            return not keeps_infinities(name) and any(map(infinities, args))
    return False


def _joined(body: Body) -> frozenset[Meet] | None:
    """The body as the greatest of some least ones; None where they are too many."""
    match body:
        case Call("relu", (a,)):
            return _joined(Call("max", (a, _ZERO)))
        case Call("max", (a, b)):
            left, right = _joined(a), _joined(b)
            return None if left is None or right is None or len(left | right) > _MOST else left | right
        case Call("min", (a, b)):
            left, right = _joined(a), _joined(b)
            if left is None or right is None or len(left) * len(right) > _MOST:
                return None
            return frozenset(_least(x | y) for x in left for y in right)
    return frozenset({frozenset({body})})


def _least(meet: Meet) -> Meet:
    """Without the bodies that are never below another one of them."""
    left = sorted(meet, key=_of)
    return frozenset(b for n, b in enumerate(left) if not any(_below(a, b) and (k < n or not _below(b, a)) for k, a in enumerate(left) if k != n))


def _below(a: Body, b: Body) -> bool:
    """The first is known never to be above the other: they are one, or numbers, or the other is the first and something that is not negative."""
    if a == b or Const(-INF) == a or Const(INF) == b:
        return True
    if isinstance(a, Const) and isinstance(b, Const):
        return a.value <= b.value
    less, more = Counter(_summands(a)), Counter(_summands(b))
    return less <= more and all(map(_not_negative, more - less))


def _summands(body: Body) -> tuple[Body, ...]:
    return body.args if isinstance(body, Add) else () if body == _ZERO else (body,)


def _not_negative(body: Body) -> bool:
    match body:
        case Const(v):
            return v >= 0
        case Call(name, _):
            return name in _NOT_NEGATIVE
        case Mul(args) | Add(args):
            return all(map(_not_negative, args))
    return False


def _maximal(meets: Iterable[Meet]) -> Iterator[Meet]:
    """Those that are not always at most another one."""
    left = sorted(meets, key=_text)
    for n, meet in enumerate(left):
        others = (o for k, o in enumerate(left) if k != n and _at_most(meet, o) and (k < n or not _at_most(o, meet)))
        if next(others, None) is None:
            yield meet


def _at_most(meet: Meet, other: Meet) -> bool:
    """The least of the first is never above the least of the other: for each body there, one here is at most that."""
    return all(any(_below(a, b) for a in meet) for b in other)


def _body(meets: list[Meet]) -> Body:
    """The form as calls, in the order of texts; max with 0 is relu."""
    zero = [m for m in meets if m == {_ZERO}]
    if zero and len(meets) > 1:
        return Call("relu", (_body([m for m in meets if m != {_ZERO}]),))
    parts = [_nested("min", sorted(m, key=_of)) for m in sorted(meets, key=_text)]
    return _nested("max", parts)


def _nested(name: str, bodies: list[Body]) -> Body:
    done = bodies[0]
    for b in bodies[1:]:
        done = Call(name, (done, b))
    return done


def _text(meet: Meet) -> str:
    return ", ".join(sorted(map(_of, meet)))


def _of(body: Body) -> str:
    return print_body(body, ())


def compared(name: str, left: Body, right: Body) -> Body | None:
    """`less` or `equal` of one body, and `less` where one of both is a maximum or a minimum; None where nothing is known."""
    if left == right and _has_value(left):
        return _ZERO if name == "less" else _ONE
    if name != "less":
        return None
    match left, right:
        case Call("max", (a, b)), _:
            return Mul((Call("less", (a, right)), Call("less", (b, right))))
        case _, Call("min", (a, b)):
            return Mul((Call("less", (left, a)), Call("less", (left, b))))
        case Call("min", (a, b)), _:
            return _either(Call("less", (a, right)), Call("less", (b, right)))
        case _, Call("max", (a, b)):
            return _either(Call("less", (left, a)), Call("less", (left, b)))
        case (Call("relu", (a,)), _):
            return compared(name, Call("max", (a, _ZERO)), right)
        case (_, Call("relu", (a,))):
            return compared(name, left, Call("max", (a, _ZERO)))
    return None


def _either(a: Body, b: Body) -> Body:
    """1 where one of two truth values is, else 0."""
    return Add((a, b, negate(Mul((a, b)))))
