"""rescale: exponentials under their maximum are summed tile by tile, each tile under its own maximum and weighted by what that is less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from einnet.derivation.facts import factors
from einnet.derivation.moves.rule import Outcome, Refused, Rewrite, rule
from einnet.expr.index import Index, simplify, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Iter,
    Mul,
    Read,
    Scope,
    fresh,
    indices,
    inside,
    make_add,
    make_mul,
    map_indices,
    negate,
    substitute_body,
    used_names,
)  # fmt: skip
from einnet.expr.normal.totals import total

FEWEST = 2
"""The smallest tile, and the fewest tiles."""


@dataclass(frozen=True, slots=True)
class Raised:
    """A factor exp(score - greatest), of which the greatest does not move with n; and the other factors."""

    score: Body
    greatest: Read
    rest: tuple[Body, ...]


@rule("rescale", order=260, guard="f is a number at every place, M is a maximum that does not move with n; T divides the extent of n",
      kind="reassociation", roles=())  # fmt: skip
def rescale(e: Scope) -> Iterator[Outcome]:
    """Σ[n] exp(f(n)-M)*g(n) = Σ[t] exp(m(t)-M)*{Σ[j] exp(f(T*t+j)-m(t))*g(T*t+j)}[t] for m(t) = max[j] f(T*t+j)

    Where M is the maximum of f it becomes that of m. This is what online softmax runs on: no tile needs the maximum of all. The search does
    not try it, for kernels in blocks of rows store no more.
    """
    found = False
    for n in e.sums if e.reduce == "sum" else ():
        raised = _raised(e, n)
        if raised is None:
            continue
        if not total(raised.score):
            yield Refused("a score may be infinite, and so may the greatest of a tile")
            continue
        for size in (s for s in range(FEWEST, n.extent // FEWEST + 1) if n.extent % s == 0):
            found = True
            yield Rewrite(_tiled(e, n, size, raised), f"{n.name}={size}*t+j", "reassociation")
    if not found:
        yield Refused("no exponential of a score less a maximum that stays is summed over several tiles")


def _raised(e: Scope, n: Iter) -> Raised | None:
    """The first factor of that kind."""
    every = factors(e.body)
    for place, f in enumerate(every):
        if not isinstance(f, Call) or f.name != "exp" or not isinstance(f.args[0], Add):
            continue
        terms = f.args[0].args
        maxima = [(t, r) for t in terms if (r := _subtracted(t)) is not None and n.name not in used_names(r)]
        score = [t for t in terms if not maxima or t is not maxima[0][0]]
        if len(maxima) == 1 and n.name in used_names(make_add(score)):
            return Raised(make_add(score), maxima[0][1], (*every[:place], *every[place + 1 :]))
    return None


def _subtracted(term: Body) -> Read | None:
    """M, of a term (-1)*M that reads a maximum."""
    if not isinstance(term, Mul) or len(term.args) != 2:
        return None
    found = next((a for a in term.args if isinstance(a, Read) and isinstance(a.base, Scope) and a.base.reduce == "max" and a.base.sums), None)
    return found if found is not None and negate(found) == term else None


def _tiled(e: Scope, n: Iter, size: int, raised: Raised) -> Scope:
    """The right-hand side, n = size·t + j."""
    taken = {*e.ranges, *used_names(e.body)}
    t = Iter(fresh("t", taken), 0, n.extent // size)
    j = Iter(fresh("j", taken | {t.name}), 0, size)
    ranges = {**e.ranges, t.name: t.range, j.name: j.range}

    def moved(body: Body) -> Body:
        return map_indices(substitute_body(body, {n.name: size * var(t.name) + var(j.name) + n.lo}), lambda ix: simplify(ix, ranges))

    score, rest = moved(raised.score), tuple(map(moved, raised.rest))
    top = _over(e, (t,), score, j, "max")
    inner = _over(e, (t,), make_mul((Call("exp", (make_add((score, negate(top))),)), *rest)), j, "sum")
    greatest = _greatest(e, raised, n, top, t)
    sums = tuple(t if i == n else i for i in e.sums)
    return replace(e, sums=sums, body=make_mul((Call("exp", (make_add((top, negate(greatest))),)), inner)))


def _over(e: Scope, tiles: tuple[Iter, ...], body: Body, j: Iter, reduce: str) -> Read:
    """The reduction of a body over j, as a scope over all other iterators that it uses, read there."""
    loops = tuple(i for i in (*e.loops, *e.sums, *tiles) if i.name in used_names(body))
    return Read(Scope(loops, (j,), body, reduce), indices(loops))


def _greatest(e: Scope, raised: Raised, n: Iter, top: Read, t: Iter) -> Read:
    """The maximum of all as that of the tiles' maxima, where it is the maximum of the scores at every place."""
    base = raised.greatest.base
    assert isinstance(base, Scope)
    place: dict[str, Index] = {i.name: ix for i, ix in zip(base.loops, raised.greatest.index)}
    if len(base.sums) != 1 or base.sums[0].range != n.range or not inside(raised.greatest, e.ranges):
        return raised.greatest
    if substitute_body(base.body, {**place, base.sums[0].name: var(n.name)}) != raised.score:
        return raised.greatest
    loops = tuple(i for i in (*e.loops, *e.sums) if i.name in used_names(top))
    return Read(Scope(loops, (t,), top, "max"), indices(loops))
