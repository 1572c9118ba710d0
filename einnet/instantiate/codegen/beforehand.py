"""Reductions over blocks of neighbours, such as the groups of a normalisation: computed before the nest that reads them, in vectors along memory.

S[m] = Σ[s, k] f(A[k, 4*m + s]) is G[c] = Σ[k] f(A[k, c]) for all c = 4*m + s, and then Σ[s] G[4*m + s]: c runs through memory where neither m nor s
does. What only m tells is spread over c first, so that loops over m and s are one loop in every nest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from einnet.expr.index import ZERO, Index, combine, floor_div, substitute, var
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.blocking.steps import Fill
from einnet.instantiate.codegen.canonicalise import collapsed_sums, divisors, own_index_functions, walks_as_one
from einnet.instantiate.codegen.ir import (
    Expr,
    Function,
    Load,
    Nest,
    Reduce,
    Use,
    children,
    names,
    picks,
    rebuild,
    simplified,
    substitute_expr,
    walk,
)  # fmt: skip
from einnet.instantiate.codegen.schedule import LANES
from einnet.instantiate.kernels import dense_strides

FEW = 64
"""Terms from which on a sum is worth a nest of its own."""

LONGEST = 256
"""Neighbours from which on a sum over digits of one iterator is left alone."""

SHARE = 8
"""What is spread has at most this part of the elements that read it."""


def beforehand(nest: Nest) -> tuple[tuple[Fill, ...], Nest]:
    """The nests that fill arrays which the last one reads, in their order; none where no reduction is over blocks of neighbours."""
    work = _Work(nest)
    result = Function("the result", nest.loops, nest.expr)
    if nest.guards or nest.outer or not (blocks(result) or work.staged_functions(nest.expr)):
        return (), nest
    expr = work.loaded(nest.expr)
    found = blocks(replace(result, expr=expr))
    last = replace(nest, expr=expr if found is None else work.in_two(result.name, expr, nest.loops, *found))
    joined = work.joined(last)
    return tuple(work.fills), joined


@dataclass
class _Work:
    """What was made so far."""

    whole: Nest
    fills: list[Fill] = field(default_factory=list)
    arrays: dict[Function, str] = field(default_factory=dict)
    rebuilt: dict[Function, Function] = field(default_factory=dict)

    def staged_functions(self, e: Expr) -> bool:
        """Some function that is read, or that one reads, has a reduction over blocks of neighbours."""
        uses = [x for x in walk(e) if isinstance(x, Use)]
        return any(blocks(u.function) is not None or self.staged_functions(u.function.expr) for u in uses)

    def loaded(self, e: Expr) -> Expr:
        """The expression with loads from arrays, which are filled, in place of functions that are such reductions."""
        if isinstance(e, Use):
            function = self.function(e.function)
            if function not in self.arrays:
                return replace(e, function=function)
            strides = dense_strides(tuple(i.extent for i in function.loops))
            place = combine(*((ix - i.lo, s) for ix, i, s in zip(e.index, function.loops, strides, strict=True)))
            return Load(self.arrays[function], place, e.guards)
        args = children(e)
        return rebuild(e, tuple(map(self.loaded, args))) if args else e

    def function(self, f: Function) -> Function:
        """The function with what it reads loaded; filled into an array where its reduction is over blocks of neighbours."""
        if f not in self.rebuilt:
            made = Function(f"{f.name}*", f.loops, self.loaded(f.expr))
            found = blocks(made)
            self.rebuilt[f] = made
            if found is not None:
                self.staged(made, *found)
        return self.rebuilt[f]

    def staged(self, f: Function, loop: Iter, near: Iter, reduce: Reduce) -> None:
        """Fill the array of a function whose terms lie side by side along a loop of it and a summation iterator."""
        self.arrays[f] = self.filled(f"all of {f.name}", f.loops, self.in_two(f.name, f.expr, f.loops, loop, near, reduce))

    def in_two(self, name: str, e: Expr, loops: tuple[Iter, ...], loop: Iter, near: Iter, reduce: Reduce) -> Expr:
        """The expression with its reduction over one iterator of what the others give, which fills an array before."""
        far = tuple(i for i in reduce.sums if i != near)
        at = loops.index(loop) + 1
        both = (*loops[:at], near, *loops[at:])
        held = self.filled(f"near {name}", both, Reduce(reduce.op, *collapsed_sums(far, reduce.body)))
        return exchanged(e, Reduce(reduce.op, (near,), Load(held, dense(both))))

    def filled(self, array: str, loops: tuple[Iter, ...], expr: Expr) -> str:
        """Fill an array with the values of an expression over loops from 0."""
        nest = Nest(loops, array, dense(loops), expr, tables=self.whole.tables)
        self.fills.append(Fill(array, prod(i.extent for i in loops), self.joined(nest)))
        return array

    def joined(self, nest: Nest) -> Nest:
        """The nest with loops joined that its longest operands walk as one, what else it reads spread over both."""
        for near in nest.loops:
            for loop in nest.loops:
                if loop is not near and near.extent < LANES <= loop.extent * near.extent and side_by_side(nest, loop, near):
                    spread = _Spread(self, nest, loop, near)
                    expr = spread.over(nest.expr)
                    if expr is not None and spread.worth:
                        self.fills += spread.fills
                        return spread.nest(expr)
        return nest


@dataclass
class _Spread:
    """A nest's loop and a shorter one inside it as one, c = extent*loop + near."""

    work: _Work
    given: Nest
    loop: Iter
    near: Iter
    fills: list[Fill] = field(default_factory=list)
    known: dict[Expr, Load] = field(default_factory=dict)
    worth: bool = False
    """Something runs along both."""

    @property
    def both(self) -> Iter:
        return Iter(f"{self.loop.name}.{self.near.name}", 0, self.loop.extent * self.near.extent)

    def nest(self, expr: Expr) -> Nest:
        """The nest with the joint loop."""
        loops = tuple(self.both if i == self.near else i for i in self.given.loops if i != self.loop)
        address = substitute(self.given.address, self.as_one)
        return replace(self.given, loops=loops, address=address, expr=simplified(expr, {i.name: i.range for i in loops}))

    @property
    def as_one(self) -> dict[str, Index]:
        return {self.loop.name: ZERO, self.near.name: var(self.both.name)}

    def over(self, e: Expr) -> Expr | None:
        """The expression over the joint loop; None where something of it runs along one of them in another way."""
        own = names(e)
        if own.isdisjoint({self.loop.name, self.near.name}):
            return e
        if self.near.name not in own:
            return self.spread(e)
        args = children(e)
        if not args and all(walks_as_one(x, self.loop, self.near) for x in own_index_functions(e)):
            self.worth = self.worth or isinstance(e, Load)
            return substitute_expr(e, self.as_one)
        if not args or own_names_of(e, (self.loop, self.near)):
            return None
        found = [self.over(a) for a in args]
        return None if None in found else rebuild(e, tuple(a for a in found if a is not None))

    def spread(self, e: Expr) -> Expr | None:
        """What the outer loop tells alone, as an array over both; None where that is as large as what reads it."""
        if e in self.known:
            return self.known[e]
        used = tuple(i for i in self.given.loops if i.name in names(e) and i != self.loop)
        if names(e) - {i.name for i in self.given.loops}:
            return None
        both = Iter(f"{self.both.name}.s", 0, self.both.extent)
        loops = (*used, both)
        terms = prod(i.extent for i in (*self.given.loops, *(s for r in walk(self.given.expr) if isinstance(r, Reduce) for s in r.sums)))
        if SHARE * prod(i.extent for i in loops) > terms:
            return None
        array = f"spread {len(self.work.fills) + len(self.fills)} of {self.given.array}"
        value = substitute_expr(e, {self.loop.name: floor_div(var(both.name), self.near.extent)})
        nest = Nest(loops, array, dense(loops), simplified(value, {i.name: i.range for i in loops}), tables=self.given.tables)
        self.fills.append(Fill(array, prod(i.extent for i in loops), nest))
        self.known[e] = Load(array, substitute(dense(loops), {both.name: var(self.both.name)}))
        return self.known[e]


def own_names_of(e: Expr, iters: tuple[Iter, ...]) -> bool:
    """The node itself, and not only its operands, depends on one of the iterators."""
    return any(i.name in x.names() for x in own_index_functions(e) for i in iters)


def blocks(f: Function) -> tuple[Iter, Iter, Reduce] | None:
    """A loop of the function, a summation iterator whose terms lie side by side along both, and the reduction, its iterators being digits."""
    reductions = [r for r in walk(f.expr) if isinstance(r, Reduce) and not picks(r)]
    if len(reductions) != 1 or any(i.lo for i in (*f.loops, *reductions[0].sums)):
        return None
    reduce = digits(reductions[0], f.loops)
    short = LANES if reduce == reductions[0] else LONGEST
    pairs = ((loop, near) for near in reduce.sums if near.extent < short for loop in f.loops)
    return next(((loop, near, reduce) for loop, near in pairs if apart(reduce, loop, near)), None)


def apart(reduce: Reduce, loop: Iter, near: Iter) -> bool:
    """Elements of one array lie side by side along two iterators, and enough far away from each other are summed; of other arrays nothing moves
    there: a product shares its operands in other ways."""
    far = [i for i in reduce.sums if i != near]
    leaves = [x for x in walk(reduce.body) if isinstance(x, (Load, Use))]
    moving = [x for x in leaves if any(i.name in names(x) for i in far)]
    enough = loop.extent * near.extent >= LANES and prod(i.extent for i in far) >= FEW
    fitting = all(adjacent(x, loop, near) for x in moving) and len({x.array for x in moving if isinstance(x, Load)}) == 1
    return enough and fitting and all(near.name not in names(x) or adjacent(x, loop, near) for x in leaves)


def adjacent(x: Expr, loop: Iter, near: Iter) -> bool:
    """A load whose elements lie side by side along two iterators."""
    return isinstance(x, Load) and x.address.coefficient(near.name) == 1 and walks_as_one(x.address, loop, near)


def side_by_side(nest: Nest, loop: Iter, near: Iter) -> bool:
    """What the nest writes, and some operand, lies side by side along two of its loops."""
    written = walks_as_one(nest.address, loop, near) and nest.address.coefficient(near.name) == 1
    return written and any(adjacent(x, loop, near) for x in walk(nest.expr))


def digits(r: Reduce, loops: tuple[Iter, ...]) -> Reduce:
    """The reduction over digits of its iterators, none of which stands in a floor division that a digit avoids."""
    for i in r.sums:
        found = [m for x in walk(r.body) for e in own_index_functions(x) for m in divisors(e, i.name) if m < i.extent and i.extent % m == 0]
        if found and i.lo == 0:
            m = min(found)
            high, low = Iter(f"{i.name}.h", 0, i.extent // m), Iter(f"{i.name}.d", 0, m)
            sums = tuple(j for k in r.sums for j in ((high, low) if k == i else (k,)))
            ranges = {j.name: j.range for j in (*loops, *sums)}
            body = substitute_expr(r.body, {i.name: combine((var(high.name), m), (var(low.name), 1))})
            return digits(Reduce(r.op, sums, simplified(body, ranges)), loops)
    return r


def dense(loops: tuple[Iter, ...]) -> Index:
    """The address of an element in an array of these loops."""
    return combine(*((var(i.name), s) for i, s in zip(loops, dense_strides(tuple(i.extent for i in loops)), strict=True)))


def exchanged(e: Expr, new: Reduce) -> Expr:
    """The expression with another reduction in place of its one."""
    if isinstance(e, Reduce) and not picks(e):
        return new
    args = children(e)
    return rebuild(e, tuple(exchanged(a, new) for a in args)) if args else e
