"""fold: arithmetic identities on constants, and iterators of extent 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from einnet.derivation.facts import rounds
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Range, as_index, simplify
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Mul,
    Read,
    Scope,
    Select,
    Val,
    bodies_in,
    children,
    make_add,
    make_mul,
    map_indices,
    map_reads,
    number_read,
    rebuilt,
    substitute_body,
    touches,
    used_names,
)  # fmt: skip
from einnet.expr.normal.totals import partial


@rule("fold", order=240, guard="exact arithmetic on constants; extent-1 sums; iterators that the body does not use", roles=("forced",))
def fold(e: Scope) -> Iterator[Outcome]:
    """0*f = 0 for a number f, 1*f = f, f+0 = f, A[i] = 0 for i outside A, {L[x] c}[i] = c, Σ[y<1] f(y) = f(0), f(f) = f for idempotent f, f+f = 2f"""
    result = folded(e)
    yield Refused("nothing to fold") if result == e else Rewrite(result, "all", fold_kind(e))


def fold_kind(e: Scope) -> str:
    """Exact where only neutral elements go: not where constants are combined, + or × regrouped, or equal terms of a sum counted, nor where a number
    that is not 0 is read outside of a box: a reader of more of that box adds it, or multiplies by it, as it does with all others."""
    ranges = e.ranges
    used = used_names(map_indices(e.body, lambda ix: simplify(ix, ranges)))
    counted = e.reduce == "sum" and any(i.extent > 1 and i.name not in used for i in e.sums)
    repeated = any(isinstance(b, Add) and repeats(b.args) for b in bodies_in(e.body))
    combined = (a for b in bodies_in(e.body) if isinstance(b, (Add, Mul)) for a in b.args)
    beyond = any(isinstance(a, Read) and a.fill != 0 and not touches(a, ranges) for a in combined)
    return "reassociation" if counted or repeated or beyond or rounds(e.body) else "exact"


@lru_cache(maxsize=1 << 14)
def folded(e: Scope) -> Scope:
    """All identities applied to the scope itself (not to those it reads)."""
    units = {i.name: as_index(i.lo) for i in e.sums if i.extent == 1}
    body = substitute_body(e.body, units) if units else e.body
    ranges = e.ranges
    body = map_indices(body, lambda ix: simplify(ix, ranges))
    body = simplify_body(map_reads(body, lambda r: number_of(r, ranges)))
    sums = tuple(i for i in e.sums if i.name not in units)
    if e.reduce == "sum":
        used = used_names(body)
        count = 1
        for i in sums:
            if i.name not in used:
                count *= i.extent
        sums = tuple(i for i in sums if i.name in used)
        body = body if count == 1 else simplify_body(make_mul((Const(Fraction(count)), body)))
    elif e.reduce in ("max", "min"):
        used = used_names(body)
        sums = tuple(i for i in sums if i.name in used)
    reduce = e.reduce if sums else "sum"
    return e if (sums, body, reduce) == (e.sums, e.body, e.reduce) else replace(e, sums=sums, body=body, reduce=reduce)


def number_of(r: Read, ranges: Mapping[str, Range]) -> Body:
    """The read, or the number that it is: of what is outside of a box, or of a scope that is one number."""
    if not touches(r, ranges):
        return Const(r.fill)
    return number_read(r, ranges) or r


def simplify_body(body: Body) -> Body:
    """Constants and neutral elements, bottom up."""
    body = rebuilt(body, tuple(simplify_body(a) for a in children(body)))
    match body:
        case Val(index) if index.is_const and index.den == 1:
            return Const(Fraction(index.const))
        case Add(args):
            return body if _is_plain(args, Add) else _sum(args)
        case Mul(args):
            return body if _is_plain(args, Mul) else _product(args)
        case Div(num, Const(v)) if v == 1:
            return num
        case Call(name, (Call(inner, _) as arg,)) if name == inner and name in ("relu", "abs", "floor", "ceil", "round", "sign"):
            return arg
        case Call("relu", (Const(v),)):
            return Const(max(v, Fraction(0)))
        case Select(conds, then, other):
            return _select(body, conds, then, other)
    return body


def _select(body: Select, conds: tuple[Cond, ...], then: Body, other: Body) -> Body:
    if then == other:
        return then
    known = [c for c in conds if c.index.is_const and c.index.den == 1]
    if any((c.index.const != 0) if c.equal else (c.index.const < 0) for c in known):
        return other
    rest = tuple(c for c in conds if c not in known)
    return then if not rest else Select(rest, then, other) if len(rest) < len(conds) else body


def _is_plain(args: tuple[Body, ...], flat: type[Add] | type[Mul]) -> bool:
    """There is nothing to flatten and no number to fold."""
    return len(args) > 1 and not any(isinstance(a, (flat, Const)) for a in args) and not (flat is Add and repeats(args))


def repeats(terms: Sequence[Body]) -> bool:
    """Some of the terms are the same."""
    return len(set(terms)) < len(terms)


def _sum(args: tuple[Body, ...]) -> Body:
    flat = make_add(args)
    args = flat.args if isinstance(flat, Add) else (flat,)
    constants = [a.value for a in args if isinstance(a, Const) and not isinstance(a.value, float)]
    counts = Counter(a for a in args if not (isinstance(a, Const) and not isinstance(a.value, float)))
    rest = [a if n == 1 else _product((Const(Fraction(n)), a)) for a, n in counts.items()]
    total = sum(constants, Fraction(0))
    return make_add((*rest, Const(total))) if total or not rest else make_add(rest)


def _product(args: tuple[Body, ...]) -> Body:
    flat = make_mul(args)
    args = flat.args if isinstance(flat, Mul) else (flat,)
    constants = [a.value for a in args if isinstance(a, Const) and not isinstance(a.value, float)]
    rest = [a for a in args if not (isinstance(a, Const) and not isinstance(a.value, float))]
    total = Fraction(1)
    for v in constants:
        total *= v
    if total == 0:  # 0 times what need not be a number is no number where that is none
        return make_mul((Const(total), *partial(rest)))
    return make_mul((Const(total), *rest)) if total != 1 or not rest else make_mul(rest)
