"""Scopes written anew from the inside, each once however many read it."""

from __future__ import annotations

from collections.abc import Callable

from einnet.expr.nodes import Body, Read, Scope, Tensor, map_reads


def written_anew(scope: Scope, move: Callable[[Read, Scope], Read], finish: Callable[[Scope, Body], Scope]) -> Scope:
    """The scope with those inside written anew: `move` is given each read, of what its base has become, and the scope it stands in as that was;
    `finish` a scope as it was and its new body, which is the old one where nothing in it has changed."""
    made: dict[Scope, Scope] = {}

    def of(s: Scope) -> Scope:
        if s not in made:
            made[s] = finish(s, map_reads(s.body, lambda r: move(based(r), s)))
        return made[s]

    def based(r: Read) -> Read:
        base = r.base if isinstance(r.base, Tensor) else of(r.base)
        return r if base is r.base else Read(base, r.index, r.fill)

    return of(scope)
