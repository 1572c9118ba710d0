"""Two scopes without what both of them read: what is left of two sides that have most in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import lru_cache

from einnet.expr.nodes import Body, Read, Scope, Tensor, children, indices, rebuild, walk
from einnet.expr.normal.totals import total

Pair = tuple[Scope, Scope]


def apart(before: Scope, after: Scope, *, numbers: bool = False, evenly: bool = False, only: Callable[[Scope], bool] = lambda _: True) -> Pair:
    """The two scopes with what both of them read, unchanged, as tensors: what is equal then is equal.

    With `numbers` only what is a number at every place: a tensor is one, and 0 times what may not exist is not 0. Without, for scopes that are
    known to be equal, and asked how they group. With `evenly` only what both read equally often: what one side reads more often, the other one may
    read in another way. `only` says which scopes are cut away.
    """
    left, right = _read_within(before), _read_within(after)
    common = (s for s, often in left.items() if (often == right.get(s) if evenly else s in right))
    cut = frozenset(s for s in common if only(s) and (not numbers or total(Read(s, indices(s.loops)))))
    return (cut_away(before, cut), cut_away(after, cut)) if cut else (before, after)


def name_apart(scope: Scope) -> str:
    """The name of the tensor that stands for a scope which is cut away."""
    return f"scope_{scope.key}"


@lru_cache(maxsize=1 << 8)
def _read_within(scope: Scope) -> Mapping[Scope, int]:
    """How often each scope is read inside a scope."""
    return Counter(s for s in walk(scope) if s is not scope)


def partings(before: Scope, after: Scope, *, numbers: bool = False) -> tuple[Pair, ...]:
    """The two scopes with more and more of them left: without what both read, without what both read equally often, and as they are."""
    cut = (apart(before, after, numbers=numbers, evenly=evenly) for evenly in (False, True))
    return tuple(dict.fromkeys((*cut, (before, after))))


def cut_away(scope: Scope, common: Set[Scope]) -> Scope:
    """The scope with a tensor in place of each of those, wherever it is read."""
    return replace(scope, body=_cut_body(scope.body, common))


def _cut_body(body: Body, common: Set[Scope]) -> Body:
    if isinstance(body, Read) and isinstance(body.base, Scope):
        if body.base not in common:
            return Read(cut_away(body.base, common), body.index, body.fill)
        index = tuple(e - lo for e, (lo, _) in zip(body.index, body.base.box, strict=True))
        return Read(Tensor(name_apart(body.base), body.base.shape), index, body.fill)
    args = tuple(_cut_body(a, common) for a in children(body))
    return rebuild(body, args) if args else body
