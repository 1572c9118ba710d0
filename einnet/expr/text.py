"""The notation: printing and parsing. `parse(str(e)) == e` for every expression.

    A : f32[56,56,64]
    K : weight f32[3,3,64,64]
    L[h<56,w<56,f<64] Σ[c<64,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]

A declaration may give a weight's exact values: `G : weight f32[2,2] = [1,0,1/2,-1]`.
Grammar (scalar bodies):  sum: product (('+'|'-') product)*;  product: unary (('*'|'/') unary)*;  unary: '-' unary | atom;
atom: number | read | `{scope}[..]` | name '(' args ')' | `val(index)` | `select(cond & cond, a, b)` | '(' sum ')'.
`read` is `A[i,j]` with an optional fill `A[i,j]|-inf`. In an index `//` and `%` are floor division and remainder, `/` is exact division.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from einnet.errors import ParseError
from einnet.expr.index import Index, Range, as_index, bounds, moduli, var
from einnet.expr.nodes import (
    FUNCTIONS,
    INF,
    REDUCTIONS,
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Iter,
    Mul,
    Number,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    make_add,
    make_mul,
    negate,
    tensors,
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------- printing


def print_number(v: Number) -> str:
    """An exact decimal where there is a short one, else p/q; inf and -inf."""
    if isinstance(v, float):
        if v == INF or v == -INF:
            return "inf" if v > 0 else "-inf"
        v = Fraction(v)
    if v.denominator == 1:
        return str(v.numerator)
    decimal = repr(float(v))
    if "inf" not in decimal and Fraction(decimal) == v:
        return decimal
    return f"{v.numerator}/{v.denominator}"


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
    parts: list[tuple[int, int, int, str]] = []
    for factor, num, d, quotient in found:
        parts.append((first(num), 2, factor, f"{grouped(num)}%{d}"))
        if quotient:
            parts.append((first(num), 1, quotient, f"{grouped(num)}//{d}"))
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
        sign = "-" if c < 0 else "+" if text else ""
        times = "" if abs(c) == 1 else f"{abs(c)}*"
        grasped = kind and (times or sign == "-" and not text)
        text += f"{sign}{times}{f'({name})' if grasped else name}"
    if rest.const or not text:
        text += f"{rest.const:+d}" if text else str(rest.const)
    return text


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
            text = ""
            for a in args:
                part = print_body(a, order, _PRODUCT)
                text += (" + " if text else "") + part
            return wrap(text, _SUM)
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


def print_scope(s: Scope) -> str:
    """`L[..] Σ[..] body` on one line."""
    text = f"L[{','.join(map(print_iter, s.loops))}] "
    if s.sums or s.reduce != "sum":
        text += f"{'Σ' if s.reduce == 'sum' else s.reduce}[{','.join(map(print_iter, s.sums))}] "
    return text + print_body(s.body, [i.name for i in (*s.loops, *s.sums)])


def print_declaration(t: Tensor) -> str:
    given = "" if t.values is None else f" = [{','.join(map(print_number, t.values))}]"
    return f"{t.name} : {'weight ' if t.weight else ''}{t.dtype}[{','.join(map(str, t.shape))}]{given}"


def print_with_declarations(s: Scope) -> str:
    """Declarations of the tensors, a line each, then the expression: what `parse` reads back to the same value."""
    return "\n".join([*(print_declaration(t) for t in tensors(s).values()), print_scope(s)])


# ----------------------------------------------------------------------------------------------------------------- parsing

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|#[^\n]*)|(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*'*)|"
    r"(?P<op><=|>=|==|//|[-+*/%()\[\]{},<|&:=])"
)
_DEPTH = 200


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, text: str, declared: Mapping[str, Tensor]) -> None:
        self.source = text
        self.tokens: list[_Token] = []
        at = 0
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m is None:
                raise self.error(f"unexpected character {text[at]!r}", at)
            if m.lastgroup != "space":
                self.tokens.append(_Token(str(m.lastgroup), m.group(), at))
            at = m.end()
        self.tokens.append(_Token("end", "end of text", len(text)))
        self.pos = 0
        self.depth = 0
        self.declared = dict(declared)

    def error(self, message: str, at: int | None = None) -> ParseError:
        at = self.tokens[self.pos].at if at is None else at
        line = self.source.count("\n", 0, at) + 1
        start = self.source.rfind("\n", 0, at) + 1
        end = self.source.find("\n", at)
        shown = self.source[start : end if end >= 0 else len(self.source)]
        lo = max(0, at - start - 60)
        return ParseError(f"line {line}, column {at - start + 1}: {message}\n    {shown[lo : lo + 120]}\n    {' ' * (at - start - lo)}^")

    def peek(self, *texts: str) -> bool:
        token = self.tokens[self.pos]
        return token.kind in ("op", "name") and token.text in texts

    def take(self, *texts: str) -> bool:
        if self.peek(*texts):
            self.pos += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.error(f"expected {text!r}, found {self.tokens[self.pos].text!r}")

    def name(self, what: str) -> str:
        token = self.tokens[self.pos]
        if token.kind != "name":
            raise self.error(f"expected {what}, found {token.text!r}")
        self.pos += 1
        return token.text

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        token = self.tokens[self.pos]
        if token.kind != "number" or not token.text.isdigit():
            raise self.error(f"expected an integer, found {token.text!r}")
        self.pos += 1
        if len(token.text) > 18:
            raise self.error("the integer has more than 18 digits", token.at)
        return sign * int(token.text)

    def at_end(self) -> bool:
        return self.tokens[self.pos].kind == "end"

    def nest(self, by: int) -> None:
        self.depth += by
        if self.depth > _DEPTH:
            raise self.error(f"nested deeper than {_DEPTH} levels")

    # declarations and scopes

    def declarations(self) -> None:
        while self.tokens[self.pos].kind == "name" and self.tokens[self.pos + 1].text == ":":
            at = self.tokens[self.pos].at
            name = self.name("a tensor name")
            self.expect(":")
            weight = self.take("weight")
            dtype = self.name("a type such as f32")
            self.expect("[")
            shape: list[int] = []
            while not self.take("]"):
                if shape:
                    self.expect(",")
                shape.append(self.integer())
            if any(n < 0 for n in shape):
                raise self.error(f"tensor {name} has a negative extent", at)
            tensor = Tensor(name, tuple(shape), dtype, weight, self.given_values(prod(shape)) if self.take("=") else None)
            if tensor.values is not None and not weight:
                raise self.error(f"tensor {name} has values but is no weight", at)
            if self.declared.setdefault(name, tensor) != tensor:
                raise self.error(f"tensor {name} is declared twice, differently", at)

    def given_values(self, count: int) -> tuple[Fraction, ...]:
        at = self.tokens[self.pos].at
        self.expect("[")
        values: list[Fraction] = []
        while not self.take("]"):
            if values:
                self.expect(",")
            v = self.number()
            if self.take("/"):
                below = self.number()
                if isinstance(v, float) or isinstance(below, float) or not below:
                    raise self.error("expected an exact rational", at)
                v = v / below
            if isinstance(v, float):
                raise self.error("the values of a tensor are finite", at)
            values.append(v)
        if len(values) != count:
            raise self.error(f"{len(values)} values for {count} elements", at)
        return tuple(values)

    def iters(self) -> list[Iter]:
        self.expect("[")
        out: list[Iter] = []
        while not self.take("]"):
            if out:
                self.expect(",")
            lo = 0
            if self.tokens[self.pos].kind == "number" or self.peek("-"):
                lo = self.integer()
                self.expect("<=")
            name = self.name("an iterator name")
            self.expect("<")
            hi = self.integer()
            if hi < lo:
                raise self.error(f"iterator {name} has the empty range {lo}..{hi}")
            out.append(Iter(name, lo, hi))
        return out

    def scope(self) -> Scope:
        self.nest(1)
        at = self.tokens[self.pos].at
        self.expect("L")
        loops = self.iters()
        reduce, sums = "sum", []
        if self.tokens[self.pos + 1].text == "[" and self.peek("Σ", "sum", "max", "min"):
            word = self.name("a reduction")
            reduce = "sum" if word == "Σ" else word
            sums = self.iters()
        names = [i.name for i in (*loops, *sums)]
        if len(set(names)) != len(names):
            raise self.error("an iterator is bound twice in one scope", at)
        bound = {i.name: i.range for i in (*loops, *sums)}
        body = self.sum(bound)
        self.nest(-1)
        assert reduce in REDUCTIONS
        return Scope(tuple(loops), tuple(sums), body, reduce)

    # scalar bodies

    def sum(self, bound: Mapping[str, Range]) -> Body:
        self.nest(1)
        terms = [self.product(bound)]
        while self.peek("+", "-"):
            minus = self.take("-") or not self.take("+")
            term = self.product(bound)
            terms.append(negate(term) if minus else term)
        self.nest(-1)
        return terms[0] if len(terms) == 1 else make_add(terms)

    def product(self, bound: Mapping[str, Range]) -> Body:
        left = self.unary(bound)
        while self.peek("*", "/"):
            divide = self.take("/") or not self.take("*")
            right = self.unary(bound)
            if not divide:
                left = make_mul((left, right))
            elif isinstance(left, Const) and isinstance(right, Const) and right.value and not isinstance(left.value, float):
                left = Const(left.value / Fraction(right.value))
            else:
                left = Div(left, right)
        return left

    def unary(self, bound: Mapping[str, Range]) -> Body:
        if self.take("-"):
            self.nest(1)
            inner = negate(self.unary(bound))
            self.nest(-1)
            return inner
        return self.atom(bound)

    def number(self) -> Number:
        if self.take("-"):
            return -self.number()
        if self.take("inf"):
            return INF
        token = self.tokens[self.pos]
        if token.kind != "number":
            raise self.error(f"expected a number, found {token.text!r}")
        if len(token.text) > 400 or abs(int(token.text.lower().partition("e")[2] or "0")) > 400:
            raise self.error("the number is out of range")
        self.pos += 1
        return Fraction(token.text)

    def atom(self, bound: Mapping[str, Range]) -> Body:
        token = self.tokens[self.pos]
        if token.kind == "number" or token.text == "inf":
            return Const(self.number())
        if self.take("("):
            inner = self.sum(bound)
            self.expect(")")
            return inner
        if self.take("{"):
            scope = self.scope()
            self.expect("}")
            return self.read(scope, token, bound)
        name = self.name("an operand")
        if self.peek("["):
            return self.read(name, token, bound)
        if name == "val":
            self.expect("(")
            index = self.index(bound)
            self.expect(")")
            return Val(index)
        if name == "select":
            return self.select(bound)
        if name not in FUNCTIONS:
            hint = " (an iterator is used as a number by val(...))" if name in bound else ""
            raise self.error(f"{name!r} is neither a tensor read nor a function{hint}", token.at)
        self.expect("(")
        args = [self.sum(bound)]
        while self.take(","):
            args.append(self.sum(bound))
        self.expect(")")
        if len(args) != FUNCTIONS[name]:
            raise self.error(f"{name} takes {FUNCTIONS[name]} argument(s), not {len(args)}", token.at)
        return Call(name, tuple(args))

    def select(self, bound: Mapping[str, Range]) -> Body:
        self.expect("(")
        conds: list[Cond] = []
        while True:
            left = self.index(bound)
            at = self.tokens[self.pos].at
            if self.take(">="):
                conds.append(Cond(left - self.index(bound)))
            elif self.take("=="):
                conds.append(Cond(left - self.index(bound), True))
            elif self.take("<="):
                conds.append(Cond(self.index(bound) - left))
            elif self.take("<"):
                conds.append(Cond(self.index(bound) - left - 1))
            else:
                raise self.error("expected >=, ==, <= or < in a condition", at)
            if not self.take("&"):
                break
        self.expect(",")
        then = self.sum(bound)
        self.expect(",")
        other = self.sum(bound)
        self.expect(")")
        return Select(tuple(conds), then, other)

    def read(self, base: str | Scope, token: _Token, bound: Mapping[str, Range]) -> Body:
        self.expect("[")
        index: list[Index] = []
        while not self.take("]"):
            if index:
                self.expect(",")
            index.append(self.index(bound))
        fill = self.fill() if self.take("|") else Fraction(0)
        if isinstance(base, str):
            if base not in self.declared:
                self.declared[base] = self.infer(base, index, bound)
            tensor: Tensor | Scope = self.declared[base]
            rank = len(self.declared[base].shape)
        else:
            tensor, rank = base, len(base.loops)
        if rank != len(index):
            raise self.error(f"{len(index)} indices for {'a scope' if isinstance(base, Scope) else base} of {rank} dimensions", token.at)
        return Read(tensor, tuple(index), fill)

    def fill(self) -> Number:
        if not self.take("("):
            return self.number()
        num = self.number()
        den = self.number() if self.take("/") else Fraction(1)
        self.expect(")")
        if den == 0 or isinstance(num, float) or isinstance(den, float):
            raise self.error("a fill is a rational number, inf or -inf")
        return num / den

    def infer(self, name: str, index: Sequence[Index], bound: Mapping[str, Range]) -> Tensor:
        """The box of an undeclared tensor: what is read, less equal padding on both sides where an index starts below 0."""
        shape = []
        for e in index:
            lo, hi = bounds(e, bound)
            shape.append(max(hi + 1 + min(lo, 0), 1))
        return Tensor(name, tuple(shape))

    # index functions

    def index(self, bound: Mapping[str, Range]) -> Index:
        self.nest(1)
        total = self.index_product(bound)
        while self.peek("+", "-"):
            minus = self.take("-") or not self.take("+")
            term = self.index_product(bound)
            total = total - term if minus else total + term
        self.nest(-1)
        return total

    def index_product(self, bound: Mapping[str, Range]) -> Index:
        left = self.index_unary(bound)
        while self.peek("*", "/", "//", "%"):
            at = self.tokens[self.pos].at
            op = self.tokens[self.pos].text
            self.pos += 1
            right = self.index_unary(bound)
            if op == "*" and left.is_const and left.den == 1:
                left = right * left.const
                continue
            if not right.is_const or right.den != 1:
                raise self.error("an index is multiplied and divided by integers only", at)
            if op == "*":
                left = left * right.const
            elif right.const <= 0:
                raise self.error("an index is divided by positive integers only", at)
            elif op == "/":
                left = left / right.const
            else:
                left = left // right.const if op == "//" else left % right.const
        return left

    def index_unary(self, bound: Mapping[str, Range]) -> Index:
        if self.take("-"):
            self.nest(1)
            inner = -self.index_unary(bound)
            self.nest(-1)
            return inner
        if self.take("("):
            inner = self.index(bound)
            self.expect(")")
            return inner
        token = self.tokens[self.pos]
        if token.kind == "number":
            return as_index(self.integer())
        name = self.name("an iterator")
        if name not in bound:
            raise self.error(f"iterator {name!r} is not bound here (bound: {', '.join(bound) or 'none'})", token.at)
        return var(name)


def parse(text: str, declared: Mapping[str, Tensor] | None = None) -> Scope:
    """Read one expression, with the declarations of its tensors before it.

    A tensor without declaration gets the smallest box that its reads suggest: the hull of its first index functions, less equal padding on
    both sides where an index starts below 0 (so `A[h+r-1]` with h<56, r<3 has 56 elements).

    Raises ParseError, with line, column and a caret.
    """
    parser = _Parser(text, declared or {})
    parser.declarations()
    if parser.tokens[parser.pos].kind == "name" and parser.tokens[parser.pos + 1].text == "=":
        parser.pos += 2
    scope = parser.scope()
    if not parser.at_end():
        raise parser.error(f"unexpected {parser.tokens[parser.pos].text!r} after the expression")
    return scope


