"""The inlining normal form: what is left of an expression when scopes, and all freedom in writing indices and sums, are taken away.

Nested sums are inlined where they stand in a linear position, products of sums are expanded, and each term takes the canonical form of
`einnet.expr.normal.canonical`. What is non-linear (functions, division, max) holds normal forms; a sum or max under it is closed over just
the iterators that it uses. Two scopes with equal keys of their normal forms are the same tensor; the converse does not hold in general.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce

from einnet.expr.functions import KEEPS_ZERO
from einnet.expr.index import Index, Range, bounds
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Iter,
    Mul,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    indices,
    rename_apart,
    substitute_body,
    used_names,
)  # fmt: skip
from einnet.expr.normal import truths
from einnet.expr.normal.canonical import canonical, text_of
from einnet.expr.normal.common import apart_from_conditions
from einnet.expr.normal.equations import EQUATED, Functions
from einnet.expr.normal.factors import ONE, apart, as_read, evaluated, holds, infinite, inverted, joint, lone, mask, scale
from einnet.expr.normal.infinities import infinities, unbounded
from einnet.expr.normal.limits import bending, limited, one_less, settling
from einnet.expr.normal.ordering import LATTICE, compared, ordered
from einnet.expr.normal.piecewise import ORDERED, Piecewise
from einnet.expr.normal.products import enclosed, product
from einnet.expr.normal.reductions import merged, outside
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
from einnet.expr.normal.totals import BROKEN, partial, state, total, vanishes

Box = Mapping[str, Range]


def inline(scope: Scope) -> Scope:
    """The normal form. Raises OutOfReach where it would have more than a few hundred terms."""
    return _inline(scope, bending())


@lru_cache(maxsize=1 << 12)
def _inline(scope: Scope, bends: bool) -> Scope:
    if scope.reduce != "sum":
        done = _reduction(scope)
        return done if done.reduce == "sum" else as_read(done)
    box = {i.name: i.range for i in scope.loops}
    return _assembled(scope.loops, tuple(_collected(_open_terms(scope), box)))


def terms_of(scope: Scope) -> tuple[Term, ...]:
    """The canonical terms over the loops that add up to a sum; none but one read where it is a maximum or minimum. Raises OutOfReach as `inline`."""
    box = {i.name: i.range for i in scope.loops}
    if scope.reduce != "sum":
        return tuple(_collected(_expand(Read(scope, indices(scope.loops)), box), box))
    return tuple(_collected(_open_terms(scope), box))


def _open_terms(scope: Scope) -> tuple[Term, ...]:
    """Terms over the loops that add up to a sum scope, with the sums as they are written; indices are simplified over the scope's box."""
    return _open_terms_by(scope, bending())


@lru_cache(maxsize=1 << 12)
def _open_terms_by(scope: Scope, bends: bool) -> tuple[Term, ...]:
    box = {i.name: i.range for i in scope.loops}
    return tuple(simplified(replace(t, sums=(*scope.sums, *t.sums)), box) for t in _expand(scope.body, dict(scope.ranges)))


def _reduction(scope: Scope) -> Scope:
    """The normal form of a max or min scope; reductions of the same kind right below are merged into it."""
    return _reduction_by(scope, bending())


@lru_cache(maxsize=1 << 12)
def _reduction_by(scope: Scope, bends: bool) -> Scope:
    term = merged(scope, _flat(scope.body, dict(scope.ranges)), bends)
    box = {i.name: i.range for i in scope.loops}
    left = outside(scope, term, _Forms(box)) if bends else None
    if left is not None:
        return _assembled(scope.loops, left)
    done = _canonical(term, box)
    if done is None:
        return Scope(scope.loops, (), Const(term.absorbing))
    if not done.sums:
        return _assembled(scope.loops, tuple(_collected(_expand(product_body(done), box), box)))
    return Scope(scope.loops, done.sums, product_body(done), scope.reduce)


def _canonical(term: Term, box: Box) -> Term | None:
    """The canonical form, with the non-linear factors normalised over the iterators that it chose."""
    one_less()
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
    """Canonical terms, like ones added up, sorted. 2·x - x is x + 0·x where x may be infinite: then it is no value, as 0·x is."""
    found: dict[str, Term] = {}
    apart: list[Term] = []
    for t in terms:
        done = _canonical(t, box)
        if done is not None:
            text = text_of(done, box)
            known = found.get(text)
            if known and known.coefficient * done.coefficient <= 0 and unbounded(done, done.ranges(box)):
                apart.append(done)
            found[text] = replace(done, coefficient=done.coefficient + known.coefficient) if known else done
    gone = [t for t in found.values() if not t.coefficient and partial(t.factors)] + apart
    left = [found[text] for text in sorted(found) if found[text].coefficient]
    return left + _collected_zeros(gone, left, box) if gone else left


def _collected_zeros(terms: Iterable[Term], others: Iterable[Term], box: Box) -> list[Term]:
    """0 times what may not exist, each once: what could be without it is said by no other term."""
    found: dict[str, Term] = {}
    for t in terms:
        done = _canonical(replace(t, coefficient=Fraction(0), factors=partial(t.factors)), box)
        if done is None or not partial(done.factors):
            continue
        lost = unbounded(done, done.ranges(box))
        if lost or not any(o.sums == done.sums == () and o.conds == done.conds and o.divisors == done.divisors and holds(o, done) for o in others):
            found[text_of(done, box)] = done
    return [found[text] for text in sorted(found)]


def _assembled(loops: tuple[Iter, ...], terms: tuple[Term, ...]) -> Scope:
    """The scope that adds up some terms."""
    if len(terms) == 1:
        return Scope(loops, terms[0].sums, scaled(terms[0].coefficient, product_body(terms[0])))
    return Scope(loops, (), _joined(terms, {i.name: i.range for i in loops}))


def _joined(terms: Iterable[Term], box: Box) -> Body:
    """The sum of canonical terms as a body; terms with sums are closed. A term that is infinite outside a region makes a sum with numbers so.

    What need not be a number keeps its place: where it is none, the sum is none, outside of the region as well.
    """
    parts = [scaled(t.coefficient, _closed(t, box) if t.sums else product_body(t)) for t in terms]
    regions = [p for p in parts if isinstance(p, Select) and isinstance(p.other, Const) and isinstance(p.other.value, float)]
    rest = [p for p in parts if p not in regions]
    inside = [p.then for p in regions]
    if not regions or len(parts) < 2 or len({p.other for p in regions}) > 1 or not all(map(total, (*rest, *(inside if len(inside) > 1 else ())))):
        return added(parts)
    conds = tuple(dict.fromkeys(c for p in regions for c in p.conds))
    return Select(conds, _flat(added([*inside, *rest]), box), regions[0].other)


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
            return evaluated(name, tuple(_flat(a, box) for a in args))
        case Div(num, den):
            return inverted(_flat(den, box)) if num == ONE else Div(num, _flat(den, box))
        case Select(conds, then, other):
            return Select(conds, _flat(then, box), _flat(other, box))
        case Read(Scope(), _, fill):
            assert fill == 0, "scopes in normal forms are read inside their boxes"
            return _flat(body, box)
    return body


def _reclosed(scope: Scope, index: tuple[Index, ...], box: Box) -> Read:
    """A read, inside its box, of a max or min scope as the read of a normal form over the iterators that the index uses."""
    used = frozenset().union(*(e.names() for e in index))
    loops = tuple(Iter(n, *box[n]) for n in box if n in used)
    inner = rename_apart(scope, used)
    mapping = dict(zip((i.name for i in inner.loops), index, strict=True))
    done = _reduction(Scope(loops, inner.sums, substitute_body(inner.body, mapping), inner.reduce))
    occurring = used_names(done.body)
    loops = tuple(i for i in loops if i.name in occurring)
    return Read(replace(done, loops=loops), indices(loops))


def _expand(body: Body, box: Box) -> list[Term]:
    """Terms, not yet canonical, that add up to a body over the iterators of `box`."""
    match body:
        case Const():
            return lone(body)
        case Val(index):
            parts = [Term(Fraction(c, index.den), factors=(Val(Index(((a, 1),), 0, 1)),)) for a, c in index.terms]
            return parts + ([Term(Fraction(index.const, index.den))] if index.const else [])
        case Read(base, index, fill):
            return [Term(factors=(body,))] if isinstance(base, Tensor) else _expand_read(base, index, fill, box)
        case Add(args):
            return limited([t for a in args for t in _expand(a, box)])
        case Mul(args) if vanishes(args):
            return []  # told before the others are expanded, which may be long
        case Mul(args):
            return reduce(lambda left, right: product(left, right, _Forms(box)), (_expand(a, box) for a in args), [Term()])
        case Div(num, den):
            return product(_expand(num, box), _reciprocal(den, box), _Forms(box))
        case Call(name, args):
            return _expand_call(name, args, box)
        case Select(conds, then, other):
            return _expand_select(conds, then, other, box)
    raise TypeError(f"not a body: {body!r}")


def _expand_read(scope: Scope, index: tuple[Index, ...], fill: Fraction | float, box: Box) -> list[Term]:
    """A read of a scope: its terms at the index, where that lies in the box, and the fill elsewhere."""
    conds, divisors = box_conditions(index, scope.box, box)
    if scope.reduce == "sum":
        mapping = dict(zip((i.name for i in scope.loops), index, strict=True))
        taken = {*box, *mapping}
        inner = []
        narrow = any(lo < low or high < hi - 1 for (low, high), (lo, hi) in zip((bounds(ix, box) for ix in index), scope.box))
        for t in _open_terms(scope):
            named = apart(t, taken)
            placed = named.substitute(mapping, named.sums)
            if any(map(joint, placed.factors)):
                inner += _expanded(placed, box)
            else:
                inner.append(replace(placed, factors=tuple(_opaque(f, placed.ranges(box)) for f in placed.factors)) if narrow else placed)
    else:
        reduced = _reclosed(scope, index, box)
        inner = _settled(reduced, box)
    if not conds and not divisors:
        return inner
    if isinstance(fill, float):
        where = (*conds, *map(divisor_condition, divisors))
        return [Term(factors=(Select(where, _joined(_collected(inner, box), box), Const(fill)),))]
    guarded = [replace(t, conds=t.conds + conds, divisors=t.divisors + divisors) for t in inner]
    return guarded + ([Term(fill), Term(-fill, conds=conds, divisors=divisors)] if fill else [])


def _settled(reduced: Read, box: Box) -> list[Term]:
    """The terms of the read of what a maximum or minimum became."""
    assert isinstance(reduced.base, Scope)
    if reduced.base.reduce != "sum":
        return [Term(factors=(reduced,))]
    with settling(reduced.base):
        return _expand(reduced, box)


def _expanded(term: Term, box: Box) -> list[Term]:
    """A term whose factors are no longer in normal form, as terms."""
    forms = _Forms(term.ranges(box))
    terms = [Term()]
    for f in term.factors:
        terms = product(terms, forms.terms(f), forms)
    return enclosed(term, terms)


def _reciprocal(den: Body, box: Box) -> list[Term]:
    """1 / den; factors of the denominator stand alone."""
    terms = _collected(_expand(den, box), box)
    if bending():
        found = Functions(_Forms(box)).reciprocal(tuple(terms))
        if found is not None:
            return found
    if len(terms) != 1 or terms[0].sums or terms[0].conds or terms[0].divisors or not terms[0].coefficient:
        return [Term(factors=(Div(ONE, _joined(terms, box)),))]
    return [Term(1 / terms[0].coefficient, factors=tuple(Div(ONE, f) for f in terms[0].factors))]


def _expand_call(name: str, args: tuple[Body, ...], box: Box) -> list[Term]:
    """A function of normal forms."""
    if name == "exp":
        return _expand_exponential(args[0], box)
    if name in ("isnan", "choose") or (name == "not" and truths.is_truth(args[0])):
        return _expand_truth(name, tuple(_flat(a, box) for a in args), box)
    found = _equated(name, args, box) if bending() and not any(infinities(a, box) for a in args) else None
    if found is not None:
        return found
    if name in ("less", "equal"):
        left, right = (_flat(a, box) for a in args)
        known = compared(name, left, right)
        return lone(evaluated(name, (left, right))) if known is None else _expand(known, box)
    if len(args) == 1 and name in KEEPS_ZERO:
        return _expand_keeping_zero(name, args[0], box)
    return _known(evaluated(name, tuple(_flat(a, box) for a in args)), box)


def _equated(name: str, args: tuple[Body, ...], box: Box) -> list[Term] | None:
    """A function by where it bends, or by an equation that is known of it; None where neither is."""
    if name not in ORDERED | EQUATED:
        return None
    sums = [tuple(_collected(_expand(a, box), box)) for a in args]
    if name in ORDERED and not any(partial(t.factors) for s in sums for t in s):
        return Piecewise(_Forms(box)).call(name, sums)
    return Functions(_Forms(box)).call(name, sums) if name in EQUATED else None


def _expand_keeping_zero(name: str, arg: Body, box: Box) -> list[Term]:
    """A function that is 0 at 0: conditions common to all terms of its argument stand outside, and so does what it lets out of a scale."""
    terms = _collected(_expand(arg, box), box)
    found, conds, divisors = apart_from_conditions(terms, box)
    bare = _collected(found, box) if conds or divisors else terms
    if not bare:
        return []
    factor = scale(name, bare[0].coefficient) or Fraction(1)  # 0 of what need not be a number
    bare = [replace(t, coefficient=t.coefficient / factor) for t in bare]
    done, size = evaluated(name, (_joined(bare, box),)), Fraction(1) if name == "sign" else abs(factor)
    return [replace(t, coefficient=t.coefficient * size, conds=t.conds + conds, divisors=t.divisors + divisors) for t in _known(done, box)]


def _expand_truth(name: str, args: tuple[Body, ...], box: Box) -> list[Term]:
    """isnan and choose of normal forms."""
    found = truths.known(name, args)
    if found is None and name == "choose":
        found = truths.as_sum(*args)
    return lone(Call(name, args)) if found is None else _expand(found, box)


def _known(done: Body, box: Box) -> list[Term]:
    """A function in the form that the order of numbers gives it, which may be another body."""
    if not isinstance(done, Call) or done.name not in LATTICE:
        return lone(done)
    formed = ordered(done.name, done.args)
    return lone(formed) if isinstance(formed, Call) and formed.name in LATTICE else _expand(formed, box)


@dataclass(frozen=True)
class _Forms:
    """Sums of canonical terms over the iterators of a box (`Forms` of `piecewise` and of `products`)."""

    box: Box

    def terms(self, body: Body) -> list[Term]:
        return _expand(body, self.box)

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
    """exp(x + (c ? y : -inf)) is exp(x + y) where c holds, else 0, where x is a number or -inf, and of several masks their y are, too."""
    terms = _collected(_expand(arg, box), box)
    masks = [(t, m) for t in terms if not t.sums and not t.conds and not t.divisors and t.coefficient > 0 and (m := mask(t)) is not None]
    left = [t for t in terms if t not in [m for m, _ in masks]]
    if not masks or _undefined(left, [m for _, m in masks], box):
        return lone(evaluated("exp", (_joined(terms, box),)))
    conds, divisors = split_conditions(c for _, m in masks for c in m.conds)
    for t, m in masks:
        left += [replace(u, coefficient=t.coefficient * u.coefficient) for u in _expand(m.then, box)]
    return [replace(t, conds=conds, divisors=divisors) for t in lone(evaluated("exp", (_joined(_collected(left, box), box),)))]


def _undefined(terms: Iterable[Term], masks: Sequence[Select], box: Box) -> bool:
    """What stands beside a mask may have no value: one of the terms, or what stands under another mask."""
    beside = (*(_joined((t,), box) for t in terms), *(m.then for m in masks if len(masks) > 1))
    return any(state(b) == BROKEN for b in beside)


def _expand_select(where: tuple[Cond, ...], then: Body, other: Body, box: Box) -> list[Term]:
    """[c] then + (1 - [c]) other, by a complement where there is one inequality; infinities are not taken apart, nor is what need not be a number."""
    conds, divisors = split_conditions(where)
    if infinite(then) or infinite(other):
        return [Term(factors=(Select(where, _flat(then, box), _flat(other, box)),))]
    inside = [replace(t, conds=t.conds + conds, divisors=t.divisors + divisors) for t in _expand(then, box)]
    outside = _expand(other, box)
    if len(conds) == 1 and not divisors and not conds[0].equal:
        complement = inequality(-conds[0].index - 1)
        return limited(inside + [replace(t, conds=(*t.conds, complement)) for t in outside])
    if any(partial(t.factors) for t in outside):
        return [Term(factors=(Select(where, _flat(then, box), _flat(other, box)),))]
    negative = [replace(t, coefficient=-t.coefficient, conds=t.conds + conds, divisors=t.divisors + divisors) for t in outside]
    return limited(inside + outside + negative)
