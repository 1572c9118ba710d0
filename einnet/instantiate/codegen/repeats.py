"""A costly function that several scopes compute at the same numbers, as a scope of its own, which can be kept in an array.

L[a,b] f(a,b)/{L[a] Σ[d] f(a,d)}[a] = L[a,b] S[a,b]/{L[a] Σ[d] S[a,d]}[a] with S = L[a,b] f(a,b): a softmax adds up the exponentials of a row, and
divides them. In a normal form there is no S, as what is read at its own loops is written out there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from einnet.expr.nodes import Body, Call, Iter, Read, Scope, children, index_functions, indices, rebuild
from einnet.instantiate.codegen.resolve import EXPENSIVE


def factored(scope: Scope) -> Scope:
    """The scope with what several of those in it compute of costly functions read from one that computes it."""
    found: dict[str, list[Scope]] = {}
    for s in scope.parts:
        for key, own in {own.key: own for own in (own_scope(c, s) for c in costly(s.body)) if own.loops}.items():
            found.setdefault(key, []).append(own)
    shared = {key: owns[0] for key, owns in found.items() if len(owns) > 1}
    return _Factoring(shared).scope(scope) if shared else scope


def costly(body: Body) -> Iterator[Call]:
    """The outermost costly functions of a body."""
    if isinstance(body, Call) and body.name in EXPENSIVE:
        yield body
        return
    for a in children(body):
        yield from costly(a)


def own_scope(call: Call, reader: Scope) -> Scope:
    """What the function computes over those iterators of its reader that it uses, in the order in which it does."""
    iters = {i.name: i for i in (*reader.loops, *reader.sums)}
    used: dict[str, Iter] = {}
    for index in index_functions(call):
        used |= {name: iters[name] for name in sorted(index.names() & iters.keys()) if name not in used}
    return Scope(tuple(used.values()), (), call)


@dataclass
class _Factoring:
    """Scopes rewritten, with those of `shared` for what has their key."""

    shared: dict[str, Scope]
    known: dict[Scope, Scope] = field(default_factory=dict)

    def scope(self, s: Scope) -> Scope:
        """The scope with shared ones read; one of them itself keeps its function."""
        if s not in self.known:
            own = isinstance(s.body, Call) and s in self.shared.values()
            body = self.within(s.body, s) if own else self.body(s.body, s)
            self.known[s] = s if body == s.body else Scope(s.loops, s.sums, body, s.reduce)
        return self.known[s]

    def body(self, body: Body, reader: Scope) -> Body:
        """A part of the body of a scope."""
        if isinstance(body, Call) and body.name in EXPENSIVE:
            own = own_scope(body, reader)
            if own.key in self.shared:
                return Read(self.scope(self.shared[own.key]), indices(own.loops))
        return self.within(body, reader)

    def within(self, body: Body, reader: Scope) -> Body:
        """The same for what the node is made of."""
        if isinstance(body, Read):
            return Read(self.scope(body.base), body.index, body.fill) if isinstance(body.base, Scope) else body
        args = children(body)
        return rebuild(body, tuple(self.body(a, reader) for a in args)) if args else body
