"""One form for what maxima, minima, relu, abs and comparisons make: max(a, b) = b + relu(a - b), and relu of an argument that begins with 1·x.

Functions of these names become sums of `relu`, or of comparisons with 0, of arguments without a scale: relu(c·x) = c·relu(x) for c > 0 and
relu(-x) = relu(x) - x, less(a, b) = [a - b < 0]. What bends along one direction is written by where it bends, relu(u - t) for each bend t, which
is one form for all compositions; what is the greatest of several arguments is one function of them in one order, up to a common shift and scale.
A nondecreasing function of the greatest argument is the greatest of its values.

Arguments are sums of canonical terms; `Forms` says how they are collected and told apart. None of this holds for infinite values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Protocol

from einnet.expr.functions import named, record
from einnet.expr.index import Range
from einnet.expr.nodes import Body, Call, Cond, Const, Iter
from einnet.expr.normal.canonical import profile
from einnet.expr.normal.common import apart_from_conditions
from einnet.expr.normal.terms import Divisor, Term, product_body
from einnet.expr.normal.totals import span

Sum = tuple[Term, ...]
ORDERED = frozenset({"relu", "abs", "max", "min", "less", "equal", "not", "sign"})
NONDECREASING = named(nondecreasing=True)
"""Functions that keep an order and are defined everywhere."""
ODD = named(nondecreasing=True, mirror=record.ODD)
_MOST = 8
"""Arguments of a maximum."""

ZERO, ONE = Const(Fraction(0)), Const(Fraction(1))


class Forms(Protocol):
    """Sums of canonical terms over some iterators."""

    @property
    def box(self) -> Mapping[str, Range]:
        """The ranges of the iterators."""

    def collected(self, terms: Sequence[Term]) -> Sum:
        """Like terms added up, in one order."""

    def expanded(self, body: Body) -> Sum:
        """The canonical terms of a body."""

    def body(self, terms: Sum) -> Body:
        """The sum as a body."""

    def text(self, term: Term) -> str:
        """A term but for its coefficient."""

    def over(self, sums: Sequence[Iter]) -> Forms:
        """Forms over these iterators, too."""


@dataclass(frozen=True)
class Piecewise:
    """The functions of ORDERED over some forms; results are terms that are not yet collected."""

    forms: Forms

    def call(self, name: str, args: Sequence[Sum]) -> list[Term]:
        """A function of sums."""
        a = args[0]
        b = args[1] if len(args) > 1 else ()
        match name:
            case "relu":
                return list(self.greatest([a, ()]))
            case "abs":
                return list(self.greatest([a, scaled(a, Fraction(-1))]))
            case "max":
                return list(self.greatest([a, b]))
            case "min":
                return list(scaled(self.greatest([scaled(a, Fraction(-1)), scaled(b, Fraction(-1))]), Fraction(-1)))
            case "less":
                return list(self.below(self.minus(a, b)))
            case "sign":
                return [*self.below(scaled(a, Fraction(-1))), *scaled(self.below(a), Fraction(-1))]
        apart = self.minus(a, b)
        both = (*self.below(apart), *self.below(scaled(apart, Fraction(-1))))
        return [Term(), *scaled(both, Fraction(-1))]

    def minus(self, a: Sum, b: Sum) -> Sum:
        return self.forms.collected((*a, *scaled(b, Fraction(-1))))

    def plus(self, a: Sum, b: Sum) -> Sum:
        return self.forms.collected((*a, *b))

    # comparisons

    def below(self, x: Sum) -> Sum:
        """1 where x < 0, else 0."""
        known = span(self.forms.body(x))
        if known.hi < 0 or (known.hi == 0 and known.hi_open):
            return (Term(),)
        if known.lo >= 0:
            return ()
        x, conds, divisors = self.apart_from_conditions(x)
        if not x:
            return ()
        first = self.first(x)
        own = self.forms.body(scaled(x, 1 / first))
        return (Term(factors=(Call("less", (own, ZERO) if first > 0 else (ZERO, own)),), conds=conds, divisors=divisors),)

    def apart_from_conditions(self, x: Sum) -> tuple[Sum, tuple[Cond, ...], tuple[Divisor, ...]]:
        """The sum without the conditions that all its terms have, and those: where they fail, it is 0."""
        bare, conds, divisors = apart_from_conditions(x, self.forms.box)
        return (self.forms.collected(bare) if conds or divisors else bare), conds, divisors

    def first(self, x: Sum) -> Fraction:
        """The coefficient of the term that stands first whatever iterators are called; numbers come last."""
        return min(x, key=lambda t: (number(t), profile(product_body(t)), self.forms.text(t))).coefficient

    def leading(self, x: Sum) -> list[Fraction]:
        """The coefficients of the terms one of which stands first, in whatever direction iterators run."""
        kinds = [(number(t), profile(product_body(t))) for t in x]
        least = min(kinds)
        return [t.coefficient for t, kind in zip(x, kinds) if kind == least]

    # greatest elements

    def greatest(self, args: Sequence[Sum]) -> Sum:
        """The greatest of some sums, as a collected sum."""
        flat = self.undominated(self.flattened(list(dict.fromkeys(args))))
        if len(flat) == 1:
            return flat[0]
        outside = self.monotone(flat)
        if outside is not None:
            return outside
        if len(flat) == 2:
            return self.plus(flat[1], self.hinge(self.minus(*flat)))
        along = self.along_one_direction(flat)
        return self.several(flat) if along is None else along

    def flattened(self, args: list[Sum]) -> list[Sum]:
        """max(r + c·relu(y), ...) = max(r, r + c·y, ...) for c > 0; likewise what stands for the greatest of several."""
        done: list[Sum] = []
        left = list(args)
        while left:
            x = left.pop(0)
            parts = self.opened(x)
            if parts is None or len(done) + len(left) + len(parts) > _MOST:
                done.append(x)
            else:
                left = [*parts, *left]
        return list(dict.fromkeys(done))

    def opened(self, x: Sum) -> list[Sum] | None:
        for t in x:
            inner = self.arguments(t) if t.coefficient > 0 else None
            if inner is not None:
                rest = tuple(u for u in x if u is not t)
                return [self.plus(rest, scaled(y, t.coefficient)) for y in inner]
        return None

    def arguments(self, term: Term) -> list[Sum] | None:
        """What a term is the greatest of, where it is that and nothing else."""
        if term.sums or term.conds or term.divisors or len(term.factors) != 1:
            return None
        (f,) = term.factors
        if not isinstance(f, Call) or f.name not in ("relu", "max"):
            return None
        if f.name == "relu":
            return [(), self.forms.expanded(f.args[0])]
        rest = self.arguments(Term(factors=(f.args[1],))) if isinstance(f.args[1], Call) and f.args[1].name == "max" else None
        return [self.forms.expanded(f.args[0]), *(rest or [self.forms.expanded(f.args[1])])]

    def undominated(self, args: list[Sum]) -> list[Sum]:
        """Without those that are nowhere greater than another."""
        kept = list(args)
        for x in args:
            if any(y is not x and span(self.forms.body(self.minus(x, y))).hi <= 0 for y in kept) and len(kept) > 1:
                kept = [y for y in kept if y is not x]
        return kept

    def monotone(self, args: Sequence[Sum]) -> Sum | None:
        """max(c·f(x), c·f(y)) = c·f(max(x, y)) for nondecreasing f and c > 0; 0 is f(0) for odd f."""
        found: list[tuple[Fraction, str, Sum]] = []
        empty = False
        for x in args:
            if not x:
                empty = True
                continue
            if len(x) != 1 or x[0].sums or x[0].conds or x[0].divisors or len(x[0].factors) != 1 or x[0].coefficient <= 0:
                return None
            (f,) = x[0].factors
            if not isinstance(f, Call) or f.name not in NONDECREASING:
                return None
            found.append((x[0].coefficient, f.name, self.forms.expanded(f.args[0])))
        if not found or len({(c, name) for c, name, _ in found}) != 1:
            return None
        c, name, _ = found[0]
        if empty and name not in ODD:
            return None
        inner = self.greatest([*(x for _, _, x in found), *([()] if empty else [])])
        return self.forms.collected((Term(c, factors=(Call(name, (self.forms.body(inner),)),)),))

    def several(self, args: Sequence[Sum]) -> Sum:
        """The greatest of three or more: relative to that which gives the least text, without a common scale."""
        best: tuple[tuple[str, ...], Sum] | None = None
        for base in args:
            apart = [self.minus(x, base) for x in args]
            scale = min(map(self.size, filter(None, apart)))[1]
            ordered = sorted((scaled(x, 1 / scale) for x in apart), key=self.key)
            key = tuple(map(self.key, ordered))
            if best is None or key < best[0]:
                whole = reduce(lambda right, left: Call("max", (left, right)), (self.forms.body(x) for x in reversed(ordered)))
                best = key, self.plus(base, (Term(scale, factors=(whole,)),))
        assert best is not None
        return best[1]

    def along_one_direction(self, args: Sequence[Sum]) -> Sum | None:
        """The greatest of sums that differ by a + b·u for one u: by where the upper envelope of these lines bends.

        None of them is greater than another by a number, so that each two of them differ by some b·u.
        """
        base, *others = args
        apart = [direction_of(self.minus(x, base)) for x in others]
        direction = scaled(apart[0][0], 1 / self.first(apart[0][0]))
        lines = [(Fraction(0), Fraction(0))]
        for along, constant in apart:
            slope = along[0].coefficient / direction[0].coefficient
            if scaled(direction, slope) != along:
                return None
            lines.append((slope, constant))
        return self.plus(base, self.written(direction, upper_envelope(lines)))

    def size(self, x: Sum) -> tuple[list[str], Fraction]:
        """What a common scale of sums is read off: their order by this is the same at every scale."""
        return [self.forms.text(t) for t in x], abs(self.first(x))

    def key(self, x: Sum) -> str:
        return " + ".join(f"{t.coefficient} {self.forms.text(t)}" for t in x)

    # one bend, and several along one direction

    def hinge(self, x: Sum) -> Sum:
        """relu(x)."""
        known = span(self.forms.body(x))
        if known.hi <= 0:
            return ()
        if known.lo >= 0:
            return x
        if any(self.arguments(t) is not None for t in x):
            bent = self.bent(x)
            if bent is not None:
                return bent
        bare, conds, divisors = self.apart_from_conditions(x)
        if not bare:
            return ()
        first = self.first(bare)
        bend = Term(abs(first), factors=(Call("relu", (self.forms.body(scaled(bare, 1 / first)),)),), conds=conds, divisors=divisors)
        return self.forms.collected((bend,) if first > 0 else (bend, *x))

    def bent(self, x: Sum) -> Sum | None:
        """relu(a + b·u + Σ c·relu(u - t)) by its bends; None where x does not bend along one direction."""
        line: list[Term] = []
        bends: dict[Fraction, Fraction] = {}
        direction: Sum | None = None
        for t in x:
            inner = self.arguments(t)
            if inner is None:
                line.append(t)
                continue
            if len(inner) != 2 or inner[0]:
                return None
            along, at = direction_of(inner[1])
            if direction is not None and along != direction:
                return None
            direction = along
            bends[-at] = bends.get(-at, Fraction(0)) + t.coefficient
        slope_terms, constant = direction_of(tuple(line))
        assert direction is not None
        slope = Fraction(0)
        if slope_terms:
            slope = slope_terms[0].coefficient / direction[0].coefficient
            if scaled(direction, slope) != slope_terms:
                return None
        return self.written(direction, positive_part(Line(slope, constant, tuple(sorted(bends.items())))))

    def written(self, direction: Sum, line: Line) -> Sum:
        """A function of one direction as a sum."""
        found: list[Term] = [*scaled(direction, line.slope), Term(line.constant)]
        for at, change in line.bends:
            found += scaled(self.hinge(self.plus(direction, (Term(-at),))), change)
        return self.forms.collected([t for t in found if t.coefficient])


@dataclass(frozen=True)
class Line:
    """slope·u + constant + Σ change·relu(u - at), by increasing `at`."""

    slope: Fraction
    constant: Fraction
    bends: tuple[tuple[Fraction, Fraction], ...] = ()

    def __call__(self, u: Fraction) -> Fraction:
        return self.slope * u + self.constant + sum((c * max(u - at, Fraction(0)) for at, c in self.bends), Fraction(0))


def upper_envelope(lines: Sequence[tuple[Fraction, Fraction]]) -> Line:
    """The greatest of some slope·u + constant at each u."""
    slope, constant = min(lines, key=lambda line: (line[0], -line[1]))
    start = Line(slope, constant)
    bends: list[tuple[Fraction, Fraction]] = []
    while steeper := [(a, b) for a, b in lines if a > slope]:
        at, a, b = min(((constant - b) / (a - slope), -a, b) for a, b in steeper)
        bends.append((at, -a - slope))
        slope, constant = -a, b
    return replace(start, bends=tuple(bends))


def positive_part(line: Line) -> Line:
    """relu of it, by its own bends: those above 0, and where it crosses 0."""
    cuts = [at for at, _ in line.bends]
    pieces: list[tuple[Fraction | None, Fraction, Fraction]] = []  # from, slope, constant
    slope, constant = line.slope, line.constant
    pieces.append((None, slope, constant))
    for at, change in line.bends:
        slope, constant = slope + change, constant - change * at
        pieces.append((at, slope, constant))
    found: list[tuple[Fraction | None, Fraction, Fraction]] = []
    for n, (start, a, b) in enumerate(pieces):
        end = cuts[n] if n < len(cuts) else None
        root = -b / a if a else None
        inside = root is not None and (start is None or root > start) and (end is None or root < end)
        edges = [start, root] if inside else [start]
        for k, edge in enumerate(edges):
            stop = edges[k + 1] if k + 1 < len(edges) else end
            middle = _between(edge, stop)
            found.append((edge, a, b) if a * middle + b > 0 else (edge, Fraction(0), Fraction(0)))
    (_, slope, constant), *rest = found
    bends: list[tuple[Fraction, Fraction]] = []
    before = slope
    for edge, a, _ in rest:
        assert edge is not None
        if a != before:
            bends.append((edge, a - before))
        before = a
    return Line(slope, constant, tuple(bends))


def _between(low: Fraction | None, high: Fraction | None) -> Fraction:
    if low is None:
        return Fraction(0) if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2


def direction_of(x: Sum) -> tuple[Sum, Fraction]:
    """What is no number, and the number."""
    along = tuple(t for t in x if not number(t))
    return along, sum((t.coefficient for t in x if number(t)), Fraction(0))


def number(t: Term) -> bool:
    return not (t.sums or t.conds or t.divisors or t.factors)


def scaled(x: Sequence[Term], by: Fraction) -> Sum:
    return tuple(replace(t, coefficient=by * t.coefficient) for t in x) if by else ()
