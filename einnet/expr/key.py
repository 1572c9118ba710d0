"""The canonical key of a scope: what is left when names, summation order and operand order are forgotten (derivation.md section 4).

Loops are named by position. Summation iterators are sorted by colour refinement on the body; iterators that remain alike are tried in
every order and the least serialisation wins, so the form is exact, not a hash that hopes. Of iterators that may be exchanged for each other, as in a
power of a sum, one order is enough. 128 bits of BLAKE2 of that form are the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, groupby, islice, permutations, product
from math import factorial, prod

from einnet.expr.index import Index
from einnet.expr.nodes import DIGEST, Add, Body, Call, Const, Div, Iter, Mul, Read, Scope, Select, Val

_COMMUTATIVE = {"max", "min", "equal"}
_TIES = 5040
_FEW = 6
"""Orders that are all looked at: it takes no longer than to see which of them are alike."""


@DIGEST.define
@lru_cache(maxsize=1 << 15)
def digest(scope: Scope) -> str:
    """32 hex digits of the canonical form."""
    return hashlib.blake2b(canonical_form(scope).encode(), digest_size=16).hexdigest()


def canonical_form(scope: Scope) -> str:
    """The exact form behind the key. Nested scopes stand in it by their own keys."""
    names = {i.name: f"L{n}" for n, i in enumerate(scope.loops)}
    head = ",".join(map(_range, scope.loops)) + f";{scope.reduce};"
    if not scope.sums:
        return head + ";" + _body(scope.body, names)
    classes = _classes(scope, names)
    sums = ",".join(_range(i) for alike in classes for i in alike)
    best = min(_body(scope.body, names | {i.name: f"S{k}" for k, i in enumerate(order)}) for order in _orders(scope, names, classes))
    return f"{head}{sums};{best}"


def _orders(scope: Scope, names: Mapping[str, str], classes: list[list[Iter]]) -> Iterator[Iterator[Iter]]:
    """The orders of summation iterators in which the body may look different, class by class, up to a limit."""
    if prod(factorial(len(alike)) for alike in classes) <= _FEW:
        ways: list[Iterator[tuple[Iter, ...]]] = [permutations(alike) for alike in classes]
    else:
        ways = [islice(_mixed(_exchangeable(scope, names, alike)), _TIES) for alike in classes]
    return (chain.from_iterable(order) for order in islice(product(*ways), _TIES))


def _exchangeable(scope: Scope, names: Mapping[str, str], alike: list[Iter]) -> list[list[Iter]]:
    """Groups of iterators of which any two may be exchanged and the body stays what it is: so may all then that one of them may be exchanged for."""
    own = {**names, **{i.name: f"<{i.name}>" for i in scope.sums}}
    text = _body(scope.body, own)
    groups: list[list[Iter]] = []
    for i in alike:
        group = next((g for g in groups if _body(scope.body, {**own, i.name: own[g[0].name], g[0].name: own[i.name]}) == text), None)
        if group is None:
            groups.append([i])
        else:
            group.append(i)
    return groups


def _mixed(groups: list[list[Iter]]) -> Iterator[tuple[Iter, ...]]:
    """All orders in which each group keeps its own."""
    if not any(groups):
        yield ()
    for n, group in enumerate(groups):
        if group:
            yield from ((group[0], *more) for more in _mixed([*groups[:n], group[1:], *groups[n + 1 :]]))


def _range(i: Iter) -> str:
    return f"{i.lo}:{i.hi}"


def _classes(scope: Scope, names: Mapping[str, str]) -> list[list[Iter]]:
    """The summation iterators by colour: by range at first, then twice by how the body looks from each, unless they differ already."""
    colours = {i.name: _range(i) for i in scope.sums}
    for _ in range(2):
        if len(set(colours.values())) == len(colours):
            break
        seen = {**names, **{n: f"<{c}>" for n, c in colours.items()}}
        views = {i: colours[i.name] + _body(scope.body, {**seen, i.name: "*"}) for i in scope.sums}
        colours = {i.name: f"{_range(i)}~{hashlib.blake2b(view.encode(), digest_size=8).hexdigest()}" for i, view in views.items()}
    ordered = sorted(scope.sums, key=lambda i: colours[i.name])
    return [list(alike) for _, alike in groupby(ordered, key=lambda i: colours[i.name])]


def _index(e: Index, names: Mapping[str, str]) -> str:
    terms = sorted([f"{c}{names[a]}" if isinstance(a, str) else f"{c}F({_index(a.num, names)},{a.den})" for a, c in e.terms])
    return "+".join((*terms, str(e.const))) + (f"/{e.den}" if e.den != 1 else "")


def _body(body: Body, names: Mapping[str, str]) -> str:
    match body:
        case Const(v):
            return str(v)
        case Val(index):
            return f"V({_index(index, names)})"
        case Read(base, index, fill):
            if isinstance(base, Scope):
                name = base.key
            else:
                given = "" if base.values is None else "=" + ",".join(map(str, base.values))
                name = f"{base.name}:{base.dtype}{'w' if base.weight else ''}{base.shape}{given}"
            return f"{name}[{','.join([_index(i, names) for i in index])}|{fill}]"
        case Add(args):
            return f"+({','.join(sorted([_body(a, names) for a in args]))})"
        case Mul(args):
            return f"*({','.join(sorted([_body(a, names) for a in args]))})"
        case Div(num, den):
            return f"/({_body(num, names)},{_body(den, names)})"
        case Call(name, args):
            parts = [_body(a, names) for a in args]
            return f"{name}({','.join(sorted(parts) if name in _COMMUTATIVE else parts)})"
        case Select(conds, then, other):
            text = "&".join(sorted(f"{_index(c.index, names)}{'=' if c.equal else '>'}" for c in conds))
            return f"?({text},{_body(then, names)},{_body(other, names)})"
    raise TypeError(f"not a body: {body!r}")
