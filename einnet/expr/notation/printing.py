"""The notation, printed (see einnet/expr/notation/text.py for the grammar): the fewest parentheses, affine terms in binding order."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from einnet.expr.index import Index, moduli
from einnet.expr.nodes import INF, LINE, TEXT, Add, Body, Call, Const, Div, Iter, Mul, Number, Read, Scope, Select, Tensor, Val, tensors


def print_number(v: Number) -> str:
    """An exact decimal where there is a short one, else p/q; inf and -inf."""
    if isinstance(v, float):
        if v == INF or v == -INF:
            return "inf" if v > 0 else "-inf"
        v = Fraction(v)
    if v.denominator == 1:
        return str(v.numerator)
    try:
        decimal = repr(float(v))
    except OverflowError:
        decimal = "inf"
    return decimal if decimal != "inf" and Fraction(decimal) == v else f"{v.numerator}/{v.denominator}"


def print_fill(v: Number) -> str:
    """A number that may be followed by a division."""
    text = print_number(v)
    return f"({text})" if "/" in text else text


def print_index(e: Index, order: Sequence[str] = ()) -> str:
    """An index function, terms in binding order."""
    rank = {name: n for n, name in enumerate(order)}
    if e.den != 1:
        inner = print_index(Index(e.terms, e.const), order)
        return f"({inner})/{e.den}" if not inner.isidentifier() else f"{inner}/{e.den}"

    def first(ix: Index) -> int:
        return min((rank.get(n, len(rank)) for n in ix.names()), default=len(rank))

    def grouped(ix: Index) -> str:
        text = print_index(ix, order)
        return text if text.replace("'", "").isidentifier() else f"({text})"

    found, rest = moduli(e)
    parts = [(first(num), 2, factor, f"{grouped(num)}%{d}") for factor, num, d, _ in found]
    parts += [(first(num), 1, quotient, f"{grouped(num)}//{d}") for _, num, d, quotient in found if quotient]
    for atom, c in rest.terms:
        if isinstance(atom, str):
            parts.append((rank.get(atom, len(rank)), 0, c, atom))
        else:
            parts.append((first(atom.num), 1, c, f"{grouped(atom.num)}//{atom.den}"))
    parts.sort(key=lambda p: (p[0], p[1]))
    if parts and parts[0][2] < 0:
        parts.sort(key=lambda p: p[2] < 0)
    text = ""
    for _, kind, c, name in parts:
        text += _term(c, name, bool(kind), not text)
    if rest.const or not text:
        text += f"{rest.const:+d}" if text else str(rest.const)
    return text


def _term(c: int, name: str, divided: bool, first: bool) -> str:
    """A coefficient and an atom. A quotient or remainder stands in brackets where a factor or the leading sign would take its first part alone."""
    sign = "-" if c < 0 else "" if first else "+"
    times = "" if abs(c) == 1 else f"{abs(c)}*"
    return f"{sign}{times}" + (f"({name})" if divided and (times or sign == "-" and first) else name)


def print_iter(i: Iter) -> str:
    return f"{i.name}<{i.hi}" if i.lo == 0 else f"{i.lo}<={i.name}<{i.hi}"


_SUM, _PRODUCT, _ATOM = 0, 1, 2


def print_body(b: Body, order: Sequence[str] = (), level: int = _SUM) -> str:
    """A scalar body with the fewest parentheses."""

    def wrap(text: str, own: int) -> str:
        return f"({text})" if own < level else text

    match b:
        case Const(v):
            text = print_number(v)
            if v < 0:
                return wrap(text, _SUM)
            return wrap(text, _PRODUCT) if "/" in text else text
        case Val(index):
            return f"val({print_index(index, order)})"
        case Read(base, index, fill):
            name = base.name if isinstance(base, Tensor) else "{" + base.text() + "}"
            tail = "" if fill == 0 else "|" + print_fill(fill)
            return f"{name}[{','.join(print_index(i, order) for i in index)}]{tail}"
        case Add(args):
            return wrap(" + ".join(print_body(a, order, _PRODUCT) for a in args), _SUM)
        case Mul(args):
            return wrap("*".join(print_body(a, order, _ATOM) for a in args), _PRODUCT)
        case Div(num, den):
            return wrap(f"{print_body(num, order, _ATOM)} / {print_body(den, order, _ATOM)}", _PRODUCT)
        case Call(name, args):
            return f"{name}({', '.join(print_body(a, order) for a in args)})"
        case Select(conds, then, other):
            text = " & ".join(f"{print_index(c.index, order)}{'==' if c.equal else '>='}0" for c in conds)
            return f"select({text}, {print_body(then, order)}, {print_body(other, order)})"
    raise TypeError(f"not a body: {b!r}")


@LINE.define
@lru_cache(maxsize=1 << 11)
def print_scope(s: Scope) -> str:
    """`L[..] Σ[..] body` on one line. From one step of a derivation to the next most scopes stay what they are: those are printed once."""
    text = f"L[{','.join(map(print_iter, s.loops))}] "
    if s.sums or s.reduce != "sum":
        text += f"{'Σ' if s.reduce == 'sum' else s.reduce}[{','.join(map(print_iter, s.sums))}] "
    return text + print_body(s.body, [i.name for i in (*s.loops, *s.sums)])


def print_declaration(t: Tensor) -> str:
    given = "" if t.values is None else f" = [{','.join(map(print_number, t.values))}]"
    return f"{t.name} : {'weight ' if t.weight else ''}{t.dtype}[{','.join(map(str, t.shape))}]{given}"


@TEXT.define
def print_with_declarations(s: Scope) -> str:
    """Declarations of the tensors, a line each, then the expression: what `parse` reads back to the same value."""
    return "\n".join([*(print_declaration(t) for t in tensors(s).values()), print_scope(s)])
