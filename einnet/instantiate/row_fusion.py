"""Reductions computed along the loops of what reads them, so that they can stay inside its kernel."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from einnet.derivation.facts import is_transform, product_reads
from einnet.derivation.rules.transitions import running
from einnet.expr.index import in_range, simplify
from einnet.expr.nodes import Read, Scope, indices, map_indices, reads, rename_apart, substitute_body, used_names


def along(r: Read, base: Scope, reader: Scope) -> Read | None:
    """A reduction that is read at other loops, over the reader's loops instead: S[Φ(x)] = {L[x] S(Φ(x))}[x]; None where that computes more."""
    used = used_names(r)
    loops = tuple(i for i in reader.loops if i.name in used)
    inside = all(ix.is_affine and in_range(ix, box, reader.ranges) for ix, box in zip(r.index, base.box))
    if not inside or not used <= {i.name for i in reader.loops} or prod(i.extent for i in loops) > prod(base.shape):
        return None
    inner = rename_apart(base, reader.ranges)
    mapping = {i.name: ix for i, ix in zip(inner.loops, r.index)}
    ranges = {**{i.name: i.range for i in loops}, **{i.name: i.range for i in inner.sums}}
    body = map_indices(substitute_body(inner.body, mapping), lambda ix: simplify(ix, ranges))
    return Read(Scope(loops, inner.sums, body, inner.reduce), indices(loops), r.fill)


def in_rows(scope: Scope) -> bool:
    """A sum of products reads another one, and loops of the scope run through all of them: they can be computed row by row, the inner ones being
    handed on in cache."""
    products = [s for s in scope.parts if is_product(s)]
    return any(is_product(t) for s in products for t in s.inside) and bool(scope.loops)


def in_one_kernel(tree: Scope, matched: bool) -> bool:
    """The tree may be one kernel that stores nothing between its sums: no library is asked, and nothing walks along time."""
    return not matched and in_rows(tree) and not any(running(s) for s in tree.parts)


def handed_on(matched: Collection[Scope]) -> frozenset[Scope]:
    """What one kernel may compute instead of two products of libraries: both products, and all that stands between them, where that raises values
    of the inner product to weights under their maximum, as a softmax does. So nothing of them has to be stored."""
    products = [s for s in matched if is_product(s)]
    found = set[Scope]()
    for outer in products:
        for inner in (s for s in products if s in outer.inside):
            between = {s for s in outer.inside if inner in s.inside}
            apart = any(s in matched or is_product(s) or running(s) for s in between)
            if not apart and any(_under_maximum(s, inner) for s in between):
                found |= {outer, inner, *between}
    return frozenset(found)


def _under_maximum(s: Scope, inner: Scope) -> bool:
    """The scope reads values of another one beside a maximum of them."""
    bases = {r.base for r in reads(s.body) if isinstance(r.base, Scope) and (r.base == inner or inner in r.base.inside)}
    return len({b.reduce == "max" for b in bases}) == 2


def is_product(s: Scope) -> bool:
    """A sum of products of two reads or more, no transform by known matrices."""
    return bool(s.sums) and s.reduce == "sum" and len(product_reads(s.body) or ()) > 1 and not is_transform(s)
