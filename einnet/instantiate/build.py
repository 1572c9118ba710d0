"""From an expression with vendor matches to kernels over buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count
from math import prod

from einnet.derivation.moves.rule import Rewrite
from einnet.derivation.rules.forced.merge import merged
from einnet.derivation.rules.substitute import split, split_sum_iterator, wrapped
from einnet.derivation.rules.transitions import running
from einnet.expr.functions import named
from einnet.expr.index import Floor, Index, denominators, var
from einnet.expr.nodes import Body, Call, Read, Scope, Tensor, children, index_functions, is_weight, map_reads, reads, tensors, walk
from einnet.instantiate.address import is_alias
from einnet.instantiate.choices import tabled
from einnet.instantiate.chunks import chunked
from einnet.instantiate.epilogues import absorb
from einnet.instantiate.joint import joined
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, Post, View, anchored, dense_view
from einnet.instantiate.kernels.contractions import arithmetic_of
from einnet.instantiate.matching.types import Match
from einnet.instantiate.one_of_each import one_of_each
from einnet.instantiate.padding import padded
from einnet.instantiate.row_fusion import along, handed_on, in_one_kernel
from einnet.instantiate.shared_windows import shared_windows
from einnet.instantiate.stitch import Piece, pieces
from einnet.instantiate.weight_order import in_order

COSTLY = named(costly=True)
"""Functions that take many times as long as to store a value and to load it."""

Matches = tuple[tuple[Scope, Match], ...]
"""Scopes that are vendor operators."""


@dataclass
class Build:
    """Kernels in order, the temporary buffers they need, and the constant buffers that are computed from weights once."""

    kernels: list[Kernel] = field(default_factory=list)
    temporaries: dict[str, Buffer] = field(default_factory=dict)
    weights: dict[str, Scope] = field(default_factory=dict)

    @cached_property
    def priced(self) -> tuple[Kernel, ...]:
        """The kernels as far as their cost depends on them: parts of a batch are equal."""
        return tuple(map(_met, map(anchored, self.kernels)))

    @cached_property
    def counts(self) -> Mapping[Kernel, int]:
        """How often each of these kernels runs, in the order in which they are first met."""
        return Counter(self.priced)


@lru_cache(maxsize=1 << 13)
def _met(kernel: Kernel) -> Kernel:
    """The kernel as it was met first: what is one object is seen to be equal at once."""
    return kernel


def build(tree: Scope, matches: Mapping[Scope, Match], out: str, epilogues: bool = True) -> Build:
    """Kernels that compute `tree` into the dense buffer `out`; tensors are dense buffers of their own name.

    Scopes in `matches` become vendor kernels, weight-only scopes constants, the rest eOperators, pointwise tails going into the vendor
    kernel before them where it has such an epilogue (and `epilogues` are wanted: some implementations are much slower with one).
    """
    return next(builds(tree, matches, out, epilogues))


def builds(tree: Scope, matches: Mapping[Scope, Match], out: str, epilogues: bool = True) -> Iterator[Build]:
    """The kernels as `build` gives them; where no library is asked and sums of products stand in each other, one kernel that stores nothing in
    between; where libraries are asked, one kernel for what stands between two of their products and for both of these, if a sum under a maximum
    stands there; products of one operand with weights as one product; and the kernels run part by part where the temporaries of all parts
    together leave the cache.

    Whether there is a second way depends on no size: programs for many sizes know ways by their number.
    """
    tree, matches = one_of_each(tree, matches)
    result = _Builder(matches, epilogues, out).of(tree)
    yield _padded(result)
    if in_one_kernel(tree, bool(matches)):
        whole = _Builder({}, False, out, frozenset(tree.parts))
        whole.generated(tree, out)
        yield whole.result
    results, inside = [result], handed_on(matches)
    if inside:
        apart = {s: m for s, m in matches.items() if s not in inside}
        results.append(_Builder(apart, epilogues, out, inside).of(tree))
        yield _padded(results[-1])
    for found in results:
        joint = joined(found.kernels, found.temporaries, {**{t.name: t for t in tensors(tree).values() if t.weight}, **found.weights})
        if joint is not None:
            yield Build(*padded(joint.kernels, joint.temporaries), {**found.weights, **joint.weights})
    parted = chunked(result.kernels, result.temporaries)
    if parted is not None:
        yield replace(result, kernels=parted[0], temporaries=parted[1])


class Builds:
    """What `builds` gives into one buffer, each made when it is first asked for and once: a search meets the same expressions turn after turn."""

    def __init__(self, out: str) -> None:
        self._out = out
        self._known: dict[tuple[Scope, Matches, bool], tuple[Iterator[Build], list[Build]]] = {}

    def of(self, tree: Scope, matches: Matches, epilogues: bool) -> Iterator[tuple[int, Build]]:
        """The ways to run an expression, numbered."""
        key = tree, matches, epilogues
        if key not in self._known:
            self._known[key] = builds(tree, dict(matches), self._out, epilogues), []
        source, made = self._known[key]
        for n in count():
            if n == len(made):
                following = next(source, None)
                if following is None:
                    return
                made.append(following)
            yield n, made[n]


def _padded(result: Build) -> Build:
    """The kernels with crowded matrices of products padded."""
    kernels, temporaries = padded(result.kernels, result.temporaries)
    return replace(result, kernels=kernels, temporaries=temporaries)


class _Builder:
    """Scopes `inside` stay in the kernel that reads them, reductions too. What goes `out` may be stored as bytes, temporary buffers hold floats."""

    def __init__(self, matches: Mapping[Scope, Match], epilogues: bool, out: str, inside: frozenset[Scope] = frozenset()) -> None:
        self.matches = dict(matches)
        self.out = out
        self.epilogues = epilogues
        self.inside = inside
        self.apart = inside.union(matches)
        self.result = Build()
        self.done: dict[Scope, str] = {}
        self._closed: dict[Scope, Scope] = {}

    def of(self, tree: Scope) -> Build:
        """The kernels of the whole tree."""
        self.emit(tree, self.out)
        kernels, temporaries = shared_windows(self.result.kernels, self.result.temporaries)
        return replace(self.result, kernels=kernels, temporaries=temporaries)

    def buffer_of(self, base: Tensor | Scope) -> str:
        """The dense buffer that holds a tensor or a scope, computed now if need be."""
        if isinstance(base, Tensor):
            return base.name
        if base in self.done:
            return self.done[base]
        if is_weight(base):
            name = "w_" + base.key[:20]
            self.result.weights[name] = base
        elif is_alias(base):
            assert isinstance(base.body, Read)
            name = self.buffer_of(base.body.base)
        else:
            name = "t_" + base.key[:20]
            self.result.temporaries[name] = Buffer(name, prod(base.shape), "f32", "temporary")
            self.emit(base, name)
        self.done[base] = name
        return name

    def emit(self, scope: Scope, out: str) -> None:
        """Kernels that compute the scope into a buffer."""
        if scope in self.matches:
            self.vendor(self.matches[scope], out)
            return
        parts = pieces(scope)
        if any(s.sums for p in parts for s in walk(p.scope)) and not any(p.scope in self.done for p in parts):
            for n, part in enumerate(parts):
                if any(part.scope in other.scope.inside for other in parts):  # computed once, where the others can read it
                    self.placed(part, self.buffer_of(part.scope), out)
                else:
                    self.piece(part, f"{out}_{n}", out)
            return
        scope = self.fused(scope)
        for r in reads(scope.body) if self.epilogues else ():
            if isinstance(r.base, Scope) and r.base in self.matches:
                match = self.matches[r.base]
                whole = out == self.out and arithmetic_of(match.kernel).whole
                posts = absorb(scope, r.base, match.kernel.result, self.buffer_of, whole) if match.kernel.takes_posts else None
                if posts is not None:
                    self.vendor(match, out, posts)
                    return
        self.generated(scope, out)

    def piece(self, part: Piece, name: str, out: str) -> None:
        """Kernels that compute a part of a concatenation where it stands in `out`, or apart from it and then copy, where strides cannot say it."""
        first = len(self.result.kernels)
        self.emit(part.scope, name)
        made = self.result.kernels[first:]
        views = {v: part.window.view(v, out) for k in made for v in (*k.operand_views, *k.result_views) if v.buffer == name}
        if all(views.values()):
            self.result.kernels[first:] = [k.map_views(lambda v: views.get(v) or v) for k in made]
            return
        self.result.temporaries[name] = Buffer(name, prod(part.scope.shape), "f32", "temporary")
        self.placed(part, name, out)

    def placed(self, part: Piece, name: str, out: str) -> None:
        """The kernel that copies a part of a concatenation from a dense buffer to where it stands in `out`."""
        source = Read(Tensor(name, part.scope.shape), tuple(var(i.name) - i.lo for i in part.scope.loops))
        target = part.window.view(dense_view(name, part.scope.shape), out)
        assert target is not None, "a dense view can always be placed"
        copy = Scope(part.scope.loops, (), source)
        self.result.kernels.append(EOperator(copy, ((name, dense_view(name, part.scope.shape)),), target))

    def vendor(self, match: Match, out: str, posts: tuple[Post, ...] = ()) -> None:
        names = {str(n): self.buffer_of(base) for n, base in enumerate(match.operands)}
        names["out"] = out
        bound = match.kernel.map_views(lambda v: replace(v, buffer=names[v.buffer]))
        self.result.kernels.append(bound.with_posts(posts))

    def generated(self, scope: Scope, out: str) -> None:
        scope, view = in_digits(self.fused(scope), dense_view(out, scope.shape))
        scope = self.closed(scope)
        operands = tuple((t.name, dense_view(t.name, t.shape)) for t in tensors(scope).values())
        self.result.kernels.append(EOperator(scope, operands, view))

    def closed(self, scope: Scope) -> Scope:
        """The scope with everything that is materialised read from buffers, and with the rest of its inner scopes merged or kept inside."""
        if scope not in self._closed:
            whole = over_digits(self.fused(scope))
            body = map_reads(whole.body, lambda r: self.operand(r, whole))
            self._closed[scope] = replace(whole, body=tabled(replace(whole, body=body), self.constant))
        return self._closed[scope]

    def constant(self, scope: Scope) -> Tensor:
        """The constant that holds a scope without operands."""
        return Tensor(self.buffer_of(scope), scope.shape, "f32", True)

    def fused(self, scope: Scope) -> Scope:
        """The scope with the inner scopes that reduce nothing merged into it; not those that operators compute, nor those that stay `inside`: which
        values are kept and which are computed where they are read is decided where the kernel is written."""
        return fused(scope, self.apart & scope.inside)

    def materialised(self, base: Scope) -> bool:
        return base in self.matches or is_weight(base)

    def operand(self, r: Read, reader: Scope) -> Read:
        r = in_order(r, reader) or r
        if isinstance(r.base, Tensor):
            return r
        apart = bool(r.base.sums) and r.base not in self.inside and (not pointwise(r, reader) or walked(r.base, reader))
        if apart and not self.materialised(r.base) and running(r.base) is None:
            r = along(r, r.base, reader) or r
            assert isinstance(r.base, Scope)
            apart = not pointwise(r, reader) or walked(r.base, reader)
        assert isinstance(r.base, Scope)
        if self.materialised(r.base) or apart or (r.base not in self.inside and again(r, reader)):
            return from_buffer(r, self.buffer_of(r.base), is_weight(r.base))
        return Read(self.closed(r.base), r.index, r.fill)


@lru_cache(maxsize=1 << 13)
def fused(scope: Scope, apart: frozenset[Scope]) -> Scope:
    """The scope with those inside it merged into it that reduce nothing, are no weights and not `apart`, as far as the merge rule allows (vertical
    fusion). The many forms of an expression have most of their parts in common."""
    kept: set[Read] = set()
    while True:
        inner = (r for r in reads(scope.body) if isinstance(r.base, Scope) and not r.base.sums and r.base not in apart and not is_weight(r.base))
        r = next((r for r in inner if r not in kept), None)
        if r is None:
            return scope
        found = merged(scope, r)
        if found is None:
            kept.add(r)
        else:
            scope = found


def again(r: Read, reader: Scope) -> bool:
    """Windows of the reader's sum overlap, so that its kernel would compute costly functions of each element many times."""
    assert isinstance(r.base, Scope)
    loops, sums = {i.name for i in reader.loops if i.extent > 1}, {i.name for i in reader.sums if i.extent > 1}
    windows = any(ix.names() & loops and ix.names() & sums for ix in r.index)
    return windows and not r.base.sums and prod(reader.shape) * prod(i.extent for i in reader.sums) > prod(r.base.shape) and costly(r.base.body)


def costly(body: Body) -> bool:
    """A costly function stands in a body, or in what it reads that is computed where it is read."""
    if isinstance(body, Read):
        return isinstance(body.base, Scope) and not body.base.sums and costly(body.base.body)
    return (isinstance(body, Call) and body.name in COSTLY) or any(map(costly, children(body)))


def walked(base: Scope, reader: Scope) -> bool:
    """One of the two is computed by a walk along time, in a kernel of its own."""
    return running(base) is not None or running(reader) is not None


def from_buffer(r: Read, name: str, weight: bool) -> Read:
    """The read of a scope as the read of a buffer that holds it."""
    index: tuple[Index, ...] = tuple(ix - lo for ix, (lo, _) in zip(r.index, r.base.box))
    shape = tuple(hi - lo for lo, hi in r.base.box)
    return Read(Tensor(name, shape, "f32", weight), index, r.fill)


def in_digits(scope: Scope, out: View) -> tuple[Scope, View]:
    """The scope over the digits h//d and h%d by which it reads inner scopes, for d that divide the extent, and the result's view over these.

    What computes in residue classes or tiles then writes them where they belong, and needs no copy.
    """
    for n, i in enumerate(scope.loops if not scope.sums else ()):
        found = {d for r in reads(scope.body) if isinstance(r.base, Scope) for ix in r.index for d in denominators(ix, i.name)}
        d = found.pop() if len(found) == 1 else 0
        if d and i.lo == 0 and i.extent % d == 0 and d < i.extent:
            inner, _ = wrapped(split(scope, i, d).scope)
            step = out.strides[n]
            strides = (*out.strides[:n], d * step, step, *out.strides[n + 1 :])
            return in_digits(inner, View(out.buffer, inner.shape, strides, out.offset))
    return scope, out


def over_digits(scope: Scope) -> Scope:
    """The scope with a sum over each digit of an iterator that is read by its digits: Σ[n<6] t[n//3,n%3] = Σ[a<2,b<3] t[a,b].

    A reshape before a reduction gives such reads; as one sum they stand in an order that memory does not have.
    """
    for i in scope.sums:
        parts = {atom for ix in index_functions(scope.body) for atom, _ in ix.terms if isinstance(atom, Floor) and i.name in atom.num.names()}
        d = min((part.den for part in parts), default=0)
        if d and i.lo == 0 and i.extent % d == 0 and all(part.num == var(i.name) and part.den % d == 0 for part in parts):
            made = split_sum_iterator(scope, i, d)
            if isinstance(made, Rewrite):
                return over_digits(made.scope)
    return scope


def pointwise(r: Read, reader: Scope) -> bool:
    """Every element of what is read is needed by few points of the reader: its indices are distinct loops, or a part of them (a row)."""
    loops = {i.name for i in reader.loops}
    names = [next(iter(ix.names())) if len(ix.terms) == 1 else None for ix in r.index if ix.terms]
    return None not in names and len(set(names)) == len(names) and all(n in loops for n in names)
