"""Small changes of a scope, of the kinds that a wrong rule would make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from einnet.derivation.steps import replace_at, subscope
from einnet.expr.index import Index
from einnet.expr.nodes import Add, Body, Iter, Mul, Read, Scope, children, make_add, make_mul, nested, reads, rebuild

Change = tuple[str, Scope]


def mutants(scope: Scope) -> Iterator[Change]:
    """Changes of the scope and of those inside it; the box of the outermost stays."""
    for path in paths(scope):
        for kind, changed in (*bodies(subscope(scope, path)), *bounds(subscope(scope, path), loops=bool(path))):
            yield kind, replace_at(scope, path, changed)


def paths(scope: Scope) -> Iterator[tuple[int, ...]]:
    yield ()
    for n, s in enumerate(nested(scope)):
        yield from ((n, *p) for p in paths(s))


def bounds(scope: Scope, loops: bool) -> Iterator[Change]:
    """A range one shorter at its end or its beginning, a sum's one longer, and two equal dimensions in the other order."""
    for n, i in enumerate(scope.sums):
        for kind, new in (*shorter(i), *longer(i)):
            yield f"sum {kind}", replace(scope, sums=(*scope.sums[:n], new, *scope.sums[n + 1 :]))
    if loops:
        for n, i in enumerate(scope.loops):
            for kind, new in shorter(i):
                yield f"loop {kind}", replace(scope, loops=(*scope.loops[:n], new, *scope.loops[n + 1 :]))
        for n, (a, b) in enumerate(zip(scope.loops, scope.loops[1:])):
            if a.range == b.range:
                yield "order of equal loops", replace(scope, loops=(*scope.loops[:n], b, a, *scope.loops[n + 2 :]))


def shorter(i: Iter) -> Iterator[tuple[str, Iter]]:
    if i.extent > 1:
        yield "ends early", Iter(i.name, i.lo, i.hi - 1)
        yield "begins late", Iter(i.name, i.lo + 1, i.hi)


def longer(i: Iter) -> Iterator[tuple[str, Iter]]:
    yield "ends late", Iter(i.name, i.lo, i.hi + 1)
    yield "begins early", Iter(i.name, i.lo - 1, i.hi)


def bodies(scope: Scope) -> Iterator[Change]:
    """Index constants and coefficients, swapped dimensions, fills, a factor or a term less."""
    for n, r in enumerate(reads(scope.body)):
        for d, e in enumerate(r.index):
            yield "index constant", at_read(scope, n, replace_index(r, d, e + 1))
            if e.terms:
                atom, c = e.terms[0]
                yield "coefficient", at_read(scope, n, replace_index(r, d, e + Index(((atom, c),))))
            if e.den > 1:
                yield "exact division to floor", at_read(scope, n, replace_index(r, d, Index(e.terms, e.const) // e.den))
        for d in range(len(r.index) - 1):
            if r.base.box[d] == r.base.box[d + 1] and r.index[d] != r.index[d + 1]:
                swapped = (*r.index[:d], r.index[d + 1], r.index[d], *r.index[d + 2 :])
                yield "equal dimensions swapped", at_read(scope, n, Read(r.base, swapped, r.fill))
        yield "fill", at_read(scope, n, Read(r.base, r.index, Fraction(1)))
    for kind, body in fewer(scope.body):
        yield kind, replace(scope, body=body)


def replace_index(r: Read, d: int, e: Index) -> Read:
    return Read(r.base, (*r.index[:d], e, *r.index[d + 1 :]), r.fill)


def at_read(scope: Scope, number: int, new: Read) -> Scope:
    """The scope with its read of that number replaced, counting from the left."""
    count = iter(range(1 << 30))

    def visit(body: Body) -> Body:
        if isinstance(body, Read):
            return new if next(count) == number else body
        return mapped(body, visit)

    return replace(scope, body=visit(scope.body))


def mapped(body: Body, f: Callable[[Body], Body]) -> Body:
    args = children(body)
    return rebuild(body, tuple(f(a) for a in args)) if args else body


def fewer(body: Body) -> Iterator[tuple[str, Body]]:
    if isinstance(body, (Add, Mul)):
        for n in range(len(body.args)):
            rest = (*body.args[:n], *body.args[n + 1 :])
            yield ("term dropped", make_add(rest)) if isinstance(body, Add) else ("factor dropped", make_mul(rest))
