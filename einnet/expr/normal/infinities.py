"""Where a body may be infinite for elements of tensors that are numbers: equations of numbers that do not hold there are not used.

Infinities come from constants, from fills and from maxima of nothing; a quotient by 0 is no value at all. What is -inf times a sum is not what the
products add up to, some of which may be inf; nor is 2·x - x then x.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import islice, product

from einnet.expr.functions import FUNCTIONS
from einnet.expr.functions.record import ANY
from einnet.expr.index import Range, var
from einnet.expr.nodes import Add, Body, Call, Const, Div, Mul, Read, Scope, Select, children, inside, substitute_body, used_names
from einnet.expr.normal.terms import Term, with_plain_fills
from einnet.expr.normal.totals import FINITE, state, weighted

NEITHER, LOW, HIGH, BOTH = 0, 1, 2, 3
"""Never infinite; perhaps -inf; perhaps inf; perhaps either."""

NOWHERE: Mapping[str, Range] = {}
_MOST_TRIED = 64
"""Places at which an element of a maximum is looked for."""


def unbounded(term: Term, ranges: Mapping[str, Range]) -> bool:
    """Some factor of the term may be infinite."""
    return any(infinities(f, ranges) and infinities(with_plain_fills(f, ranges), ranges) for f in term.factors)


def infinities(body: Body, ranges: Mapping[str, Range] = NOWHERE) -> int:
    """Which infinities the body may be; more is known where the iterators have known ranges."""
    match body:
        case Const(v):
            return NEITHER if not isinstance(v, float) else LOW if v < 0 else HIGH
        case Read(base, _, fill):
            found = (_of_scope(base) if isinstance(base, Scope) else NEITHER) | infinities(Const(fill))
        case Add(args):
            found = _of_sum(args, ranges) if _any_of(args, ranges) else NEITHER
        case Select():
            found = _any_of(children(body), ranges)
        case Mul(args):
            found = BOTH if _any_of(args, ranges) else NEITHER
        case Div(num, _):
            found = BOTH if infinities(num, ranges) else NEITHER
        case Call(name, args):
            found = _of_call(name, args, ranges)
        case _:
            return NEITHER
    return found if found and state(body) != FINITE else NEITHER


def _any_of(bodies: Iterable[Body], ranges: Mapping[str, Range]) -> int:
    found = NEITHER
    for b in bodies:
        found |= infinities(b, ranges)
    return found


def _of_sum(args: Iterable[Body], ranges: Mapping[str, Range]) -> int:
    """What the greatest of its kind is taken from is never inf: where that is -inf, all of them are."""
    left, found = weighted(args), NEITHER
    for greatest in [t for t, k in left.items() if k < 0]:
        element = _element(greatest, left, ranges)
        if element:
            found |= LOW if _any_of(element, ranges) else NEITHER
            left = {t: k for t, k in left.items() if t != greatest and t not in element}
    for t, k in left.items():
        own = infinities(t, ranges) if k else NEITHER
        found |= own if k > 0 or own in (NEITHER, BOTH) else BOTH - own
    return found


def _element(greatest: Body, terms: Mapping[Body, Fraction], ranges: Mapping[str, Range]) -> dict[Body, Fraction]:
    """Terms of the sum that make one of the elements of a maximum that is taken from it, as often as that is; none where there are none."""
    if not isinstance(greatest, Read) or not isinstance(greatest.base, Scope) or greatest.base.reduce != "max":
        return {}
    inner, names = greatest.base, {n: r for n, r in ranges.items() if any(n in used_names(t) for t in terms)}
    if not inside(greatest, ranges):
        return {}
    at = dict(zip((i.name for i in inner.loops), greatest.index, strict=True))
    within = ([n for n, (lo, hi) in names.items() if i.lo <= lo and hi <= i.hi] for i in inner.sums)
    for chosen in islice(product(*within), _MOST_TRIED):
        body = substitute_body(inner.body, {**at, **{i.name: var(n) for i, n in zip(inner.sums, chosen, strict=True)}})
        own = weighted(body.args if isinstance(body, Add) else (body,))
        if all(terms.get(t) == -terms[greatest] * k for t, k in own.items()):
            return own
    return {}


def _of_call(name: str, args: tuple[Body, ...], ranges: Mapping[str, Range]) -> int:
    """What keeps the order of numbers keeps the infinities, as far as its values reach."""
    function, given = FUNCTIONS[name], _any_of(args, ranges)
    if not given:
        return NEITHER
    values = function.range(*(ANY,) * function.arity)
    reached = (LOW if values.lo == ANY.lo else NEITHER) | (HIGH if values.hi == ANY.hi else NEITHER)
    return reached & (given if keeps_infinities(name) else BOTH)


def keeps_infinities(name: str) -> bool:
    """The function has a value at infinite arguments, and none but those of the arguments is infinite there."""
    function = FUNCTIONS[name]
    return function.nondecreasing or function.below != "none"


@lru_cache(maxsize=1 << 12)
def _of_scope(scope: Scope) -> int:
    if scope.reduce != "sum" and any(i.extent == 0 for i in scope.sums):
        return LOW if scope.reduce == "max" else HIGH
    return infinities(scope.body, scope.ranges)
