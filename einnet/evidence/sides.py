"""Two expressions compared part by part: what is one tensor inside both is cut out, the least first, and the rest compared with these as tensors.

Both sides are brought into one form first: what reduces nothing is merged into what reads it. The scopes that are left are reductions, which the
two sides do not have in common where one of them has summed in two steps. Those of one normal form, on both sides, are one tensor, wherever
and however often they stand. Where a cut hides what makes the two equal, what was cut is put back, one level at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from einnet.derivation.checker.check import Proof, check_exact
from einnet.derivation.checker.exact import marked
from einnet.errors import CertificateError
from einnet.evidence.normal import changes, flat, narrowed, with_unit_reads, within_reach
from einnet.expr.index import Range
from einnet.expr.nodes import Read, Scope, Tensor, index_functions, map_reads, nested, tensors
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach, at_most
from einnet.instantiate.kernels.generated import from_zero

MOST_TERMS = 1 << 12
"""Canonical terms that one comparison of normal forms may take; beyond, the two sides are taken to have none in common."""

LEVELS = 4
"""How often what was cut is put back, before the two are compared as they are."""

MOST_CELLS = 32
"""Cells of one box at most; a tensor that would have more is compared as a whole."""

Form = Callable[[Scope], Scope]
Key = Callable[[Scope], str]


def plain(scope: Scope) -> Scope:
    """The scope: two are alike that are one tensor."""
    return scope


@lru_cache(maxsize=1 << 10)
def grouped(one: Scope, other: Scope) -> Proof:
    """A proof that the two add and multiply the same numbers in the same groups: "inline" by normal forms, so that they are one tensor, too, or
    "random" at points, which says nothing of that.

    Raises CertificateError where they do not, or that is not told.
    """
    if one.key == other.key:
        return Proof("inline", "equal but for names and order")
    merged = flat(one), flat(other)
    if merged[0].key == merged[1].key or matched(*merged, marked):
        return Proof("inline", "operations grouped alike, part by part")
    near = flat(with_unit_reads(within_reach(merged[0]))), flat(with_unit_reads(within_reach(merged[1])))
    if near != merged and matched(*near, marked):
        return Proof("inline", "operations grouped alike, part by part, of what is read")
    if matched_by_cells(one, other, marked):
        return Proof("inline", "operations grouped alike, cell by cell")
    with at_most(MOST_TERMS):
        found = check_exact(*merged, Proof("random", "evaluated"))
    if found.kind != "exact":
        raise CertificateError("whether operations are grouped alike is not told: too many to evaluate")
    return found


@lru_cache(maxsize=1 << 10)
def equal_by_parts(one: Scope, other: Scope) -> bool:
    """The two are one tensor by normal forms: part by part first, whose forms are small; as a whole at last."""
    return matched(flat(one), flat(other), plain) or same_form(one, other)


def matched(one: Scope, other: Scope, form: Form) -> bool:
    """The two are alike in a form, with as much of them cut out as can be, or with less."""
    return any(same_form(form(left), form(right)) for left, right in levels(one, other, lambda s: key_of(form(s))))


def matched_by_cells(one: Scope, other: Scope, form: Form) -> bool:
    """The two are alike in a form on each cell of their box, parts of them on the cells of theirs; one of these is not the whole box."""
    cells = partitions([one, other, *inside(one), *inside(other)])

    def key(scope: Scope) -> str:
        return "\n".join(key_of(form(flat(within_reach(narrowed(scope, cell))))) for cell in cells.get(scope.shape, [scope.box]))

    return bool(cells) and one.box == other.box and any(key(from_zero(a)) == key(from_zero(b)) for a, b in levels(one, other, key))


def partitions(scopes: Iterable[Scope]) -> dict[tuple[int, ...], list[tuple[Range, ...]]]:
    """Cells for each shape of which a scope makes choices along dimensions: they end where the choices of any scope of that shape change."""
    ends: dict[tuple[int, ...], list[set[int]]] = {}
    for scope in scopes:
        known = ends.setdefault(scope.shape, [{0, n} for n in scope.shape])
        for axis, place in changes(flat(from_zero(scope))):
            known[axis].add(place)
    found = {shape: [list(pairwise(sorted(places))) for places in axes] for shape, axes in ends.items()}
    return {shape: list(product(*axes)) for shape, axes in found.items() if 1 < prod(map(len, axes)) <= MOST_CELLS}


@lru_cache(maxsize=1 << 12)
def same_form(one: Scope, other: Scope) -> bool:
    """The two have one normal form."""
    return one.key == other.key or (one.box == other.box and key_of(one) == key_of(other))


def key_of(scope: Scope) -> str:
    """The key of the normal form, and of the scope itself where that is out of reach."""
    try:
        with at_most(MOST_TERMS):
            return inline(scope).key
    except OutOfReach:
        return scope.key


def levels(one: Scope, other: Scope, key: Key) -> Iterator[tuple[Scope, Scope]]:
    """The two with what is alike inside both as tensors; then with less and less of that; at last as they are."""
    cut = common(one, other, key)
    for _ in range(LEVELS):
        if not cut:
            break
        left, right = replaced(one, cut), replaced(other, cut)
        yield left, right
        used = {*tensors(left).values(), *tensors(right).values()}
        cut = {scope: part for scope, part in cut.items() if part.tensor not in used}
    yield one, other


class Part(NamedTuple):
    """What is read in place of a scope: a tensor whose dimensions are the scope's, in this order."""

    tensor: Tensor
    order: tuple[int, ...]


def common(one: Scope, other: Scope, key: Key) -> dict[Scope, Part]:
    """A tensor for each scope inside that the other side has, too, in whatever order of dimensions: one for all of one key, those inside them cut
    out."""
    sides = (inside(one), inside(other))
    known: dict[tuple[tuple[int, ...], str], tuple[dict[Scope, Part], set[int]]] = {}
    cut: dict[Scope, Part] = {}
    for scope in sorted({**sides[0], **sides[1]}, key=lambda s: max(side.get(s, 0) for side in sides)):
        for order in dict.fromkeys((tuple(range(len(scope.loops))), arrangement(scope))):
            arranged = replace(scope, loops=tuple(scope.loops[n] for n in order))
            members, seen = known.setdefault((arranged.shape, key(from_zero(replaced(arranged, cut)))), ({}, set()))
            tensor = next((part.tensor for part in members.values()), Tensor(f"part{len(known)}", arranged.shape))
            members[scope] = Part(tensor, order)
            seen.update(n for n, side in enumerate(sides) if scope in side)
            if len(seen) == len(sides):
                cut.update({member: part for member, part in members.items() if member not in cut})
                break
    return cut


@lru_cache(maxsize=1 << 12)
def arrangement(scope: Scope) -> tuple[int, ...]:
    """Its dimensions in the order in which the body names their iterators, those of one index by their strides; then those of extent 1."""
    places = {i.name: n for n, i in enumerate(scope.loops) if i.extent > 1}
    found: list[int] = []
    for ix in index_functions(scope.body):
        strides = {atom: abs(c) for atom, c in ix.terms if isinstance(atom, str)}
        found += [places[name] for name in sorted(ix.names() & places.keys(), key=lambda name: (-strides.get(name, 0), places[name]))]
    return tuple(dict.fromkeys((*found, *places.values(), *range(len(scope.loops)))))


def inside(scope: Scope) -> dict[Scope, int]:
    """The distinct scopes inside, with how deep scopes stand in each."""
    found: dict[Scope, int] = {}

    def depth(s: Scope) -> int:
        for inner in nested(s):
            if inner not in found:
                found[inner] = depth(inner)
        return 1 + max((found[inner] for inner in nested(s)), default=0)

    depth(scope)
    return found


def replaced(scope: Scope, cut: Mapping[Scope, Part]) -> Scope:
    """The scope with some of those that it reads, at any depth, as tensors."""
    done: dict[Scope, Scope] = {}

    def rest(s: Scope) -> Scope:
        if s not in done:
            done[s] = replace(s, body=map_reads(s.body, swap))
        return done[s]

    def swap(r: Read) -> Read:
        if isinstance(r.base, Tensor):
            return r
        if r.base in cut:
            part = cut[r.base]
            return Read(part.tensor, tuple(r.index[n] - r.base.box[n][0] for n in part.order), r.fill)
        return Read(rest(r.base), r.index, r.fill)

    return rest(scope)
