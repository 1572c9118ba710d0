"""Two expressions compared part by part: what is one tensor inside both is cut out, the least first, and the rest compared with these as tensors.

Both sides are brought into one form first: what reduces nothing is merged into what reads it. The scopes that are left are reductions, which the
two sides do not have in common where one of them has summed in two steps. Those of one normal form, on both sides, are one tensor, wherever
and however often they stand. Where a cut hides what makes the two equal, what was cut is put back, one level at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.checker.check import Proof, check_exact
from einnet.derivation.checker.exact import marked
from einnet.errors import CertificateError
from einnet.evidence.normal import flat, within_reach
from einnet.expr.nodes import Read, Scope, Tensor, map_reads, nested, tensors
from einnet.expr.normal.inline import inline
from einnet.expr.normal.limits import OutOfReach, at_most
from einnet.instantiate.kernels.generated import from_zero

MOST_TERMS = 1 << 12
"""Canonical terms that one comparison of normal forms may take; beyond, the two sides are taken to have none in common."""

LEVELS = 4
"""How often what was cut is put back, before the two are compared as they are."""

Form = Callable[[Scope], Scope]


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
    one, other = flat(one), flat(other)
    if one.key == other.key or matched(one, other, marked):
        return Proof("inline", "operations grouped alike, part by part")
    near = flat(within_reach(one)), flat(within_reach(other))
    if near != (one, other) and matched(*near, marked):
        return Proof("inline", "operations grouped alike, part by part, of what is read")
    with at_most(MOST_TERMS):
        found = check_exact(one, other, Proof("random", "evaluated"))
    if found.kind != "exact":
        raise CertificateError("whether operations are grouped alike is not told: too many to evaluate")
    return found


@lru_cache(maxsize=1 << 10)
def equal_by_parts(one: Scope, other: Scope) -> bool:
    """The two are one tensor by normal forms, part by part."""
    return same_form(one, other) or matched(flat(one), flat(other), plain)


def matched(one: Scope, other: Scope, form: Form) -> bool:
    """The two are alike in a form, with as much of them cut out as can be, or with less."""
    return any(same_form(form(left), form(right)) for left, right in levels(one, other, form))


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


def levels(one: Scope, other: Scope, form: Form) -> Iterator[tuple[Scope, Scope]]:
    """The two with what is alike inside both as tensors; then with less and less of that; at last as they are."""
    cut = common(one, other, form)
    for _ in range(LEVELS):
        if not cut:
            break
        left, right = replaced(one, cut), replaced(other, cut)
        yield left, right
        used = {*tensors(left).values(), *tensors(right).values()}
        cut = {scope: tensor for scope, tensor in cut.items() if tensor not in used}
    yield one, other


def common(one: Scope, other: Scope, form: Form) -> dict[Scope, Tensor]:
    """A tensor for each scope inside that the other side has, too: one for all that are alike in a form, those inside them cut out."""
    sides = (inside(one), inside(other))
    known: dict[tuple[tuple[int, ...], str], tuple[list[Scope], set[int]]] = {}
    cut: dict[Scope, Tensor] = {}
    for scope in sorted({**sides[0], **sides[1]}, key=lambda s: max(side.get(s, 0) for side in sides)):
        key = key_of(form(from_zero(replaced(scope, cut))))
        members, seen = known.setdefault((scope.shape, key), ([], set()))
        members.append(scope)
        seen.update(n for n, side in enumerate(sides) if scope in side)
        if len(seen) == len(sides):
            tensor = cut.get(members[0], Tensor(f"part{len(cut)}", scope.shape))
            cut.update(dict.fromkeys(members, tensor))
    return cut


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


def replaced(scope: Scope, cut: Mapping[Scope, Tensor]) -> Scope:
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
            return Read(cut[r.base], tuple(ix - lo for ix, (lo, _) in zip(r.index, r.base.box, strict=True)), r.fill)
        return Read(rest(r.base), r.index, r.fill)

    return rest(scope)
