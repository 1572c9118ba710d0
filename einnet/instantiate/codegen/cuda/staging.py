"""A nest as several kernels of a device without a fast way to share values between threads: nested scopes that many threads need are stored.

A value that is used about once is computed where it is used; one that is used often becomes an array, written by a kernel of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from einnet.expr.index import Index, combine, var
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.ir import Expr, Function, Load, Nest, Reduce, Use, children, rebuild, simplified, substitute_expr

REPEATED = 2
"""A nested scope is stored where it would be computed at least so many times for each of its elements."""


@dataclass(frozen=True)
class Staged:
    """Nests in the order in which they run, the output's last, and the elements of the arrays between them."""

    nests: tuple[Nest, ...]
    sizes: dict[str, int]


def staged(nest: Nest) -> Staged:
    """The nest with every nested scope that is needed often computed before it."""
    order = list(dict.fromkeys(functions(nest.expr)))[::-1]
    evaluations: Counter[str] = Counter()
    count(nest.expr, prod(i.extent for i in nest.loops), evaluations)
    stored: dict[Function, str] = {}
    for f in sorted(order, key=lambda f: -depth(f)):
        elements = prod(i.extent for i in f.loops)
        if evaluations[f.name] >= REPEATED * elements:
            stored[f] = f"(stage {f.name})"
        count(f.expr, elements if f in stored else evaluations[f.name], evaluations)
    made = [stage(f, name, stored, nest) for f, name in sorted(stored.items(), key=lambda item: depth(item[0]))]
    return Staged((*made, replace(nest, expr=with_stored(nest.expr, stored))), {name: prod(i.extent for i in f.loops) for f, name in stored.items()})


def functions(e: Expr) -> Iterator[Function]:
    """Every function that is used, those used by functions included."""
    if isinstance(e, Use):
        yield from functions(e.function.expr)
        yield e.function
    for a in children(e):
        yield from functions(a)


def depth(f: Function) -> int:
    """How deep functions are nested in it: a function is less deep than all that use it."""
    return 1 + max((depth(g) for g in set(functions(f.expr))), default=0)


def count(e: Expr, times: int, evaluations: Counter[str]) -> None:
    """Add how often each function is needed by an expression that is computed so many times; a value that it names twice is computed once."""
    for node in dict.fromkeys(at_once(e)):
        if isinstance(node, Use):
            evaluations[node.function.name] += times
        elif isinstance(node, Reduce):
            count(node.body, times * prod(i.extent for i in node.sums), evaluations)


def at_once(e: Expr) -> Iterator[Expr]:
    """The expression and what is computed with it, not entering functions and reductions."""
    yield e
    for a in children(e) if not isinstance(e, Reduce) else ():
        yield from at_once(a)


def stage(f: Function, name: str, stored: dict[Function, str], nest: Nest) -> Nest:
    """The nest that stores a function's values, row-major over its loops."""
    loops = tuple(Iter(i.name, 0, i.extent) for i in f.loops)
    ranges = {i.name: i.range for i in loops}
    expr = substitute_expr(with_stored(f.expr, stored), {i.name: var(i.name) + i.lo for i in f.loops})
    return Nest(loops, name, place(loops, tuple(var(i.name) for i in loops)), simplified(expr, ranges), tables=nest.tables)


def place(loops: tuple[Iter, ...], index: tuple[Index, ...]) -> Index:
    """The row-major address of an index in the box of the loops."""
    strides = [prod(j.extent for j in loops[n + 1 :]) for n in range(len(loops))]
    return combine(*((e - i.lo, s) for e, i, s in zip(index, loops, strides, strict=True)), (Index((), 0), 1))


def with_stored(e: Expr, stored: dict[Function, str]) -> Expr:
    """Uses of stored functions as loads."""
    if isinstance(e, Use) and e.function in stored:
        return Load(stored[e.function], place(e.function.loops, e.index), e.guards)
    if isinstance(e, Use):
        own = e.function
        return replace(e, function=replace(own, expr=with_stored(own.expr, stored)))
    args = children(e)
    return rebuild(e, tuple(with_stored(a, stored) for a in args)) if args else e
