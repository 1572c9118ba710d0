"""The inlining normal form: what is left of an expression when scopes, and all freedom in writing indices and sums, are taken away.

Nested sums are inlined where they stand in a linear position, products of sums are expanded, and each term takes the canonical form of
`einnet.expr.normal.canonical`. What is non-linear (functions, division, max) holds normal forms; a sum or max under it is closed over just
the iterators that it uses. Two scopes with equal keys of their normal forms are the same tensor; the converse does not hold in general.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce

from einnet.expr import sets
from einnet.expr.functions import KEEPS_ZERO
from einnet.expr.index import Index, Range, bounds, var
from einnet.expr.nodes import (
    INF,
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
    fresh,
    indices,
    neutral,
    rename_apart,
    substitute_body,
    used_names,
)  # fmt: skip
from einnet.expr.normal import truths
from einnet.expr.normal.canonical import canonical, text_of
from einnet.expr.normal.equations import EQUATED, Functions
from einnet.expr.normal.ordering import LATTICE, compared, ordered
from einnet.expr.normal.piecewise import NONDECREASING, ORDERED, Piecewise
from einnet.expr.normal.terms import (
    Term,
    added,
    box_conditions,
    divisor_condition,
    inequality,
    product_body,
    scaled,
    simplified,
    split_conditions,
)  # fmt: skip
from einnet.expr.normal.totals import partial, total
from einnet.expr.values.rationals import folded

_MOST_TERMS = 512
_ONE = Const(Fraction(1))

Box = Mapping[str, Range]


class OutOfReach(Exception):
    """The expression expands to more terms than the normal form handles."""


_BENDS: ContextVar[bool] = ContextVar("bends", default=False)


@contextmanager
def by_bends() -> Iterator[None]:
    """Within, normal forms have maxima, minima and comparisons by where they bend (`einnet.expr.normal.piecewise`), and not as lattices (`order`).

    Each of the two proves what the other does not: common shifts and scales, compositions along one direction, and what leaves a reduction here,
    maxima of minima there.
    """
    token = _BENDS.set(True)
    try:
        yield
    finally:
        _BENDS.reset(token)


_LEFT: ContextVar[list[int] | None] = ContextVar("left", default=None)


@contextmanager
def at_most(terms: int) -> Iterator[None]:
    """Within, what takes more canonical terms than so many, all together, is out of reach; what is known already takes none."""
    token = _LEFT.set([terms])
    try:
        yield
    finally:
        _LEFT.reset(token)


def _one_less() -> None:
    """Count a canonical term. Raises OutOfReach where no more are allowed."""
    left = _LEFT.get()
    if left is None:
        return
    left[0] -= 1
    if left[0] < 0:
        raise OutOfReach("too many terms on the way")


def inline(scope: Scope) -> Scope:
    """The normal form. Raises OutOfReach where it would have more than a few hundred terms."""
    return _inline(scope, _BENDS.get())


@lru_cache(maxsize=1 << 12)
def _inline(scope: Scope, bends: bool) -> Scope:
    if scope.reduce != "sum":
        done = _reduction(scope)
        return done if done.reduce == "sum" else _as_read(done)
    box = {i.name: i.range for i in scope.loops}
    return _assembled(scope.loops, tuple(_collected(_open_terms(scope), box)))


def terms_of(scope: Scope) -> tuple[Term, ...]:
    """The canonical terms over the loops that add up to a sum; none but one read where it is a maximum or minimum. Raises OutOfReach as `inline`."""
    box = {i.name: i.range for i in scope.loops}
    if scope.reduce != "sum":
        return tuple(_collected(_expand(Read(scope, indices(scope.loops)), box), box))
    return tuple(_collected(_open_terms(scope), box))


def _as_read(done: Scope) -> Scope:
    """A maximum or minimum as what only reads it is written: read at its own loops, over those that it uses."""
    used = used_names(done.body)
    loops = tuple(i for i in done.loops if i.name in used)
    return Scope(done.loops, (), Read(replace(done, loops=loops), indices(loops)))


def _open_terms(scope: Scope) -> tuple[Term, ...]:
    """Terms over the loops that add up to a sum scope, with the sums as they are written; indices are simplified over the scope's box."""
    return _open_terms_by(scope, _BENDS.get())


@lru_cache(maxsize=1 << 12)
def _open_terms_by(scope: Scope, bends: bool) -> tuple[Term, ...]:
    box = {i.name: i.range for i in scope.loops}
    return tuple(simplified(replace(t, sums=(*scope.sums, *t.sums)), box) for t in _expand(scope.body, dict(scope.ranges)))


def _reduction(scope: Scope) -> Scope:
    """The normal form of a max or min scope; reductions of the same kind right below are merged into it."""
    return _reduction_by(scope, _BENDS.get())


@lru_cache(maxsize=1 << 12)
def _reduction_by(scope: Scope, bends: bool) -> Scope:
    zero, body = neutral(scope.reduce), _flat(scope.body, dict(scope.ranges))
    term = Term(sums=scope.sums, factors=(body,), absorbing=zero)
    while True:
        (body,) = term.factors
        if isinstance(body, Select) and body.other == Const(zero):
            conds, divisors = split_conditions(body.conds)
            term = replace(term, conds=(*term.conds, *conds), divisors=(*term.divisors, *divisors), factors=(body.then,))
        elif isinstance(body, Add) and (masked := _masked(body, zero)) is not None:
            term = replace(term, factors=(masked,))
        elif isinstance(body, Read) and isinstance(body.base, Scope) and body.base.reduce == scope.reduce:
            inner = _renamed(body.base, {*scope.ranges, *(i.name for i in term.sums)})
            mapping = dict(zip((i.name for i in inner.loops), body.index, strict=True))
            term = replace(term, sums=(*term.sums, *inner.sums), factors=(substitute_body(inner.body, mapping),))
        elif isinstance(body, Read) and isinstance(body.base, Tensor) and body.fill == zero and bends:
            conds, divisors = box_conditions(body.index, body.base.box, term.ranges({i.name: i.range for i in scope.loops}))
            term = replace(term, conds=term.conds + conds, divisors=term.divisors + divisors, factors=(replace(body, fill=Fraction(0)),))
        else:
            break
    box = {i.name: i.range for i in scope.loops}
    outside = _outside(scope.reduce, term, box) if bends else None
    if outside is not None:
        return _assembled(scope.loops, tuple(_collected(outside, box)))
    done = _canonical(term, box)
    if done is None:
        return Scope(scope.loops, (), Const(zero))
    if not done.sums:
        return _assembled(scope.loops, tuple(_collected(_expand(product_body(done), box), box)))
    return Scope(scope.loops, done.sums, product_body(done), scope.reduce)


def _masked(body: Add, zero: Number) -> Select | None:
    """x + (c ? y : -inf) is c ? x + y : -inf, where x and y are finite; None where there is no such mask."""
    for n, a in enumerate(body.args):
        rest = (*body.args[:n], *body.args[n + 1 :])
        if isinstance(a, Select) and a.other == Const(zero) and all(map(total, (*rest, a.then))):
            return Select(a.conds, Add((*rest, a.then)), a.other)
    return None


def _outside(reduce: str, term: Term, box: Box) -> list[Term] | None:
    """What leaves a maximum or minimum over some place at least: terms without its iterators, a scale, and a function that keeps the order."""
    ranges, names = term.ranges(box), {i.name for i in term.sums}
    (body,) = term.factors
    if _infinite(body) or not names:
        return None
    conds = (*term.conds, *map(divisor_condition, term.divisors))
    terms = _collected(_expand(body, ranges), ranges)
    moving = tuple(t for t in terms if t.names() & names)
    if not moving or any(partial(t.factors) for t in terms) or not sets.reached(conds, ranges, names):
        return None
    forms = _Forms(ranges)
    free, first = [t for t in terms if not t.names() & names], Piecewise(forms).first(moving)
    if free or first != 1:
        own = replace(term, factors=(_joined([replace(t, coefficient=t.coefficient / first) for t in moving], ranges),))
        found = _extreme(reduce if first > 0 else "min" if reduce == "max" else "max", own, box)
        return [*free, *(replace(t, coefficient=first * t.coefficient) for t in found)]
    call = moving[0].factors[0] if len(moving) == 1 and len(moving[0].factors) == 1 else None
    alone = not (moving[0].sums or moving[0].conds or moving[0].divisors)
    if not isinstance(call, Call) or not alone or call.name not in NONDECREASING | {"relu"}:
        return None
    return _expand(Call(call.name, (_joined(_extreme(reduce, replace(term, factors=call.args), box), box),)), box)


def _extreme(reduce: str, term: Term, box: Box) -> list[Term]:
    """A maximum or minimum as terms."""
    zero = neutral(reduce)
    conds = (*term.conds, *map(divisor_condition, term.divisors))
    body = Select(conds, term.factors[0], Const(zero)) if conds else term.factors[0]
    loops = tuple(Iter(n, lo, hi) for n, (lo, hi) in box.items())
    return _collected(_expand_read(Scope(loops, term.sums, body, reduce), indices(loops), Fraction(0), box), box)


def _renamed(scope: Scope, used: Iterable[str]) -> Scope:
    """The scope with iterators named apart."""
    return rename_apart(scope, used)


def _canonical(term: Term, box: Box) -> Term | None:
    """The canonical form, with the non-linear factors normalised over the iterators that it chose."""
    _one_less()
    done = canonical(term, box)
    if done is None:
        return None
    known = set(term.factors) if set(done.sums) <= set(term.sums) else set()
    if all(f in known for f in done.factors):
        return done
    ranges = done.ranges(box)
    if done.absorbing != 0:
        return replace(done, factors=tuple(f if f in known else _flat(f, ranges) for f in done.factors))
    coefficient, factors = done.coefficient, []
    for f in (f if f in known else _opaque(f, ranges) for f in done.factors):
        if isinstance(f, Const) and not isinstance(f.value, float):
            coefficient *= f.value
        else:
            factors.append(f)
    return replace(done, coefficient=coefficient, factors=tuple(factors)) if coefficient or partial(factors) else None


def _collected(terms: Iterable[Term], box: Box) -> list[Term]:
    """Canonical terms, like ones added up, sorted."""
    found: dict[str, Term] = {}
    for t in terms:
        done = _canonical(t, box)
        if done is not None:
            text = text_of(done, box)
            known = found.get(text)
            found[text] = replace(done, coefficient=done.coefficient + known.coefficient) if known else done
    gone = [t for t in found.values() if not t.coefficient and partial(t.factors)]
    left = [found[text] for text in sorted(found) if found[text].coefficient]
    return left + _collected_zeros(gone, left, box) if gone else left


def _collected_zeros(terms: Iterable[Term], others: Iterable[Term], box: Box) -> list[Term]:
    """0 times what may not exist, each once: what could be without it is said by no other term."""
    found: dict[str, Term] = {}
    for t in terms:
        done = _canonical(replace(t, coefficient=Fraction(0), factors=partial(t.factors)), box)
        if done is None or not partial(done.factors):
            continue
        if not any(o.sums == done.sums == () and o.conds == done.conds and o.divisors == done.divisors and _holds(o, done) for o in others):
            found[text_of(done, box)] = done
    return [found[text] for text in sorted(found)]


def _holds(term: Term, other: Term) -> bool:
    """The factors of the other term are among those of the first."""
    return set(other.factors) <= set(term.factors)


def _assembled(loops: tuple[Iter, ...], terms: tuple[Term, ...]) -> Scope:
    """The scope that adds up some terms."""
    if len(terms) == 1:
        return Scope(loops, terms[0].sums, scaled(terms[0].coefficient, product_body(terms[0])))
    return Scope(loops, (), _joined(terms, {i.name: i.range for i in loops}))


def _joined(terms: Iterable[Term], box: Box) -> Body:
    """The sum of canonical terms as a body; terms with sums are closed. A term that is infinite outside a region makes the sum so."""
    parts = [scaled(t.coefficient, _closed(t, box) if t.sums else product_body(t)) for t in terms]
    regions = [p for p in parts if isinstance(p, Select) and isinstance(p.other, Const) and isinstance(p.other.value, float)]
    rest = [p for p in parts if p not in regions]
    if not regions or len(parts) < 2 or len({p.other for p in regions}) > 1 or any(map(_infinite, (*rest, *(p.then for p in regions)))):
        return added(parts)
    conds = tuple(dict.fromkeys(c for p in regions for c in p.conds))
    return Select(conds, _flat(added([*(p.then for p in regions), *rest]), box), regions[0].other)


def _closed(term: Term, box: Box) -> Read:
    """A term with sums as a read of a scope over the iterators that it uses."""
    used = term.names()
    loops = tuple(Iter(n, *box[n]) for n in box if n in used)
    return Read(Scope(loops, term.sums, product_body(term)), indices(loops))


def _flat(body: Body, box: Box) -> Body:
    """The normal form of a body in a non-linear position."""
    return _joined(_collected(_expand(body, box), box), box)


def _opaque(body: Body, box: Box) -> Body:
    """A factor that is not expanded, with its operands in normal form."""
    match body:
        case Call(name, args):
            return _folded(name, tuple(_flat(a, box) for a in args))
        case Div(num, den):
            return _inverted(_flat(den, box)) if num == _ONE else Div(num, _flat(den, box))
        case Select(conds, then, other):
            return Select(conds, _flat(then, box), _flat(other, box))
        case Read(Scope() as scope, index, fill):
            assert fill == 0, "scopes in normal forms are read inside their boxes"
            return _flat(body, box) if scope.reduce == "sum" else _reclosed(scope, index, box)
    return body


def _reclosed(scope: Scope, index: tuple[Index, ...], box: Box) -> Read:
    """A read, inside its box, of a max or min scope as the read of a normal form over the iterators that the index uses."""
    used = frozenset().union(*(e.names() for e in index))
    loops = tuple(Iter(n, *box[n]) for n in box if n in used)
    inner = _renamed(scope, used)
    mapping = dict(zip((i.name for i in inner.loops), index, strict=True))
    done = _reduction(Scope(loops, inner.sums, substitute_body(inner.body, mapping), inner.reduce))
    occurring = used_names(done.body)
    loops = tuple(i for i in loops if i.name in occurring)
    return Read(replace(done, loops=loops), indices(loops))


def _folded(name: str, args: tuple[Body, ...]) -> Body:
    """The function of some normal forms, evaluated where they are numbers and its value is rational."""
    numbers = tuple(a.value for a in args if isinstance(a, Const) and isinstance(a.value, Fraction))
    value = folded(name, numbers) if len(numbers) == len(args) else None
    return Call(name, args) if value is None else Const(value)


def _inverted(den: Body) -> Body:
    """1 / den."""
    return Const(1 / den.value) if isinstance(den, Const) and not isinstance(den.value, float) and den.value else Div(_ONE, den)


def _expand(body: Body, box: Box) -> list[Term]:
    """Terms, not yet canonical, that add up to a body over the iterators of `box`."""
    match body:
        case Const():
            return _lone(body)
        case Val(index):
            parts = [Term(Fraction(c, index.den), factors=(Val(Index(((a, 1),), 0, 1)),)) for a, c in index.terms]
            return parts + ([Term(Fraction(index.const, index.den))] if index.const else [])
        case Read(base, index, fill):
            return [Term(factors=(body,))] if isinstance(base, Tensor) else _expand_read(base, index, fill, box)
        case Add(args):
            return _limited([t for a in args for t in _expand(a, box)])
        case Mul(args):
            return reduce(lambda left, right: _product(left, right, box), (_expand(a, box) for a in args), [Term()])
        case Div(num, den):
            return _product(_expand(num, box), _reciprocal(den, box), box)
        case Call(name, args):
            return _expand_call(name, args, box)
        case Select(conds, then, other):
            return _expand_select(conds, then, other, box)
    raise TypeError(f"not a body: {body!r}")


def _limited(terms: list[Term]) -> list[Term]:
    if len(terms) > _MOST_TERMS:
        raise OutOfReach(f"more than {_MOST_TERMS} terms")
    return terms


def _product(left: list[Term], right: list[Term], box: Box) -> list[Term]:
    """All products, the sums of the right factors named apart."""
    if len(left) * len(right) > _MOST_TERMS:
        raise OutOfReach(f"more than {_MOST_TERMS} terms")
    if not left or not right:
        return [replace(t, coefficient=Fraction(0), factors=partial(t.factors)) for t in left or right if partial(t.factors)]
    result = []
    for a in left:
        taken = {*box, *(i.name for i in a.sums)}
        for b in right:
            c = _apart(b, taken)
            both = Term(a.coefficient * c.coefficient, a.sums + c.sums, a.conds + c.conds, a.divisors + c.divisors, a.factors + c.factors)
            result += _merged(both, box) if a.factors and c.factors else [both]
    return result


def _merged(term: Term, box: Box) -> list[Term]:
    """exp(x)·exp(y) is exp(x + y), |x|·|x| is x·x."""
    powers = [f.args[0] for f in term.factors if isinstance(f, Call) and f.name == "exp"]
    twice = next((f for f in term.factors if isinstance(f, Call) and f.name == "abs" and term.factors.count(f) > 1), None)
    if len(powers) < 2 and twice is None:
        return [term]
    ranges = {**box, **{i.name: i.range for i in term.sums}}
    if twice is None:
        left = tuple(f for f in term.factors if not (isinstance(f, Call) and f.name == "exp"))
        return _product([replace(term, factors=left)], _expand_call("exp", (Add(tuple(powers)),), ranges), ranges)
    others = list(term.factors)
    others.remove(twice)
    others.remove(twice)
    return _product([replace(term, factors=tuple(others))], _expand(Mul(twice.args * 2), ranges), ranges)


def _apart(term: Term, taken: Iterable[str]) -> Term:
    """The term with its sums named differently from `taken`."""
    used = set(taken)
    if all(i.name not in used for i in term.sums):
        return term
    own = {i.name for i in term.sums}
    renamed: dict[str, str] = {}
    for i in term.sums:
        if i.name in used:
            renamed[i.name] = fresh(i.name, used | own)
            own.add(renamed[i.name])
    sums = tuple(Iter(renamed.get(i.name, i.name), i.lo, i.hi) for i in term.sums)
    return term.substitute({old: var(new) for old, new in renamed.items()}, sums)


def _expand_read(scope: Scope, index: tuple[Index, ...], fill: Fraction | float, box: Box) -> list[Term]:
    """A read of a scope: its terms at the index, where that lies in the box, and the fill elsewhere."""
    conds, divisors = box_conditions(index, scope.box, box)
    if scope.reduce == "sum":
        mapping = dict(zip((i.name for i in scope.loops), index, strict=True))
        taken = {*box, *mapping}
        inner = []
        narrow = any(lo < low or high < hi - 1 for (low, high), (lo, hi) in zip((bounds(ix, box) for ix in index), scope.box))
        for t in _open_terms(scope):
            named = _apart(t, taken)
            placed = named.substitute(mapping, named.sums)
            if any(map(_joint, placed.factors)):
                inner += _expanded(placed, box)
            else:
                inner.append(replace(placed, factors=tuple(_opaque(f, placed.ranges(box)) for f in placed.factors)) if narrow else placed)
    else:
        reduced = _reclosed(scope, index, box)
        inner = [Term(factors=(reduced,))] if isinstance(reduced.base, Scope) and reduced.base.reduce != "sum" else _expand(reduced, box)
    if not conds and not divisors:
        return inner
    if isinstance(fill, float):
        where = (*conds, *map(divisor_condition, divisors))
        return [Term(factors=(Select(where, _joined(_collected(inner, box), box), Const(fill)),))]
    guarded = [replace(t, conds=t.conds + conds, divisors=t.divisors + divisors) for t in inner]
    return guarded + ([Term(fill), Term(-fill, conds=conds, divisors=divisors)] if fill else [])


def _joint(body: Body) -> bool:
    """There is the value of a place that several iterators make, or a reduction read there: normal forms have a sum of values, and no such place."""
    if isinstance(body, Val):
        return len(body.index.terms) > 1
    if isinstance(body, Read):
        return isinstance(body.base, Scope) and any(len(ix.terms) > 1 for ix in body.index)
    return any(map(_joint, children(body)))


def _expanded(term: Term, box: Box) -> list[Term]:
    """A term whose factors are no longer in normal form, as terms."""
    ranges = term.ranges(box)
    return reduce(lambda left, f: _product(left, _expand(f, ranges), ranges), term.factors, [replace(term, factors=())])


def _reciprocal(den: Body, box: Box) -> list[Term]:
    """1 / den; factors of the denominator stand alone."""
    terms = _collected(_expand(den, box), box)
    if _BENDS.get():
        found = Functions(_Forms(box)).reciprocal(tuple(terms))
        if found is not None:
            return found
    if len(terms) != 1 or terms[0].sums or terms[0].conds or terms[0].divisors or not terms[0].coefficient:
        return [Term(factors=(Div(_ONE, _joined(terms, box)),))]
    return [Term(1 / terms[0].coefficient, factors=tuple(Div(_ONE, f) for f in terms[0].factors))]


def _expand_call(name: str, args: tuple[Body, ...], box: Box) -> list[Term]:
    """A function of normal forms. Where f(0) = 0, conditions common to all terms of the argument stand outside."""
    if name == "exp":
        return _expand_exponential(args[0], box)
    if name in ("isnan", "choose") or (name == "not" and truths.is_truth(args[0])):
        return _expand_truth(name, tuple(_flat(a, box) for a in args), box)
    if _BENDS.get() and name in ORDERED | EQUATED and not any(map(_infinite, args)):
        sums = [tuple(_collected(_expand(a, box), box)) for a in args]
        if name in ORDERED and not any(partial(t.factors) for s in sums for t in s):
            return Piecewise(_Forms(box)).call(name, sums)
        found = Functions(_Forms(box)).call(name, sums) if name in EQUATED else None
        if found is not None:
            return found
    if name in ("less", "equal"):
        left, right = (_flat(a, box) for a in args)
        known = compared(name, left, right)
        return _lone(_folded(name, (left, right))) if known is None else _expand(known, box)
    if len(args) == 1 and name in KEEPS_ZERO:
        terms = _collected(_expand(args[0], box), box)
        if not terms:
            return []
        conds = tuple(c for c in terms[0].conds if all(not t.sums and c in t.conds for t in terms))
        divisors = tuple(d for d in terms[0].divisors if all(not t.sums and d in t.divisors for t in terms))
        bare = [
            replace(t, conds=tuple(c for c in t.conds if c not in conds), divisors=tuple(d for d in t.divisors if d not in divisors)) for t in terms
        ]
        scale = _scale(name, bare[0].coefficient)
        bare = [replace(t, coefficient=t.coefficient / scale) for t in bare]
        done, size = _folded(name, (_joined(bare, box),)), Fraction(1) if name == "sign" else abs(scale)
        return [replace(t, coefficient=t.coefficient * size, conds=t.conds + conds, divisors=t.divisors + divisors) for t in _known(done, box)]
    return _known(_folded(name, tuple(_flat(a, box) for a in args)), box)


def _expand_truth(name: str, args: tuple[Body, ...], box: Box) -> list[Term]:
    """isnan and choose of normal forms."""
    found = truths.known(name, args)
    if found is None and name == "choose":
        found = truths.as_sum(*args)
    return _lone(Call(name, args)) if found is None else _expand(found, box)


def _scale(name: str, coefficient: Fraction) -> Fraction:
    """By what an argument is divided: f(c·x) is c·f(x) of relu and c > 0, |c|·f(x) of abs, f(x) of sign and c > 0."""
    return coefficient if name == "abs" else abs(coefficient) if name in ("relu", "sign") else Fraction(1)


def _known(done: Body, box: Box) -> list[Term]:
    """A function in the form that the order of numbers gives it, which may be another body."""
    if not isinstance(done, Call) or done.name not in LATTICE:
        return _lone(done)
    formed = ordered(done.name, done.args)
    return _lone(formed) if isinstance(formed, Call) and formed.name in LATTICE else _expand(formed, box)


@dataclass(frozen=True)
class _Forms:
    """Sums of canonical terms over the iterators of a box (`einnet.expr.piecewise.Forms`)."""

    box: Box

    def collected(self, terms: Sequence[Term]) -> tuple[Term, ...]:
        return tuple(_collected(terms, self.box))

    def expanded(self, body: Body) -> tuple[Term, ...]:
        return tuple(_collected(_expand(body, self.box), self.box))

    def body(self, terms: tuple[Term, ...]) -> Body:
        return _joined(terms, self.box)

    def text(self, term: Term) -> str:
        return text_of(term, self.box)

    def over(self, sums: Sequence[Iter]) -> _Forms:
        return _Forms({**self.box, **{i.name: i.range for i in sums}})


def _expand_exponential(arg: Body, box: Box) -> list[Term]:
    """exp(x + (c ? y : -inf)) is exp(x + y) where c holds, else 0."""
    terms = _collected(_expand(arg, box), box)
    masks = [(t, m) for t in terms if not t.sums and not t.conds and not t.divisors and t.coefficient > 0 and (m := _mask(t)) is not None]
    if not masks:
        return _lone(_folded("exp", (_joined(terms, box),)))
    left = [t for t in terms if t not in [m for m, _ in masks]]
    conds, divisors = split_conditions(c for _, m in masks for c in m.conds)
    for t, m in masks:
        left += [replace(u, coefficient=t.coefficient * u.coefficient) for u in _expand(m.then, box)]
    return [replace(t, conds=conds, divisors=divisors) for t in _lone(_folded("exp", (_joined(_collected(left, box), box),)))]


def _mask(term: Term) -> Select | None:
    """The term is c ? y : -inf for a finite y."""
    if len(term.factors) != 1:
        return None
    (factor,) = term.factors
    found = isinstance(factor, Select) and factor.other == Const(-INF) and not _infinite(factor.then)
    return factor if found and isinstance(factor, Select) else None


def _lone(factor: Body) -> list[Term]:
    """A factor as a term."""
    if isinstance(factor, Const) and not isinstance(factor.value, float):
        return [Term(factor.value)] if factor.value else []
    return [Term(factors=(factor,))]


def _expand_select(where: tuple[Cond, ...], then: Body, other: Body, box: Box) -> list[Term]:
    """[c] then + (1 - [c]) other, by a complement where there is one condition; infinities are not taken apart."""
    conds, divisors = split_conditions(where)
    if _infinite(then) or _infinite(other):
        return [Term(factors=(Select(where, _flat(then, box), _flat(other, box)),))]
    inside = [replace(t, conds=t.conds + conds, divisors=t.divisors + divisors) for t in _expand(then, box)]
    outside = _expand(other, box)
    if len(conds) + len(divisors) > 1 and any(partial(t.factors) for t in outside):
        return [Term(factors=(Select(where, _flat(then, box), _flat(other, box)),))]
    if len(conds) == 1 and not divisors and not conds[0].equal:
        complement = inequality(-conds[0].index - 1)
        return _limited(inside + [replace(t, conds=(*t.conds, complement)) for t in outside])
    negative = [replace(t, coefficient=-t.coefficient, conds=t.conds + conds, divisors=t.divisors + divisors) for t in outside]
    return _limited(inside + outside + negative)


def _infinite(body: Body) -> bool:
    """The body is, or may be through a fill, infinite."""
    match body:
        case Const(v):
            return isinstance(v, float)
        case Read(_, _, fill):
            return isinstance(fill, float)
        case Add(args) | Mul(args) | Call(_, args):
            return any(map(_infinite, args))
        case Div(num, den):
            return _infinite(num) or _infinite(den)
        case Select(_, then, other):
            return _infinite(then) or _infinite(other)
    return False
