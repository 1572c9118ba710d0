"""What forms compute, in whatever order they store it.

The key of a scope forgets the order in which it sums, and the order of the sum is the order of the dimensions that rules give to what they store of a
part of it: of two scopes with one key the first that is met says in which order. Forms that differ by that alone have one key here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from einnet.derivation.facts import is_copy
from einnet.expr.index import substitute, var
from einnet.expr.nodes import Read, Scope, inside, map_reads
from einnet.search.forms import Form


def storage_free(form: Form) -> str:
    """The key of a form whose intermediate tensors have their dimensions in an order that depends on what they hold, and are not transposed."""

    def key(scope: Scope) -> str:
        return (_within(scope) if scope is form.tree else _ordered(scope)[0]).key

    return key(form.tree) + "".join(sorted({m.table[0] + key(s) for s, m in form.matches}))


def cheapest(forms: Iterable[Form]) -> dict[str, int]:
    """What the cheapest form costs of those that compute the same, by what they compute."""
    found: dict[str, int] = {}
    for form in forms:
        key = storage_free(form)
        found[key] = min(form.efforts[0], found.get(key, form.efforts[0]))
    return found


@lru_cache(maxsize=1 << 16)
def _ordered(scope: Scope) -> tuple[Scope, tuple[int, ...]]:
    """The scope with its loops ordered by how all of it looks from each, and where each was."""
    whole = _within(scope)
    seen = [replace(whole, loops=(i,), sums=(*(other for other in whole.loops if other != i), *whole.sums)).key for i in whole.loops]
    order = tuple(sorted(range(len(seen)), key=seen.__getitem__))
    return replace(whole, loops=tuple(whole.loops[n] for n in order)), order


def _within(scope: Scope) -> Scope:
    """The scope as it is, reading what is ordered."""

    def ordered(read: Read) -> Read:
        base = read.base
        while isinstance(base, Scope) and _transposes(base) and inside(read, scope.ranges):
            assert isinstance(base.body, Read)
            at = {i.name: place for i, place in zip(base.loops, read.index, strict=True)}
            read = Read(base.body.base, tuple(substitute(e, at) for e in base.body.index), base.body.fill)
            base = read.base
        if not isinstance(base, Scope):
            return read
        other, order = _ordered(base)
        return Read(other, tuple(read.index[n] for n in order), read.fill)

    return replace(scope, body=map_reads(scope.body, ordered))


def _transposes(scope: Scope) -> bool:
    """All that is read, or a slice of it, with its dimensions in another order."""
    if not is_copy(scope) or not isinstance(scope.body, Read):
        return False
    places = [e for e in scope.body.index if e.terms]
    return len(places) == len(scope.loops) and set(places) == {var(i.name) for i in scope.loops}
