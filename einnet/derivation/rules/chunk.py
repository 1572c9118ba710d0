"""chunk: a recurrence that is linear in its state, in chunks: products within each, and a state that goes from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from math import prod

from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.derivation.rules.store import stored
from einnet.derivation.rules.transitions import Recurrence, masked, recurrences
from einnet.expr.index import Index, simplify, var
from einnet.expr.nodes import Body, Cond, Iter, Read, Scope, fresh, indices, make_add, make_mul, map_indices, used_names, walk

FEWEST, KEPT = 4, 2
"""The shortest chunk, and how many lengths are given to the search: those that promise most."""

STORED = 32
"""Points that are evaluated in the time in which an element is stored and read again, roughly."""


@rule("chunk", order=65, guard="what depends on t and s is a product over the times between; nothing else ties them but s <= t", kind="reassociation")
def chunk(e: Scope) -> Iterator[Outcome]:
    """L[t] Σ[s<=t] q(t)*D(t,s)*k(s) = L[t] {L[i,a] Σ[b<=a] q*D*k}[t//C,t%C] + {L[i,a] q*D(C*i+a,C*i-1)*Z[i]}[t//C,t%C], Z[i] = Σ[j<i] D*{Σ[b] D*k}[j]

    D(t,s) = D(t,p)*D(p,s) is what is left at t of what came in at s. Within a chunk of C the sum is as it was; what came in before is one state Z,
    which chunks hand on. The cost is linear in t, where it was quadratic.
    """
    found = False
    for r in recurrences(e):
        if isinstance(r, Refused):
            yield r
            continue
        chunked = [Chunked(e, r, size) for size in sizes(r.t.extent)]
        forms = [(c.size, c.scope(), c.j) for c in chunked]
        for size, scope, _ in sorted(forms, key=lambda f: promise(f[1], f[2]))[:KEPT]:
            found = found or points(scope) < points(e)
            if points(scope) < points(e):
                yield Rewrite(scope, f"{r.t.name}={size}*i+a", "reassociation")
    if not found:
        yield Refused("no sum over the times before one is cheaper in chunks")


def sizes(extent: int) -> list[int]:
    """Powers of two that leave two chunks at least."""
    return list(takewhile(lambda size: 2 * size <= extent, (FEWEST << n for n in count())))


def points(e: Scope) -> int:
    """Points at which bodies are evaluated."""
    return sum(prod(i.extent for i in (*s.loops, *s.sums)) for s in walk(e) if not s.constant)


def promise(e: Scope, j: Iter) -> int:
    """Points, of chunks that hand on a state as many as there are chunks, and what is stored in between: no more for each time at any length."""
    scopes = [s for s in walk(e) if not s.constant]
    walked = sum(prod(i.extent for i in (*s.loops, *s.sums) if i != j or i not in s.sums) for s in scopes)
    return walked + STORED * sum(prod(s.shape) for s in scopes if s is not e)


class Chunked:
    """One recurrence in chunks of one length: t = C*i + a, s = C*j + b."""

    def __init__(self, e: Scope, r: Recurrence, size: int) -> None:
        self.e, self.r, self.size = e, r, size
        taken = {i.name for i in (*e.loops, *e.sums, *r.sums)}
        chunks = -(-r.t.extent // size)
        self.i, self.j = (Iter(fresh(name, taken), 0, chunks) for name in "ij")
        self.a, self.b = (Iter(fresh(name, taken), 0, size) for name in "ab")
        self.others = tuple(i for i in e.loops if i.name != r.t.name)
        self.before = next(n for n, i in enumerate(e.loops) if i.name == r.t.name)

    def at(self, chunk: Iter, place: Iter) -> Index:
        """The time of a place in a chunk."""
        return self.size * var(chunk.name) + var(place.name) + self.r.t.lo

    def entrance(self, chunk: Iter) -> Index:
        """The time just before a chunk, in the direction of the recurrence."""
        return self.size * var(chunk.name) + self.r.t.lo + (-1 if self.r.forward > 0 else self.size)

    def exit(self, chunk: Iter) -> Index:
        """The last time of a chunk."""
        return self.size * var(chunk.name) + self.r.t.lo + (self.size - 1 if self.r.forward > 0 else 0)

    def inside(self, chunk: Iter, place: Iter) -> tuple[Cond, ...]:
        """The time is one of the recurrence's: to be asked where a chunk may be cut short before one that reads it."""
        short = self.r.forward < 0 and self.r.t.extent % self.size
        return (Cond(self.r.t.hi - 1 - self.at(chunk, place)),) if short else ()

    def scope(self) -> Scope:
        """The whole."""
        place = var(self.r.t.name) - self.r.t.lo
        where = {self.i.name: place // self.size, self.a.name: place % self.size}
        parts = [self.within(), self.across()]
        return Scope(self.e.loops, (), make_add(Read(p, tuple(where.get(i.name, var(i.name)) for i in p.loops)) for p in parts))

    def loops(self, *here: Iter) -> tuple[Iter, ...]:
        """Loops of a part, with its own where the whole has the time."""
        return (*self.others[: self.before], *here, *self.others[self.before :])

    def within(self) -> Scope:
        """Σ[b<=a] q*D*k of one chunk: what is reduced besides is reduced first, as far as it needs fewer loops."""
        t, s = self.at(self.i, self.a), self.at(self.i, self.b)
        everything = (*self.r.asked_at(t), *self.r.left_at(t, s), *self.r.coming_at(s))
        loops = self.loops(self.i, self.a)
        known, inner = self._reduced(everything, (*loops, self.b))
        first = [f for f in known if {self.a.name, self.b.name} <= used_names(f)]
        conds = (*self.inside(self.i, self.b), self.r.before(var(self.a.name), var(self.b.name)))
        ranges = Scope(loops, (self.b, *inner), make_mul(known))
        if first:
            scores = self._stored(ranges, masked(conds, make_mul(first)))
            return Scope(loops, ranges.sums, self._simple(make_mul((scores, *(f for f in known if f not in first))), ranges))
        return Scope(loops, ranges.sums, self._simple(masked(conds, make_mul(known)), ranges))

    def _reduced(self, parts: Sequence[Body], around: tuple[Iter, ...]) -> tuple[list[Body], tuple[Iter, ...]]:
        """The factors with those that share what else is summed as one, where not all of the dimensions around are in them."""
        names = {i.name for i in self.r.sums}
        inner = [f for f in parts if used_names(f) & names]
        used = used_names(make_mul(inner))
        own = tuple(i for i in around if i.name in used)
        if not inner or len(own) == len(around):
            return list(parts), self.r.sums
        ranges = Scope(own, self.r.sums, make_mul(inner))
        product = Scope(own, ranges.sums, self._simple(ranges.body, ranges))
        return [*(f for f in parts if not used_names(f) & names), Read(product, indices(own))], ()

    def across(self) -> Scope:
        """q*D*Z: what is asked of the state that enters a chunk."""
        entering = self.entering()
        t = self.at(self.i, self.a)
        loops = self.loops(self.i, self.a)
        early = self._summed_early()
        ranges = Scope(loops, tuple(i for i in self.r.sums if i not in early), make_mul(()))
        asked = make_mul((*self.r.asked_at(t), *self.r.left_at(t, self.entrance(self.i))))
        read = Read(entering, indices(entering.loops))
        plain = isinstance(asked, Read) or not self.r.asked and not self.r.between
        factor = self._simple(asked, ranges) if plain else self._stored(ranges, asked)
        return Scope(loops, ranges.sums, make_mul((factor, read)) if self.r.asked or self.r.between else read)

    def entering(self) -> Scope:
        """Z[i] = Σ[j<i] D*K[j], K[j] = Σ[b] D*k: what the chunks before one have left."""
        given = self.leaving()
        loops = tuple(self.i if i == self.j else i for i in given.loops)
        conds = (Cond((var(self.i.name) - var(self.j.name)) * self.r.forward - 1),)
        left = self.r.left_at(self.entrance(self.i), self.exit(self.j))
        body = masked(conds, make_mul((*left, Read(given, indices(given.loops)))))
        used = {i.name for i in loops}
        extra = tuple(i for i in (*self.others, *self.r.sums) if i.name in used_names(body) and i.name not in used)
        ranges = Scope((*extra, *loops), (self.j,), body)
        return Scope(ranges.loops, ranges.sums, self._simple(body, ranges))

    def leaving(self) -> Scope:
        """K[j] = Σ[b] D*k, over the dimensions of the state."""
        s = self.at(self.j, self.b)
        parts = [*self.r.coming_at(s)]
        decay = self.r.left_at(self.exit(self.j), s)
        used = used_names(make_mul((*parts, *decay)))
        summed = self._summed_early()
        loops = tuple(i for i in self.loops(self.j, *self.r.sums) if (i.name in used or i == self.j) and i not in summed)
        ranges = Scope(loops, (self.b, *summed), make_mul((*parts, *decay)))
        conds = self.inside(self.j, self.b)
        if decay and parts:
            least = min(parts, key=lambda f: prod(hi - lo for n, (lo, hi) in ranges.ranges.items() if n in used_names(f)))
            rest = [f for f in parts if f is not least]
            first: Body = self._stored(ranges, masked(conds, make_mul((*decay, least)))) if rest else masked(conds, make_mul((*decay, least)))
            return Scope(loops, ranges.sums, self._simple(make_mul((first, *rest)), ranges))
        return Scope(loops, ranges.sums, self._simple(masked(conds, make_mul((*decay, *parts))), ranges))

    def _summed_early(self) -> tuple[Iter, ...]:
        """What is summed before it becomes state: nobody asks for it."""
        asked = used_names(make_mul((*self.r.asked, *self.r.between)))
        return tuple(i for i in self.r.sums if i.name not in asked and i.name in used_names(make_mul(self.r.coming)))

    def _stored(self, around: Scope, body: Body) -> Read:
        return stored(around, self._simple(body, around))

    def _simple(self, body: Body, around: Scope) -> Body:
        return map_indices(body, lambda e: simplify(e, around.ranges))
