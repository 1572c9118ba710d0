"""Nests that sum exponentials of scores under the scores' maximum, as attention does: what is summed can be told from its index functions alone.

With m(i) = max[n] f(i,n) such a nest is an expression around Σ[n] exp(f(i,n)-m(i))*g(n,d), and around Σ[n] exp(f(i,n)-m(i)), where f is made of one
sum of products Σ[c] a(i,c)*b(n,c). By the rule *rescale* the sums can be walked in tiles of n, each under the maximum of what was walked so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf, prod

from einnet.expr.index import var
from einnet.expr.nodes import Iter
from einnet.instantiate.codegen.cuda.reduction_nest import self_contained
from einnet.instantiate.codegen.ir import (
    Apply,
    Choose,
    Expr,
    Known,
    Lit,
    Nest,
    Reduce,
    Use,
    children,
    fold,
    names,
    rebuild,
    substitute_expr,
    walk,
    weights,
)  # fmt: skip

SCORE, GREATEST, TOTAL, MEAN = (Known(f"({what})", frozenset()) for what in ("product", "maximum", "sum of weights", "weighted sum"))
"""What stands for Σ[c] a*b in a score, and for the maximum, the sum of exponentials and that of their products with g around them."""


@dataclass(frozen=True)
class Rescaled:
    """The nest's expression is `rest` around the sums over `over` of exp(score), of which `score` is the expression around Σ[inner] rows*keys.

    `values` is g. Loops that only `rows` and the score walk are `queries`, those that only g walks `columns`, all others `outer`.
    """

    nest: Nest
    over: Iter
    inner: tuple[Iter, ...]
    rows: Expr
    keys: Expr
    score: Expr
    values: Expr
    rest: Expr
    outer: tuple[Iter, ...]
    queries: tuple[Iter, ...]
    columns: tuple[Iter, ...]

    @property
    def terms(self) -> int:
        """Of the inner sum."""
        return prod(i.extent for i in self.inner)

    @property
    def height(self) -> int:
        """Rows of scores that read the same keys."""
        return prod(i.extent for i in self.queries)

    @property
    def width(self) -> int:
        """Sums of each row."""
        return prod(i.extent for i in self.columns)

    @property
    def batches(self) -> int:
        return prod(i.extent for i in self.outer)


def rescaled(nest: Nest) -> Rescaled | None:
    """The parts of a normalised nest of that form; None for one of another."""
    if nest.outer or any(i.extent <= 0 for i in nest.loops) or not has_maximum(nest.expr):
        return None
    nest = self_contained(nest)
    sums = _Sums(nest.tables)
    rest = sums.around(numbered(nest.expr)[0])
    if rest is None or sums.over is None or sums.score is None or sums.values is None:
        return None
    return _sorted(nest, sums.over, sums.score, sums.values, rest)


def has_maximum(e: Expr) -> bool:
    """A maximum is taken somewhere in the expression, or in a function that it uses."""
    inside = (e.function.expr,) if isinstance(e, Use) else children(e)
    return isinstance(e, Reduce) and e.op == "max" or any(map(has_maximum, inside))


@dataclass
class _Sums:
    """Takes the sums of an expression over the same exponentials out of it; all of them have the same scores, over the same iterator."""

    tables: frozenset[str]
    over: Iter | None = None
    score: Expr | None = None
    values: Expr | None = field(default=None)

    def around(self, e: Expr) -> Expr | None:
        """The expression with what stands for the sums in their places; None if there is another reduction."""
        if isinstance(e, Reduce):
            return self.greatest(e) if e.op == "max" else self.weighted(e)
        args = [self.around(a) for a in children(e)]
        known = [a for a in args if a is not None]
        return None if len(known) < len(args) else rebuild(e, tuple(known)) if args else e

    def weighted(self, e: Reduce) -> Expr | None:
        """A sum of products with an exponential: what does not move with the iterator is taken out."""
        if e.op != "sum" or len(e.sums) != 1 or weights(e, self.tables):
            return None
        (n,) = e.sums
        above, below = quotient(e.body)
        moving, still = ([a for a in above if (n.name in names(a)) == moves] for moves in (True, False))
        raised = next((a for a in moving if self.is_raised(a, n)), None)
        if raised is None or any(n.name in names(b) for b in below):
            return None
        moving.remove(raised)
        if moving and not self.is_value(fold("mul", tuple(moving)), n):
            return None
        result = fold("mul", (MEAN if moving else TOTAL, *still))
        return self.around(Apply("div", (result, fold("mul", tuple(below)))) if below else result)

    def is_value(self, e: Expr, n: Iter) -> bool:
        """What the exponentials weight is the same in all sums."""
        assert self.over is not None
        own = substitute_expr(e, {n.name: var(self.over.name)})
        self.values = self.values or own
        return own == self.values

    def is_raised(self, e: Expr, n: Iter) -> bool:
        """The exponential of a score less the greatest of all scores of its row."""
        less = e.args[0] if isinstance(e, Apply) and e.op == "exp" else e
        terms = less.args if isinstance(less, Apply) and less.op == "add" and less is not e else ()
        for place, t in enumerate(terms):
            top = subtracted(t)
            if top is not None and len(top.sums) == 1 and top.op == "max" and top.sums[0].range == n.range:
                score = fold("add", (*terms[:place], *terms[place + 1 :]))
                return substitute_expr(top.body, {top.sums[0].name: var(n.name)}) == score and self.is_known(score, n)
        return False

    def is_known(self, score: Expr, n: Iter) -> bool:
        """The scores are those that were seen before, if any were."""
        self.over = self.over or n
        own = substitute_expr(score, {n.name: var(self.over.name)})
        self.score = self.score or own
        return n.range == self.over.range and own == self.score

    def greatest(self, e: Reduce) -> Expr | None:
        """The maximum of the scores where it stands by itself; the exponentials come before it in no expression that is matched."""
        return GREATEST if len(e.sums) == 1 and self.score is not None and self.is_known(e.body, e.sums[0]) else None


def numbered(e: Expr) -> tuple[Expr, int]:
    """The expression with its reductions over iterators that are named by how many reductions stand in each other, and that number: reductions
    that differ in the names of their iterators become equal."""
    found = [numbered(a) for a in children(e)]
    height = max((h for _, h in found), default=0)
    e = rebuild(e, tuple(a for a, _ in found)) if found else e
    if not isinstance(e, Reduce):
        return e, height
    fresh = {i.name: f"{height} {n}" for n, i in enumerate(e.sums)}
    sums = tuple(Iter(fresh[i.name], i.lo, i.hi) for i in e.sums)
    return Reduce(e.op, sums, substitute_expr(e.body, {n: var(own) for n, own in fresh.items()})), height + 1


def subtracted(e: Expr) -> Reduce | None:
    """The maximum of which an expression is the negative."""
    if isinstance(e, Apply) and e.op == "mul" and len(e.args) == 2 and Lit(-1.0) in e.args:
        (other,) = (a for a in e.args if a != Lit(-1.0))
        return other if isinstance(other, Reduce) else None
    return None


def quotient(e: Expr) -> tuple[list[Expr], list[Expr]]:
    """Factors of an expression, and those that it is divided by."""
    if isinstance(e, Apply) and e.op == "mul":
        parts = [quotient(a) for a in e.args]
        return [a for above, _ in parts for a in above], [b for _, below in parts for b in below]
    if isinstance(e, Apply) and e.op == "div":
        (above, below), other = quotient(e.args[0]), e.args[1]
        return above, [*below, other]
    return [e], []


def _sorted(nest: Nest, over: Iter, score: Expr, values: Expr, rest: Expr) -> Rescaled | None:
    """The form with its loops told apart by who walks them; None where there is not one inner sum of what moves with either side."""
    products = list(dict.fromkeys(e for e in walk(score) if isinstance(e, Reduce)))
    if len(products) != 1 or products[0].op != "sum" or weights(products[0], nest.tables):
        return None
    (product,) = products
    factors = product.body.args if isinstance(product.body, Apply) and product.body.op == "mul" else (product.body,)
    rows, keys = ([f for f in factors if (over.name in names(f)) == moves] for moves in (False, True))
    if not keys or not rows or any(isinstance(e, Reduce) for f in (*factors, values) for e in walk(f)):
        return None
    around = _with(score, product)
    outer, queries, columns = _shared(nest, _names(keys), _names([values]), _names((*rows, around)))
    return Rescaled(nest, over, product.sums, fold("mul", tuple(rows)), fold("mul", tuple(keys)), around, values, rest, outer, queries, columns)


def _shared(nest: Nest, keys: frozenset[str], values: frozenset[str], rows: frozenset[str]) -> tuple[tuple[Iter, ...], ...]:
    """Loops that keys walk, or values and scores; of the others those that scores walk; and what is left."""
    outer = tuple(i for i in nest.loops if i.name in keys or i.name in values & rows)
    queries = tuple(i for i in nest.loops if i.name in rows and i not in outer)
    return outer, queries, tuple(i for i in nest.loops if i not in outer and i not in queries)


def _names(parts: Iterable[Expr]) -> frozenset[str]:
    return frozenset(n for e in parts for n in names(e))


def _with(e: Expr, product: Reduce) -> Expr:
    """The score with what stands for the inner sum in its place."""
    if e == product:
        return SCORE
    args = children(e)
    return rebuild(e, tuple(_with(a, product) for a in args)) if args else e


def hiding(e: Expr) -> Iterator[Choose]:
    """Choices of the score that give -∞ where their conditions fail, whatever else is done with it: a score is -∞ where one does."""
    match e:
        case Choose(_, then, Lit(value)) if value == -inf:
            yield e
            yield from hiding(then)
        case Apply("add", args):
            for a in args:
                yield from hiding(a)
