"""Expressions in which a named size N stands for itself, read with the one grammar that there is.

A multiple k·N is written as the number k·SIZE. A range or an extent is that number, on which nothing is computed. An index function stays its
text (an iterator of that name), until `value` reads it for the points of a frame, with `many·N + rest` for numbers and iterators (`sized`).
"""

from __future__ import annotations

from collections.abc import Mapping

from einnet.expr.index import ZERO, Index, Range, as_index, combine, floor_div, simplify, var
from einnet.expr.nodes import Number, Scope, Tensor
from einnet.expr.notation.text import Parser
from einnet.expr.notation.tokens import QuasiReader, Tokens
from einnet.expr.sets import PARAMETER
from einnet.expr.sized import Frame, Sized, Unsliced

SIZE = 2**127 - 1
"""Stands for N: of more digits than an integer of the notation may have."""

_MOST_DIGITS = 500
"""The notation has no numbers with more."""

_ENDS = (",", "]", ")", ">=", "<=", "==", "<", "&")


def parse_sized(text: str) -> Scope:
    """Declarations and an expression in which k·SIZE stands for k·N; its index functions are texts.

    Raises Unsliced for a number in a body that follows N, ParseError for what is no expression.
    """
    return _ExpressionReader(text, {}).expression()


def value(e: Index, frame: Frame) -> Sized:
    """The index function whose iterators are texts, at the points of the frame. Raises Unsliced where it is out of reach."""
    total = Sized(ZERO, Index((), e.const))
    for text, factor in e.terms:
        assert isinstance(text, str)
        total += _IndexReader(text, frame).whole().times(Sized(ZERO, as_index(factor)))
    return Sized(simplify(total.many, frame.ranges), total.rest)


def multiple(number: int) -> int:
    """k of k·SIZE, 0 of any other number."""
    return number // SIZE if number % SIZE == 0 else 0


def follows(ranges: tuple[Range, ...]) -> list[int]:
    """The places of the ranges whose ends follow N."""
    return [n for n, ends in enumerate(ranges) if any(map(multiple, ends))]


def _is_multiple(text: str) -> bool:
    """The digits of k·SIZE, k > 0."""
    return 18 < len(text) <= _MOST_DIGITS and text.isdigit() and int(text) % SIZE == 0


class _Sizes(Tokens):
    """Integers may be multiples of SIZE."""

    def integer(self) -> int:
        text = self.tokens[self.pos].text
        if _is_multiple(text):
            self.pos += 1
            return int(text)
        return super().integer()


class _IndexReader(_Sizes, QuasiReader[Sized]):
    """Index functions as `many·N + rest`."""

    def __init__(self, text: str, frame: Frame) -> None:
        super().__init__(text)
        self.frame = frame

    def whole(self) -> Sized:
        found = self.index(dict.fromkeys(self.frame.iterators, (0, 0)))
        if not self.at_end():
            raise self.error("expected the end of an index")
        return found

    def constant(self, value: int) -> Sized:
        return Sized(as_index(multiple(value)), ZERO) if multiple(value) else Sized(ZERO, as_index(value))

    def iterator(self, name: str) -> Sized:
        return self.frame.iterators[name]

    def operated(self, op: str, left: Sized, right: Sized, at: int) -> Sized:
        if op == "*":
            return left.times(right)
        if right.many.const and right.rest.const or right.many.const + right.rest.const <= 0:
            raise self.error("an index is divided by positive integers and by multiples of the size only", at)
        if op == "/":
            return self.divided(left, right)
        quotient = self.floored(left, right)
        return quotient if op == "//" else left - quotient.times(right)

    def divided(self, left: Sized, right: Sized) -> Sized:
        """Exact division by an integer."""
        many = left.many / (right.rest.const or 1)
        if right.many.const or many.den != 1:
            raise Unsliced("an exact division by the size, or of it")
        return Sized(many, left.rest / right.rest.const)

    def floored(self, left: Sized, right: Sized) -> Sized:
        """The floor of a quotient by a multiple of N, or by an integer: what that divides leaves the division."""
        many, d = simplify(left.many, self.frame.ranges), right.rest.const
        if right.many.const:
            return Sized(ZERO, self.frame.floored(left, right.many.const))
        if (many / d).den == 1:
            return Sized(many / d, floor_div(left.rest, d))
        if not many.is_const:
            raise Unsliced("a quotient of a multiple of the size")
        return Sized(ZERO, floor_div(combine((left.rest, 1), (var(PARAMETER), many.const)), d))


class _ExpressionReader(_Sizes, Parser):
    """Declarations, scopes and bodies; index functions stay texts."""

    def index(self, bound: Mapping[str, Range]) -> Index:
        start, level = self.pos, 0
        while level or not (self.at_end() or self.peek(*_ENDS)):
            if self.at_end():
                raise self.error("expected ')'")
            level += self.peek("(") - self.peek(")")
            self.pos += 1
        return var(self.source[self.tokens[start].at : self.tokens[self.pos].at].strip())

    def number(self) -> Number:
        if _is_multiple(self.tokens[self.pos].text.partition(".")[0]):
            raise Unsliced("a number of the expression follows the size")
        return super().number()

    def infer(self, name: str, index: object, bound: object) -> Tensor:
        raise Unsliced(f"tensor {name} is not declared")
