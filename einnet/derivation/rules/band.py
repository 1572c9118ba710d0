"""band: a reduction whose terms are neutral outside a band runs along the band, and so do the scopes that it reads there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.facts import zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.moves.spread import conditions, spread, within
from einnet.derivation.rules.forced.fold import simplify_body
from einnet.derivation.rules.forced.merge import outside_problem
from einnet.expr.functions import KEEPS_ZERO
from einnet.expr.index import Floor, Index, Range, bounds, in_range, simplify, substitute, var
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
    children,
    map_indices,
    map_reads,
    neutral,
    rebuilt,
    substitute_body,
    used_names,
)  # fmt: skip
from einnet.expr.normal.totals import BROKEN, state, total
from einnet.expr.notation.printing import print_index


@rule(
    "band", order=60,
    guard="f is neutral unless lo <= k - g(x) <= hi and k - g(x) = lo mod d; every row of the band has an element",
    kind="reassociation",
)  # fmt: skip
def band(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[k] f(x,k) = L[x] Σ[w] f(x,g(x)+d*w+lo)

    What is read at that index is written over w, with its own reductions along their bands. A product with the exponential of a score that is
    -inf outside a window becomes a product along the window.
    """
    places = [(i, along) for i in e.sums if (along := band_of(e, i))]
    if not places:
        yield Refused("no sum is neutral outside a band")
    for i, along in places:
        result = banded(e)
        if isinstance(result, Refused):
            yield result
        else:
            yield Rewrite(result, f"{i.name}={print_index(along[0], [i.name, *(x.name for x in e.loops)])}")
            return


Along = tuple[Index, int]
"""Where the band's element w lies, w written as the iterator itself, and how many there are."""


@lru_cache(maxsize=1 << 13)
def band_of(e: Scope, i: Iter) -> Along | None:
    """The narrowest band of the iterator outside which the body is neutral; None if it is no narrower than the iterator's range."""
    if e.reduce == "min":
        return None
    conds = needed(e.body, neutral(e.reduce), i.name, e.ranges)
    best: Along | None = None
    for form, (low, high) in between(conds, i).items():
        step, rest = residue_of(conds, form)
        low += (rest - low) % step
        extent = (high - low) // step + 1
        if extent < i.extent and (best is None or extent < best[1]) and _has_elements(e, i, form, low, high, step):
            best = var(i.name) * step + (var(i.name) - form) + low, extent
    return best


def between(conds: Iterable[Cond], i: Iter) -> dict[Index, tuple[int, int]]:
    """Functions, the iterator less something affine, that some conditions bound: the least and the greatest value that each may have."""
    found: dict[Index, tuple[int, int]] = {}
    for c in conds:
        k = c.index.coefficient(i.name)
        if c.equal or k not in (1, -1) or not c.index.is_affine:
            continue
        form = Index(c.index.terms) * k
        low, high = found.get(form, (-(1 << 60), 1 << 60))
        found[form] = (max(low, -c.index.const), high) if k == 1 else (low, min(high, c.index.const))
    return found


def residue_of(conds: Iterable[Cond], form: Index) -> tuple[int, int]:
    """(d, r) such that one of the conditions says form = r mod d; (1, 0) where none does."""
    for c in conds:
        for atom, _ in c.index.terms if c.equal else ():
            if isinstance(atom, Floor) and c.index == atom.num % atom.den:
                for sign in (1, -1):
                    rest = Index(atom.num.terms) - form * sign
                    if rest.is_affine and all(k % atom.den == 0 for _, k in rest.terms):
                        return atom.den, -sign * atom.num.const % atom.den
    return 1, 0


def _has_elements(e: Scope, i: Iter, form: Index, low: int, high: int, step: int) -> bool:
    """Some place of the band lies in the iterator's range whatever the loops are."""
    least, most = bounds(var(i.name) - form, {k: r for k, r in e.ranges.items() if k != i.name})
    first = max(low, i.lo - least)
    return first + (low - first) % step <= min(high, i.hi - 1 - most)


def needed(body: Body, value: Number, name: str, ranges: dict[str, Range]) -> tuple[Cond, ...]:
    """Conditions without any of which the body is `value`: 0 or -inf."""
    match body:
        case Select(conds, then, Const(v)) if v == value:
            return (*conds, *needed(then, value, name, ranges))
        case Read(Scope() as s, index, fill) if fill == value or all(in_range(ix, own, ranges) for ix, own in zip(index, s.box)):
            return _needed_inside(s, index, value, name)
        case Mul(args) if value == 0:
            return _together([(total(a), needed(a, value, name, ranges)) for a in args])
        case Div(num, den) if value == 0 and name not in used_names(den):
            return needed(num, value, name, ranges)
        case Call("exp", (arg,)) if value == 0:
            return needed(arg, -INF, name, ranges)
        case Call(function, (arg,)) if value == 0 and function in KEEPS_ZERO:
            return needed(arg, value, name, ranges)
        case Add(args) if value == -INF:
            return _together([(state(a) != BROKEN, needed(a, value, name, ranges)) for a in args])
    return ()


def _together(parts: Sequence[tuple[bool, tuple[Cond, ...]]]) -> tuple[Cond, ...]:
    """The conditions of factors or summands; where some may have no value, only those without which none of these is anything but neutral."""
    loose = [conds for has_value, conds in parts if not has_value]
    if not loose:
        return tuple(c for _, conds in parts for c in conds)
    return tuple(c for c in loose[0] if all(c in conds for conds in loose))


def _needed_inside(s: Scope, index: tuple[Index, ...], value: Number, name: str) -> tuple[Cond, ...]:
    """The same of what a scope that reduces nothing holds, at the places where it is read."""
    if s.sums or s.reduce != "sum" or any(ix.den != 1 for ix in index):
        return ()
    mapping = {i.name: ix for i, ix in zip(s.loops, index)}
    return tuple(Cond(substitute(c.index, mapping), c.equal) for c in needed(s.body, value, _loop_of(s, index, name), s.ranges))


def _loop_of(s: Scope, index: tuple[Index, ...], name: str) -> str:
    """The scope's loop that the iterator runs through."""
    return next((i.name for i, ix in zip(s.loops, index) if name in ix.names()), "")


class _Left(Exception):
    """Some scope cannot be written along the band; the message says why."""


def banded(e: Scope) -> Scope | Refused:
    """The scope with all its reductions, and those of the scopes it reads, along their bands."""
    try:
        return _banded(e)
    except _Left as why:
        return Refused(str(why))


def along(e: Scope, moved: str, asked: frozenset[Index]) -> Scope | Refused:
    """The scope with what it reads along the band that one of its iterators runs through, asked for where all of these functions are 0 or more."""
    try:
        return _followed(e, frozenset((moved,)), asked)
    except _Left as why:
        return Refused(str(why))


@lru_cache(maxsize=1 << 10)
def _banded(e: Scope) -> Scope:
    moved: set[str] = set()
    for i in e.sums:
        along = band_of(e, i)
        if along is not None:
            e = _narrowed(e, i, *along)
            moved.add(i.name)
    return _followed(e, frozenset(moved))


def _narrowed(e: Scope, i: Iter, place: Index, extent: int) -> Scope:
    """The reduction over the elements of the band; those beyond the iterator's range stay neutral."""
    sums = tuple(Iter(i.name, 0, extent) if k == i else k for k in e.sums)
    ranges = {**e.ranges, i.name: (0, extent)}
    least, most = bounds(place, ranges)
    body = substitute_body(e.body, {i.name: place})
    if e.reduce != "sum" or not zero_outside(e.body, i.name, i.range, e.ranges):
        body = guarded(body, place, i.range, (least, most), neutral(e.reduce))
    return replace(e, sums=sums, body=tidy(body, ranges))


def guarded(body: Body, place: Index, box: Range, reach: tuple[int, int], other: Number) -> Body:
    """The body where the place lies in the box."""
    conds = lies_in(place, box, reach)
    return Select(conds, body, Const(other)) if conds else body


def lies_in(place: Index, box: Range, reach: tuple[int, int]) -> tuple[Cond, ...]:
    """Conditions that the place lies in the box, as far as what it reaches, from the least to the greatest value, leaves that open."""
    return (*(Cond(place - box[0]),) * (reach[0] < box[0]), *(Cond(box[1] - 1 - place),) * (reach[1] >= box[1]))


def _followed(e: Scope, moved: frozenset[str], asked: frozenset[Index] = frozenset()) -> Scope:
    """The scopes that are read along the band, where an iterator in `moved` is added to another, over the band's elements.

    e is asked for nothing but where the functions in `asked` are 0 or more.
    """

    def follow(r: Read) -> Body:
        if not isinstance(r.base, Scope):
            return r
        across = [n for n, ix in enumerate(r.index) if len(ix.names()) > 1 and ix.names() & moved]
        return Read(_banded(r.base), r.index, r.fill) if not across else _read_along(e, r, r.base, across, moved, asked)

    return replace(e, body=map_reads(e.body, follow))


def _read_along(e: Scope, r: Read, s: Scope, across: list[int], moved: frozenset[str], asked: frozenset[Index]) -> Read:
    """S[.., g(x)+d·w+lo, ..] as S'[.., w, ..]; beyond the range of S it may hold anything where nobody asks for that."""
    if len(across) != 1:
        raise _Left("a scope is read along two bands")
    (n,) = across
    (w,) = r.index[n].names() & moved
    others = ((ix, i) for k, (ix, i) in enumerate(zip(r.index, s.loops)) if k != n and len(ix.names()) == 1)
    own = {name: i.name for ix, i in others for name in ix.names() if ix == var(name)}
    loop = s.loops[n]
    if not r.index[n].names() - {w} <= own.keys() or w in own:
        if not s.sums:
            return Read(_banded(s), r.index, r.fill)
        raise _Left(f"the index {loop.name} of a scope with a sum adds iterators that do not stand alone in others")
    problem = outside_problem(e, r, s)
    if s.sums and problem:
        raise _Left(problem)
    place = substitute(r.index[n], {w: var(loop.name), **{x: var(name) for x, name in own.items()}})
    unasked = within(r.index[n], loop.range, e.ranges, asked | conditions(e.body))
    along = _along(s, loop, place, e.ranges[w][1], None if unasked or not problem else r.fill, unasked and bool(s.sums))
    known = frozenset((place - loop.lo, loop.hi - 1 - place)) if unasked else frozenset()
    return Read(_inside(along, frozenset({loop.name}), known), tuple(var(w) if k == n else ix for k, ix in enumerate(r.index)), r.fill)


def _along(s: Scope, loop: Iter, place: Index, extent: int, outside: Number | None, spreads: bool) -> Scope:
    """s with so many elements along the loop, each at its place; beyond the loop's range they are `outside`, where it is told what they are."""
    loops = tuple(Iter(i.name, 0, extent) if i is loop else i for i in s.loops)
    ranges = {**s.ranges, loop.name: (0, extent)}
    body = substitute_body(s.body, {loop.name: place})
    body = spread(body, ranges, s) if spreads else body
    body = body if outside is None else guarded(body, place, loop.range, bounds(place, ranges), outside)
    return replace(s, loops=loops, body=tidy(body, ranges))


@lru_cache(maxsize=1 << 10)
def _inside(along: Scope, moved: frozenset[str], asked: frozenset[Index]) -> Scope:
    return _followed(along, moved, asked)


def unconditional(body: Body, ranges: dict[str, Range]) -> Body:
    """Without conditions that hold everywhere. What holds nowhere stays: parts of one loop read the same tensors."""
    body = map_indices(body, lambda ix: simplify(ix, ranges))
    body = rebuilt(body, tuple(unconditional(a, ranges) for a in children(body)))
    if not isinstance(body, Select):
        return body
    left = tuple(c for c in body.conds if not _holds(c, ranges))
    return Select(left, body.then, body.other) if left else body.then


def tidy(body: Body, ranges: dict[str, Range]) -> Body:
    """Identities folded after `unconditional`."""
    return simplify_body(unconditional(body, ranges))


def _holds(c: Cond, ranges: dict[str, Range]) -> bool:
    if c.index.den != 1:
        return False
    low, high = bounds(c.index, ranges)
    return low == high == 0 if c.equal else low >= 0
