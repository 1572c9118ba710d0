"""substitute: variable substitution. The maps are inferred from index functions, never listed by name or size.

    skew     t = a·h + b·r + c   from an operand's index that adds two loops
    split    h = d·h' + h''      from a stride, dilation, divisor or modulus d
    fuse     m = W·h + w         from loops that are adjacent in an operand (rule "reorder")
    permute                      to the order of an operand's dimensions (rule "reorder")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from einnet.derivation.facts import factors, hull, is_copy, zero_outside
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Floor, Index, simplify, var
from einnet.expr.index import substitute as index_substitute
from einnet.expr.nodes import Iter, Read, Scope, fresh, index_functions, indices, map_indices, reads, substitute_body
from einnet.expr.notation.printing import print_index


@rule("substitute", order=20, guard="Φ is injective on the loops; where Φ(x) is fractional f is 0", roles=("explored", "converging"))
def substitute_loops(e: Scope) -> Iterator[Outcome]:
    """L[x] f(x) = L[x] {L[y∈Φ(X)] f(Φ⁻¹ y)}[Φ x]

    The new domain is the box hull of Φ(X); its extra points are never read (paper section 4.1, variable substitution).
    """
    if is_copy(e) and isinstance(e.body, Read) and isinstance(e.body.base, Scope):
        yield Refused("the scope only reads another scope: substitute in that one")
        return
    found = False
    for outcome in (*skews(e), *splits(e)):
        found = True
        yield outcome
    if not found:
        yield Refused("no index function adds two loops, scales a loop or divides one")


@rule("reorder", order=40, guard="the map is a bijection of the loops' box", roles=("converging",))
def reorder_loops(e: Scope) -> Iterator[Outcome]:
    """L[h,w] f(h,w) = L[h,w] {L[m] f(m//W,m%W)}[W*h+w] = L[h,w] {L[w,h] f}[w,h]

    Fuse neighbouring loops that are adjacent in an operand; permute the loops to the order of an operand's dimensions.
    """
    if is_copy(e):
        yield Refused("the scope only copies")
        return
    found = False
    for outcome in (*fusions(e), *permutations(e)):
        found = True
        yield outcome
    if not found:
        yield Refused("the loops stand in the operands' order and none are adjacent")


def with_loops(e: Scope, new: tuple[Iter, ...], forward: tuple[Index, ...], backward: Mapping[str, Index]) -> Scope:
    """L[x] {L[new] f(backward)}[forward]: the general form of every substitution."""
    ranges = {**{i.name: i.range for i in e.sums}, **{i.name: i.range for i in new}}
    body = map_indices(substitute_body(e.body, backward), lambda ix: simplify(ix, ranges))
    return Scope(e.loops, (), Read(Scope(new, e.sums, body, e.reduce), forward))


def skews(e: Scope) -> Iterator[Rewrite]:
    """One rewrite for every loop that an operand's index adds to another loop with coefficient ±1 and that stands nowhere else."""
    seen: set[tuple[str, Index]] = set()
    loops = {i.name for i in e.loops}
    for r in reads(e.body):
        for ix in r.index:
            names = [a for a, _ in ix.terms if isinstance(a, str) and a in loops]
            if len(names) < 2 or any(isinstance(a, Floor) for a, _ in ix.terms) or not ix.names() <= loops:
                continue
            elsewhere = frozenset().union(*(o.names() for o in index_functions(e.body) if o != ix))
            for name in names:
                if abs(ix.coefficient(name)) == 1 and (name, ix) not in seen and name not in elsewhere:
                    seen.add((name, ix))
                    result = skew(e, name, ix)
                    if result is not None:
                        yield result


def skew(e: Scope, name: str, to: Index) -> Rewrite | None:
    """Replace the loop `name` by t = to(name, other loops); None where a fractional t might carry a value, or a division keeps the loop."""
    rest = Index(tuple((a, k) for a, k in to.terms if a != name), to.const)
    if name in rest.names() or (to.den != 1 and not _vanishes(e, to)):
        return None
    t = fresh("t", {i.name for i in (*e.loops, *e.sums)})
    (new_range,) = hull((to,), e.ranges)
    c = to.coefficient(name)
    inverse = (var(t) * to.den - rest) * c
    new = tuple(Iter(t, *new_range) if i.name == name else i for i in e.loops)
    forward = tuple(to if i.name == name else var(i.name) for i in e.loops)
    order = [i.name for i in (*e.loops, *e.sums)]
    return Rewrite(with_loops(e, new, forward, {name: inverse}), f"{t}={print_index(to, order)}")


def _vanishes(e: Scope, to: Index) -> bool:
    """The body is 0 where `to` is fractional, because a factor reads at that very index."""
    return any(isinstance(f, Read) and f.fill == 0 and to in f.index for f in factors(e.body))


def splits(e: Scope) -> Iterator[Rewrite]:
    """For every divisor > 1 that index functions show: one rewrite per loop, and one for all its loops; aligned to where the division is."""
    found = [(i, d) for i in e.loops for d in divisors(e, i.name) if d < i.extent]
    for d in sorted({d for _, d in found}):
        together = [i for i, k in found if k == d]
        if len(together) > 1:
            yield split_all(e, together, d)
    for i, d in found:
        yield split(e, i, d, alignment(e, i.name, d))


def split_all(e: Scope, loops: list[Iter], d: int) -> Rewrite:
    """The loops split one after the other, as one substitution."""
    first = split(e, loops[0], d, alignment(e, loops[0].name, d))
    parameters = [first.parameters]
    inner, forward = wrapped(first.scope)
    for i in loops[1:]:
        more = split(inner, i, d, alignment(inner, i.name, d))
        parameters.append(more.parameters)
        deeper, onward = wrapped(more.scope)
        mapping = {k.name: ix for k, ix in zip(inner.loops, forward)}
        forward = tuple(index_substitute(ix, mapping) for ix in onward)
        inner = deeper
    return Rewrite(Scope(e.loops, (), Read(inner, forward)), ", ".join(parameters))


def wrapped(wrapper: Scope) -> tuple[Scope, tuple[Index, ...]]:
    """What a split of loops wraps: the scope over more loops, and where it is read."""
    assert isinstance(wrapper.body, Read)
    assert isinstance(wrapper.body.base, Scope)
    return wrapper.body.base, wrapper.body.index


def split(e: Scope, loop: Iter, d: int, shift: int = 0) -> Rewrite:
    """loop + shift = d·outer + inner, the loop counted from its lower end."""
    used = {i.name for i in (*e.loops, *e.sums)}
    outer = fresh(loop.name + "'", used)
    inner = fresh(loop.name + "''", used | {outer})
    new: list[Iter] = []
    forward: list[Index] = []
    for i in e.loops:
        if i == loop:
            shifted = var(i.name) - i.lo + shift
            new += [Iter(outer, 0, -(-(i.extent + shift) // d)), Iter(inner, 0, d)]
            forward += [shifted // d, shifted % d]
        else:
            new.append(i)
            forward.append(var(i.name))
    back = d * var(outer) + var(inner) + loop.lo - shift
    return Rewrite(with_loops(e, tuple(new), tuple(forward), {loop.name: back}), f"{loop.name}={print_index(back, (outer, inner))}")


def alignment(e: Scope, name: str, d: int) -> int:
    """The shift in [0, d) after which (loop + shift) is what the index functions divide by d, as far as they agree; else 0."""
    found: set[int] = set()
    for ix in index_functions(e.body):
        if ix.den % d == 0 and ix.coefficient(name) == 1:
            found.add(ix.const % d)
        for atom, _ in ix.terms:
            if isinstance(atom, Floor) and atom.den % d == 0 and atom.num.coefficient(name) == 1:
                found.add(atom.num.const % d)
    lo = e.ranges[name][0]
    return (found.pop() + lo) % d if len(found) == 1 else 0


def divisors(e: Scope, name: str) -> list[int]:
    """Coefficients of other iterators beside `name`, divisors and moduli around it, denominators under it; ascending."""
    found: set[int] = set()
    for ix in index_functions(e.body):
        _collect(ix, name, found)
    return sorted(d for d in found if d > 1)


def _collect(ix: Index, name: str, found: set[int]) -> None:
    if ix.den != 1 and ix.coefficient(name) % ix.den:
        found.add(ix.den)
    mine = abs(ix.coefficient(name))
    for atom, c in ix.terms:
        if isinstance(atom, Floor):
            if name in atom.num.names():
                if atom.num.coefficient(name) == 1 and atom.num.den == 1:
                    found.add(atom.den)
                _collect(atom.num, name, found)
        elif atom != name and mine and abs(c) > mine and abs(c) % mine == 0:
            found.add(abs(c) // mine)


def fusions(e: Scope) -> Iterator[Rewrite]:
    """One rewrite for every pair of neighbouring loops that an operand reads in neighbouring dimensions, whole."""
    seen: set[tuple[str, str]] = set()
    for r in reads(e.body):
        for a, b, box in zip(r.index, r.index[1:], r.base.box[1:]):
            pair = [(_single(a), _single(b))]
            for first, second in pair:
                if first is None or second is None or (first, second) in seen:
                    continue
                seen.add((first, second))
                result = fuse_pair(e, first, second, box[1] - box[0])
                if result is not None:
                    yield result


def _single(ix: Index) -> str | None:
    return ix.terms[0][0] if ix.den == 1 and len(ix.terms) == 1 and ix.terms[0][1] == 1 and isinstance(ix.terms[0][0], str) else None


def fuse_pair(e: Scope, first: str, second: str, extent: int) -> Rewrite | None:
    """m = extent·first + second, where second spans the operand's whole dimension and both are neighbouring loops."""
    for n, (i, j) in enumerate(zip(e.loops, e.loops[1:])):
        if (i.name, j.name) == (first, second) and j.extent == extent and i.extent > 1 and j.extent > 1:
            m = fresh("m", {k.name for k in (*e.loops, *e.sums)})
            new = (*e.loops[:n], Iter(m, 0, i.extent * j.extent), *e.loops[n + 2 :])
            forward = (*indices(e.loops[:n]), extent * (var(first) - i.lo) + var(second) - j.lo, *indices(e.loops[n + 2 :]))
            back = {first: var(m) // extent + i.lo, second: var(m) % extent + j.lo}
            return Rewrite(with_loops(e, new, forward, back), f"{m}={extent}*{first}+{second}")
    return None


def permutations(e: Scope) -> Iterator[Rewrite]:
    """The loops in the order in which an operand's dimensions use them, loops it does not use last."""
    seen = {tuple(i.name for i in e.loops)}
    for r in reads(e.body):
        order = [n for ix in r.index for n in (a for a, _ in ix.terms if isinstance(a, str))]
        ranked = sorted(e.loops, key=lambda i: order.index(i.name) if i.name in order else len(order))
        names = tuple(i.name for i in ranked)
        if names not in seen:
            seen.add(names)
            yield permute(e, tuple(ranked))


def permute(e: Scope, order: tuple[Iter, ...]) -> Rewrite:
    """L[x] {L[order] f}[order]."""
    return Rewrite(Scope(e.loops, (), Read(Scope(order, e.sums, e.body, e.reduce), indices(order))), "order=" + ",".join(i.name for i in order))


@rule(
    "substitute-sum", order=30,
    guard="the map is a bijection of the summation box; the body is 0 on the points it adds",
    kind="reassociation", roles=("explored", "converging"),
)  # fmt: skip
def substitute_sums(e: Scope) -> Iterator[Outcome]:
    """L[x] Σ[r] f(x,r) = L[x] Σ[r',r''] f(x, d·r'+r'')

    For every divisor d that the index functions of r show; where d does not divide the extent the body must vanish on the rest.
    """
    found = [(i, d) for i in e.sums for d in divisors(e, i.name) if d < i.extent]
    for d in sorted({d for _, d in found}):
        together = [i for i, k in found if k == d]
        if len(together) > 1:
            yield split_all_sums(e, together, d)
    for i, d in found:
        yield split_sum_iterator(e, i, d)
    if not found:
        yield Refused("no summation iterator is scaled or divided by a constant")


def reflect(e: Scope, i: Iter) -> Rewrite:
    """Σ[r] f(r) = Σ[r] f(lo+hi-1-r)."""
    body = substitute_body(e.body, {i.name: i.lo + i.hi - 1 - var(i.name)})
    return Rewrite(Scope(e.loops, e.sums, body, e.reduce), f"{i.name}={i.lo + i.hi - 1}-{i.name}", "reassociation")


def split_all_sums(e: Scope, sums: list[Iter], d: int) -> Outcome:
    """The summation iterators split one after the other, as one substitution."""
    parameters: list[str] = []
    for i in sums:
        result = split_sum_iterator(e, i, d)
        if isinstance(result, Refused):
            return result
        parameters.append(result.parameters)
        e = result.scope
    return Rewrite(e, ", ".join(parameters), "reassociation")


def split_sum_iterator(e: Scope, i: Iter, d: int) -> Outcome:
    """r = d·r' + r'' + lo in place."""
    blocks = -(-i.extent // d)
    if blocks * d != i.extent and (e.reduce != "sum" or not zero_outside(e.body, i.name, i.range, e.ranges)):
        return Refused(f"{d} does not divide the extent {i.extent} of {i.name}, and the body is not 0 beyond it")
    used = {k.name for k in (*e.loops, *e.sums)}
    outer = fresh(i.name + "'", used)
    inner = fresh(i.name + "''", used | {outer})
    back = d * var(outer) + var(inner) + i.lo
    sums: list[Iter] = []
    for k in e.sums:
        sums += [Iter(outer, 0, blocks), Iter(inner, 0, d)] if k == i else [k]
    ranges = {**e.ranges, outer: (0, blocks), inner: (0, d)}
    body = map_indices(substitute_body(e.body, {i.name: back}), lambda ix: simplify(ix, ranges))
    return Rewrite(Scope(e.loops, tuple(sums), body, e.reduce), f"{i.name}={print_index(back, (outer, inner))}")
