"""Two scopes without what both of them read: what is left of two sides that have most in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache

from einnet.expr.index import Index
from einnet.expr.nodes import Body, Call, Read, Scope, Tensor, children, indices, rebuild, walk_repeated
from einnet.expr.normal.infinities import NEITHER, infinities
from einnet.expr.normal.totals import total

Pair = tuple[Scope, Scope]


def apart(before: Scope, after: Scope, *, numbers: bool = False, evenly: bool = False, only: Callable[[Scope], bool] = lambda _: True) -> Pair:
    """The two scopes with what both of them read, unchanged, as tensors: what is equal then is equal.

    With `numbers` a tensor stands for what is a number at every place only, since 0 times what may not exist is not 0: for what may not exist there
    stands the logarithm of a tensor, which is any number or none, and what may be infinite stays. Without, for scopes that are known to be equal,
    and asked how they group. With `evenly` only what both read equally often: what one side reads more often, the other one may
    read in another way. `only` says which scopes are cut away.
    """
    left, right = _read_within(before), _read_within(after)
    common = [s for s, often in left.items() if (often == right.get(s) if evenly else s in right) and only(s)]
    elements = {s: Read(s, indices(s.loops)) for s in common}
    whole = {s for s, element in elements.items() if not numbers or total(element)}
    partly = {s for s, element in elements.items() if s not in whole and infinities(element) == NEITHER}
    return (cut_away(before, whole, partly), cut_away(after, whole, partly)) if whole or partly else (before, after)


def name_apart(scope: Scope) -> str:
    """The name of the tensor that stands for a scope which is cut away."""
    return f"scope_{scope.key}"


@lru_cache(maxsize=1 << 8)
def _read_within(scope: Scope) -> Mapping[Scope, int]:
    """How often each scope is read inside a scope."""
    return Counter(s for s in walk_repeated(scope) if s is not scope)


def partings(before: Scope, after: Scope, *, numbers: bool = False) -> tuple[Pair, ...]:
    """The two scopes with more and more of them left: without what both read, without what both read equally often, and as they are."""
    cut = (apart(before, after, numbers=numbers, evenly=evenly) for evenly in (False, True))
    return tuple(dict.fromkeys((*cut, (before, after))))


def cut_away(scope: Scope, common: Set[Scope], partly: Set[Scope] = frozenset()) -> Scope:
    """The scope with a tensor in place of each of those, wherever it is read, and with the logarithm of one for what exists `partly`."""
    return replace(scope, body=_cut_body(scope.body, common, partly))


def _cut_body(body: Body, common: Set[Scope], partly: Set[Scope]) -> Body:
    if isinstance(body, Read) and isinstance(body.base, Scope):
        base = body.base
        if base in common:
            return replace(stand_in(base, body.index), fill=body.fill)
        if base in partly:
            return replace(body, base=Scope(base.loops, (), Call("log", (stand_in(base, indices(base.loops)),))))
        return replace(body, base=cut_away(base, common, partly))
    args = tuple(_cut_body(a, common, partly) for a in children(body))
    return rebuild(body, args) if args else body


def stand_in(scope: Scope, index: Sequence[Index]) -> Read:
    """An element of the tensor that stands for a scope which is cut away, whose box begins at 0."""
    return Read(Tensor(name_apart(scope), scope.shape), tuple(e - lo for e, (lo, _) in zip(index, scope.box, strict=True)))
