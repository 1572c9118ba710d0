"""The canonical key of a scope: what is left when names, summation order and operand order are forgotten (derivation.md section 4).

Loops are named by position. Summation iterators are sorted by colour refinement on the body; iterators that remain alike are tried in
every order and the least serialisation wins, so the form is exact, not a hash that hopes. 128 bits of BLAKE2 of that form are the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from itertools import permutations, product

from einnet.expr.index import Index
from einnet.expr.nodes import DIGEST, Add, Body, Call, Const, Div, Mul, Read, Scope, Select, Val

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
    head = ",".join(f"{i.lo}:{i.hi}" for i in scope.loops) + f";{scope.reduce};"
    if not scope.sums:
        return head + ";" + _body(scope.body, names)
    colours = {i.name: f"{i.lo}:{i.hi}" for i in scope.sums}
    for _ in range(2):
        if len(set(colours.values())) == len(colours):
            break
        new = {}
        for i in scope.sums:
            view = {**names, **{n: f"<{c}>" for n, c in colours.items()}, i.name: "*"}
            new[i.name] = hashlib.blake2b((colours[i.name] + _body(scope.body, view)).encode(), digest_size=8).hexdigest()
        colours = {n: f"{next(f'{i.lo}:{i.hi}' for i in scope.sums if i.name == n)}~{c}" for n, c in new.items()}
    classes: dict[str, list[str]] = {}
    for i in scope.sums:
        classes.setdefault(colours[i.name], []).append(i.name)
    ordered = [classes[c] for c in sorted(classes)]
    ranges = scope.ranges
    sums = ",".join(f"{ranges[n][0]}:{ranges[n][1]}" for group in ordered for n in group)
    best = ""
    for count, choice in enumerate(product(*(permutations(group) for group in ordered))):
        if count >= _TIES:
            break
        flat = [n for group in choice for n in group]
        text = _body(scope.body, {**names, **{n: f"S{k}" for k, n in enumerate(flat)}})
        if not best or text < best:
            best = text
    return f"{head}{sums};{best}"


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
