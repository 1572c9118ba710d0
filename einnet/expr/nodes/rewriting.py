"""Expressions made and rewritten: bodies walked and exchanged, iterators renamed, sums and products built flat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from einnet.expr.index import Index, Range, as_index, bounds, in_range, substitute, var
from einnet.expr.nodes.language import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Iter,
    Mul,
    Number,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    children,
    used_names,
)
from einnet.expr.remember import remember


def rebuild(body: Body, args: tuple[Body, ...]) -> Body:
    """The same node over other operands; a quotient of numbers is a number."""
    match body:
        case Add():
            return Add(args)
        case Mul():
            return Mul(args)
        case Call(name, _):
            return Call(name, args)
        case Div():
            return make_div(*args)
        case Select(conds, _, _):
            return Select(conds, *args)
        case _:
            return body


def rebuilt(body: Body, args: tuple[Body, ...]) -> Body:
    """The node over these operands: itself where they are its own, but for a quotient, which is made to be computed where it is one of numbers."""
    changed = isinstance(body, Div) or any(a is not b for a, b in zip(children(body), args))
    return rebuild(body, args) if changed else body


def named_as(body: Body, like: Body) -> Body:
    """The body, of which is known that it uses the iterators of another one."""
    names = like._names
    if names is not None:
        remember(body, "_names", names)
    return body


OF_ITERATORS = ("box", "shape", "ranges")


def with_body(scope: Scope, body: Body) -> Scope:
    """The scope with another body: what is known of its iterators holds for both."""
    made = Scope(scope.loops, scope.sums, body, scope.reduce)
    known, new = scope.__dict__, made.__dict__
    for name in OF_ITERATORS:
        if name in known:
            new[name] = known[name]
    return made


def map_leaves(body: Body, f: Callable[[Body], Body]) -> Body:
    """Apply f to every leaf (Const, Val, Read), keep the shape of the rest; unchanged parts are shared."""
    args = children(body)
    if not args:
        return f(body)
    new = tuple([map_leaves(a, f) for a in args])
    return body if all(a is b for a, b in zip(args, new)) else rebuild(body, new)


def map_reads(body: Body, f: Callable[[Read], Body]) -> Body:
    """Replace every read."""
    return map_leaves(body, lambda leaf: f(leaf) if isinstance(leaf, Read) else leaf)


Exchange = Mapping[str, Tensor | Scope]
"""What stands in for a tensor, by its name."""


def exchange_in(scope: Scope, exchange: Exchange) -> Scope:
    """The scope with other tensors (or scopes) in place of those named, in nested scopes too."""
    done: dict[Scope, Scope] = {}

    def exchanged(s: Scope) -> Scope:
        if s not in done:
            body = map_reads(s.body, swap)
            done[s] = s if body is s.body else replace(s, body=body)
        return done[s]

    def swap(r: Read) -> Body:
        base = exchanged(r.base) if isinstance(r.base, Scope) else exchange.get(r.base.name, r.base)
        return r if base is r.base else Read(base, r.index, r.fill)

    return exchanged(scope)


def inside(read: Read, ranges: Mapping[str, Range]) -> bool:
    """The read never leaves the box (interval reasoning; False means "not proven")."""
    return all(in_range(e, box, ranges) for e, box in zip(read.index, read.base.box, strict=True))


def touches(read: Read, ranges: Mapping[str, Range]) -> bool:
    """The read may fall inside its box (interval reasoning; False is proven)."""
    for e, (lo, hi) in zip(read.index, read.base.box, strict=True):
        low, high = bounds(e, ranges)
        if high < lo or hi <= low:
            return False
    return True


def number_read(read: Read, ranges: Mapping[str, Range]) -> Const | None:
    """The number that a read is, of a scope that is one number, where it never leaves the box or what is beyond is the same; None else."""
    body = read.base.body if isinstance(read.base, Scope) and not read.base.sums else None
    return body if isinstance(body, Const) and (body.value == read.fill or inside(read, ranges)) else None


def map_indices(body: Body, f: Callable[[Index], Index]) -> Body:
    """Apply f to every index function: of reads, values and conditions (not inside nested scopes, which are closed)."""
    if isinstance(body, Read):
        new = tuple([f(i) for i in body.index])
        return body if new == body.index else Read(body.base, new, body.fill)
    match body:
        case Val(value):
            own = f(value)
            return body if own == value else Val(own)
        case Select(conds, then, other):
            asked = tuple(Cond(f(c.index), c.equal) for c in conds)
            parts = map_indices(then, f), map_indices(other, f)
            return body if asked == conds and parts[0] is then and parts[1] is other else Select(asked, *parts)
        case Const():
            return body
    args = children(body)
    new_args = tuple([map_indices(a, f) for a in args])
    return body if all(a is b for a, b in zip(args, new_args)) else rebuild(body, new_args)


def substitute_body(body: Body, mapping: Mapping[str, Index]) -> Body:
    """Replace iterators by index functions."""
    if mapping.keys().isdisjoint(used_names(body)):
        return body
    return map_indices(body, lambda e: substitute(e, mapping))


def bodies_in(body: Body) -> Iterator[Body]:
    """The body and all bodies within it, not entering nested scopes."""
    yield body
    for inner in children(body):
        yield from bodies_in(inner)


def functions_in(body: Body) -> frozenset[str]:
    """The names of the functions in the body, not entering nested scopes."""
    own = frozenset((body.name,)) if isinstance(body, Call) else frozenset[str]()
    return own.union(*map(functions_in, children(body)))


def index_functions(body: Body) -> Iterator[Index]:
    """All index functions of the body, not entering nested scopes."""
    match body:
        case Read(_, index, _):
            yield from index
        case Val(index):
            yield index
        case Select(conds, _, _):
            for c in conds:
                yield c.index
    for a in children(body):
        yield from index_functions(a)


def tensors(scope: Scope) -> dict[str, Tensor]:
    """All named tensors read by the scope and by the scopes inside it, by first occurrence.

    Raises ValueError if one name stands for two different tensors.
    """
    return {t.name: t for t in scope.read}


def nested(scope: Scope) -> tuple[Scope, ...]:
    """The scopes read directly by this one, in order, repeated if read twice."""
    return scope.nested


def walk(scope: Scope) -> tuple[Scope, ...]:
    """The scope and all scopes inside it, each once, outermost first."""
    return scope.parts


def walk_repeated(scope: Scope) -> Iterator[Scope]:
    """The same, as often as they are read where the expression is written out, which may be very often."""
    yield scope
    for inner in scope.nested:
        yield from walk_repeated(inner)


def fresh(name: str, used: Iterable[str]) -> str:
    """`name`, or `name'`, `name''`... not among the used ones."""
    taken = used if isinstance(used, (set, frozenset, dict)) else set(used)
    while name in taken:
        name += "'"
    return name


def rename_apart(scope: Scope, used: Iterable[str]) -> Scope:
    """The same scope with loops and sums named differently from `used`."""
    taken = set(used)
    mapping: dict[str, Index] = {}
    renamed: dict[str, str] = {}
    own = {i.name for i in (*scope.loops, *scope.sums)}
    for i in (*scope.loops, *scope.sums):
        if i.name in taken:
            new = fresh(i.name, taken | own)
            own.add(new)
            mapping[i.name], renamed[i.name] = var(new), new
    if not mapping:
        return scope
    return replace(
        scope,
        loops=tuple(Iter(renamed.get(i.name, i.name), i.lo, i.hi) for i in scope.loops),
        sums=tuple(Iter(renamed.get(i.name, i.name), i.lo, i.hi) for i in scope.sums),
        body=substitute_body(scope.body, mapping),
    )


def make_add(args: Iterable[Body]) -> Body:
    """Flat sum; constants are not folded."""
    parts = [b for a in args for b in (a.args if isinstance(a, Add) else (a,))]
    return parts[0] if len(parts) == 1 else Add(tuple(parts)) if parts else Const(Fraction(0))


def make_mul(args: Iterable[Body]) -> Body:
    """Flat product; constants are not folded."""
    parts = [b for a in args for b in (a.args if isinstance(a, Mul) else (a,))]
    return parts[0] if len(parts) == 1 else Mul(tuple(parts)) if parts else Const(Fraction(1))


def flat(body: Body) -> Body:
    """The body as it is when its text is read: no sum within a sum, no product within a product."""
    args = tuple(map(flat, children(body)))
    return make_add(args) if isinstance(body, Add) else make_mul(args) if isinstance(body, Mul) else rebuilt(body, args)


def make_div(num: Body, den: Body) -> Body:
    """A quotient. That of two numbers is a number, as it is when its text is read; not where one is infinite or the divisor is 0."""
    if isinstance(num, Const) and isinstance(den, Const) and isinstance(num.value, Fraction) and isinstance(den.value, Fraction) and den.value:
        return Const(num.value / den.value)
    return Div(num, den)


def negate(body: Body) -> Body:
    """-body."""
    return Const(-body.value) if isinstance(body, Const) else make_mul((Const(Fraction(-1)), body))


def indices(iters: Iterable[Iter]) -> tuple[Index, ...]:
    """The identity index function of some iterators."""
    return tuple(var(i.name) for i in iters)


def read(base: Tensor | Scope, *index: Index | int | str, fill: Number = Fraction(0)) -> Read:
    """Convenience: read(A, "h", var("w") + 1)."""
    return Read(base, tuple(as_index(i) for i in index), fill)
