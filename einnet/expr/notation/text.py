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

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from einnet.expr.functions import FUNCTIONS
from einnet.expr.index import Index, Range, bounds
from einnet.expr.nodes import (
    INF,
    REDUCTIONS,
    Body,
    Call,
    Cond,
    Const,
    Iter,
    Number,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    make_add,
    make_div,
    make_mul,
    negate,
)  # fmt: skip
from einnet.expr.notation.tokens import IndexReader, Token


class Known(NamedTuple):
    """A scope that was read, and how many levels deep it is nested."""

    scope: Scope
    height: int


class Parser(IndexReader):
    """Declarations, scopes and bodies."""

    def __init__(self, text: str, declared: Mapping[str, Tensor], known: Mapping[str, Known] = MappingProxyType({})) -> None:
        """`known` are scopes by their texts in braces, for the tensors that are declared: these are not read again."""
        super().__init__(text, known)
        self.declared = dict(declared)
        self.known = known
        self.found: dict[str, Known] = {}

    # declarations and scopes

    def expression(self) -> Scope:
        """The whole text: declarations, and one expression."""
        self.declarations()
        if self.tokens[self.pos].kind == "name" and self.ahead == "=":
            self.pos += 2
        scope = self.scope()
        if not self.at_end():
            raise self.error(f"unexpected {self.tokens[self.pos].text!r} after the expression")
        return scope

    def declarations(self) -> None:
        while self.tokens[self.pos].kind == "name" and self.ahead == ":":
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
        if self.ahead == "[" and self.peek("Σ", "sum", "max", "min"):
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
            left = make_div(left, right) if divide else make_mul((left, right))
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
            return self.read(self.braced(token.at), token, bound)
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
        arity = FUNCTIONS[name].arity
        if len(args) != arity:
            raise self.error(f"{name} takes {arity} argument(s), not {len(args)}", token.at)
        return Call(name, tuple(args))

    def braced(self, at: int) -> Scope:
        """The scope in the braces that open at a position, taken already."""
        if at in self.skipped:
            known = self.known[self.skipped[at]]
            self.nest(known.height)
            self.nest(-known.height)
            return known.scope
        before, self.deepest = self.deepest, self.depth
        scope = self.scope()
        end = self.tokens[self.pos].at + 1
        self.expect("}")
        self.found[self.source[at:end]] = Known(scope, self.deepest - self.depth)
        self.deepest = max(before, self.deepest)
        return scope

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

    def read(self, base: str | Scope, token: Token, bound: Mapping[str, Range]) -> Body:
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


def parse(text: str, declared: Mapping[str, Tensor] | None = None, known: dict[str, Known] | None = None) -> Scope:
    """Read one expression, with the declarations of its tensors before it.

    A tensor without declaration gets the smallest box that its reads suggest: the hull of its first index functions, less equal padding on
    both sides where an index starts below 0 (so `A[h+r-1]` with h<56, r<3 has 56 elements). `known` gathers the scopes in braces by their texts, as
    long as all tensors are declared: what expressions with the same declarations have in common is read once.

    Raises ParseError, with line, column and a caret.
    """
    parser = Parser(text, declared or {}, known or {})
    found = parser.expression()
    if known is not None and parser.declared == declared:
        known.update(parser.found)
    return found
