"""Two scopes without what both of them read: what is left of two sides that have most in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import lru_cache

from einnet.expr.nodes import Body, Call, Read, Scope, Tensor, children, indices, rebuild, walk
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
    whole = {s for s in common if not numbers or total(Read(s, indices(s.loops)))}
    partly = {s for s in common if s not in whole and infinities(Read(s, indices(s.loops))) == NEITHER}
    return (cut_away(before, whole, partly), cut_away(after, whole, partly)) if whole or partly else (before, after)


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


def cut_away(scope: Scope, common: Set[Scope], partly: Set[Scope] = frozenset()) -> Scope:
    """The scope with a tensor in place of each of those, wherever it is read, and with the logarithm of one for what exists `partly`."""
    return replace(scope, body=_cut_body(scope.body, common, partly))


def _cut_body(body: Body, common: Set[Scope], partly: Set[Scope]) -> Body:
    if isinstance(body, Read) and isinstance(body.base, Scope):
        base = body.base
        if base in partly:
            element = Read(Tensor(name_apart(base), base.shape), tuple(e - i.lo for e, i in zip(indices(base.loops), base.loops, strict=True)))
            return Read(Scope(base.loops, (), Call("log", (element,))), body.index, body.fill)
        if base not in common:
            return Read(cut_away(base, common, partly), body.index, body.fill)
        index = tuple(e - lo for e, (lo, _) in zip(body.index, base.box, strict=True))
        return Read(Tensor(name_apart(base), base.shape), index, body.fill)
    args = tuple(_cut_body(a, common, partly) for a in children(body))
    return rebuild(body, args) if args else body
