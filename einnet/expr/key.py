"""The canonical key of a scope: what is left when names, summation order and operand order are forgotten (derivation.md section 4).

Loops are named by position. Summation iterators are sorted by colour refinement on the body; iterators that remain alike are tried in
every order and the least serialisation wins, so the form is exact, not a hash that hopes. 128 bits of BLAKE2 of that form are the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, groupby, islice, permutations, product

from einnet.expr.index import Index
from einnet.expr.nodes import DIGEST, Add, Body, Call, Const, Div, Iter, Mul, Read, Scope, Select, Val

_COMMUTATIVE = {"max", "min", "equal"}
_TIES = 5040


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
    orders = (chain.from_iterable(order) for order in islice(product(*map(permutations, classes)), _TIES))
    best = min(_body(scope.body, names | {i.name: f"S{k}" for k, i in enumerate(order)}) for order in orders)
    return f"{head}{sums};{best}"


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
    terms = sorted(f"{c}{names[a]}" if isinstance(a, str) else f"{c}F({_index(a.num, names)},{a.den})" for a, c in e.terms)
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
            return f"{name}[{','.join(_index(i, names) for i in index)}|{fill}]"
        case Add(args):
            return f"+({','.join(sorted(_body(a, names) for a in args))})"
        case Mul(args):
            return f"*({','.join(sorted(_body(a, names) for a in args))})"
        case Div(num, den):
            return f"/({_body(num, names)},{_body(den, names)})"
        case Call(name, args):
            parts = [_body(a, names) for a in args]
            return f"{name}({','.join(sorted(parts) if name in _COMMUTATIVE else parts)})"
        case Select(conds, then, other):
            text = "&".join(sorted(f"{_index(c.index, names)}{'=' if c.equal else '>'}" for c in conds))
            return f"?({text},{_body(then, names)},{_body(other, names)})"
    raise TypeError(f"not a body: {body!r}")
