"""How a scope can be run: generated throughout, or with a vendor operator that a converging derivation gets to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from einnet.derivation.facts import product_reads
from einnet.expr.nodes import Iter, Scope
from einnet.instantiate.matching.types import Match, Table
from einnet.search.converge import Converged, converge
from einnet.search.forms import Form, converged_form, reads_through, spent
from einnet.search.groups import Base, Kind, Opening
from einnet.search.together import kind_of
from einnet.search.trace import Observer
from einnet.search.work import Weights, cost


def converged_forms(scope: Scope, tables: Iterable[Table], derive: bool, observer: Observer | None) -> Iterator[Form]:
    """The forms with one vendor operator; without `derive` only those that it computes as the scope stands, its loops numbered otherwise."""
    for table in tables:
        if table.sums and not scope.sums:
            continue
        found = converge(scope, table, derive)
        if observer:
            observer.tried(scope, table.name, found)
        if isinstance(found, Converged):
            yield converged_form(scope, found)


@dataclass(frozen=True, slots=True)
class Sight:
    """A form as a base of whatever groups there are: the scopes that it `opens`, with whether a vendor operator reads them; the rest as in `Base`."""

    form: Form
    opens: tuple[tuple[Scope, bool], ...]
    cost: int
    spare: int
    structure: tuple[str, ...]
    kind: Kind = ()

    def base(self, openings: tuple[Opening, ...] = ()) -> Base:
        """The base with the groups of what it opens."""
        return Base(self.form, openings, self.cost, self.spare, self.structure, self.kind)


def sights_of(form: Form, weights: Weights) -> Iterator[Sight]:
    """A form as bases: what it opens, and the cost and structure of the rest.

    Where several openings read one contraction there are two: either that is computed once, or each of them on its own, in another order maybe.
    """
    seen: list[dict[Scope, bool]] = []
    for shared in (True, False):
        top, inside = opened(form, shared)
        if top not in seen:
            seen.append(top)
            yield _sight(form, tuple(top.items()), inside, weights)


def closed_base(form: Form, weights: Weights) -> Base:
    """A form in which nothing is left to be chosen."""
    return _sight(form, (), frozenset(), weights).base()


def _sight(form: Form, opens: tuple[tuple[Scope, bool], ...], inside: Set[Scope], weights: Weights) -> Sight:
    vendor = {s for s, _ in form.matches}
    own = [s for s in form.each if s not in inside] if inside else form.each
    generated = [_summed(s.sums) for s in own if s.sums and s not in vendor and not s.constant]
    return Sight(
        form,
        opens,
        cost=spent(form, inside, weights),
        spare=cost(form.tree, False, weights) if reads_through(form.tree) else 0,
        kind=kind_of(form),
        structure=(*(_named(m) for _, m in form.matches), *generated),
    )


@lru_cache(maxsize=1 << 12)
def _summed(sums: tuple[Iter, ...]) -> str:
    return f"Σ{sorted(i.extent for i in sums)}"


@lru_cache(maxsize=1 << 13)
def _named(m: Match) -> str:
    return f"{m.table} {m.kernel}"


def opened(form: Form, shared: bool = True) -> tuple[dict[Scope, bool], set[Scope]]:
    """The outermost reductions that the generated parts and the operands read, with whether a vendor operator reads them; and all that is inside.

    If `shared`, a contraction that is read in several places is one of them, not what reads it: it is the same wherever it is read; also where it
    stands inside another contraction and is read beside that, as one product of which scores and values are parts. Else each computes what it reads.
    """
    vendor = {s for s, _ in form.matches}
    reductions = _reductions([s for s in form.computed if s is not form.tree and s not in vendor], shared)
    read = outermost(form, frozenset(reductions)) if shared else set(reductions).difference(*(s.inside for s in reductions))
    top = [s for s in reductions if s in read and s.inside.isdisjoint(vendor)]
    return {s: s in form.stored for s in top}, set(top).union(*(s.inside for s in top))


def outermost(form: Form, among: Set[Scope]) -> set[Scope]:
    """Those of some scopes that the form reads elsewhere than within another of them."""
    found, known, waiting = set[Scope](), {form.tree}, [form.tree]
    while waiting:
        for s in form.reads(waiting.pop()):
            if s in among:
                found.add(s)
            elif s not in known:
                known.add(s)
                waiting.append(s)
    return found


def _reductions(scopes: Sequence[Scope], shared: bool) -> list[Scope]:
    """The reductions among scopes; if `shared`, without those, other than products, that have a product inside that is read in several places."""
    found = [s for s in dict.fromkeys(scopes) if not s.constant and s.reduces]
    products = {s for s in found if s.sums and len(product_reads(s.body) or ()) > 1}
    common = {s for s in products if scopes.count(s) > 1} if shared else set()
    return [s for s in found if s in products or s.inside.isdisjoint(common)]
