"""Texts as tokens, and the part of the grammar below bodies: index functions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from einnet.errors import ParseError
from einnet.expr.index import Index, Range, as_index, var

_TOKEN = re.compile(
    r"(?:[ \t\r\n]+|#[^\n]*)|(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*'*)|"
    r"(?P<op><=|>=|==|//|[-+*/%()\[\]{},<|&:=])"
)
_BRACE = re.compile("[{}]")
_DEPTH = 200


class Token(NamedTuple):
    kind: str
    text: str
    at: int


def outermost(text: str, known: Collection[str]) -> dict[int, str]:
    """The texts in braces that are known and stand in no other one, by the position where they begin, in order; none beside comments."""
    if "#" in text:
        return {}
    closed: dict[int, int] = {}
    opened: list[int] = []
    for m in _BRACE.finditer(text):
        if m.group() == "{":
            opened.append(m.start())
        elif opened:
            closed[opened.pop()] = m.end()
    found: dict[int, str] = {}
    end = 0
    for at in sorted(closed):
        if at >= end and (braced := text[at : closed[at]]) in known:
            found[at], end = braced, closed[at]
    return found


class Tokens:
    """A text as tokens with a position in it; errors carry line, column and a caret."""

    def __init__(self, text: str, known: Collection[str] = ()) -> None:
        """Of texts in braces that are `known` there is the `{` alone; `skipped` has them by the position where they begin."""
        self.source = text
        self.tokens: list[Token] = []
        self.words: list[str] = []  # what `peek` compares: operators and names, and nothing for the others
        self.pos = 0
        self.depth = 0
        self.deepest = 0
        self.skipped = outermost(text, known) if known else {}
        start = 0
        for at, braced in self.skipped.items():
            self._scan(start, at + 1)
            start = at + len(braced)
        self._scan(start, len(text))
        self.tokens.append(Token("end", "end of text", len(text)))
        self.words.append("")

    def _scan(self, start: int, stop: int) -> None:
        """The tokens of a part of the text."""
        end = start
        for m in _TOKEN.finditer(self.source, start, stop):
            at = m.start()
            if at != end:
                break
            end, kind = m.end(), m.lastgroup
            if kind is not None:
                self.tokens.append(Token(kind, m.group(), at))
                self.words.append("" if kind == "number" else m.group())
        if end != stop:
            raise self.error(f"unexpected character {self.source[end]!r}", end)

    def error(self, message: str, at: int | None = None) -> ParseError:
        at = self.tokens[self.pos].at if at is None else at
        line = self.source.count("\n", 0, at) + 1
        start = self.source.rfind("\n", 0, at) + 1
        end = self.source.find("\n", at)
        shown = self.source[start : end if end >= 0 else len(self.source)]
        lo = max(0, at - start - 60)
        return ParseError(f"line {line}, column {at - start + 1}: {message}\n    {shown[lo : lo + 120]}\n    {' ' * (at - start - lo)}^")

    @property
    def ahead(self) -> str:
        """The text of the token behind the next one; the end is its own successor."""
        return self.tokens[min(self.pos + 1, len(self.tokens) - 1)].text

    def peek(self, *texts: str) -> bool:
        return self.words[self.pos] in texts

    def take(self, *texts: str) -> bool:
        if self.words[self.pos] in texts:
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
        self.deepest = max(self.deepest, self.depth)
        if self.depth > _DEPTH:
            raise self.error(f"nested deeper than {_DEPTH} levels")


class Quasi(Protocol):
    """What index functions are made of: sums, and products and divisions by constants."""

    @property
    def is_const(self) -> bool: ...
    @property
    def den(self) -> int: ...
    def __add__(self: E, other: E, /) -> E: ...
    def __sub__(self: E, other: E, /) -> E: ...
    def __neg__(self: E) -> E: ...


E = TypeVar("E", bound=Quasi)


class QuasiReader(Tokens, ABC, Generic[E]):
    """The grammar of index functions, whatever they are read as: sums of products by integers, with `//`, `%` and exact `/`."""

    @abstractmethod
    def constant(self, value: int) -> E:
        """A number as an index function."""

    @abstractmethod
    def iterator(self, name: str) -> E:
        """An iterator as an index function."""

    @abstractmethod
    def operated(self, op: str, left: E, right: E, at: int) -> E:
        """`left op right` for a constant on the right; ParseError, at the position `at`, for a division by 0 or less."""

    def index(self, bound: Mapping[str, Range]) -> E:
        self.nest(1)
        total = self.index_product(bound)
        while self.peek("+", "-"):
            minus = self.take("-") or not self.take("+")
            term = self.index_product(bound)
            total = total - term if minus else total + term
        self.nest(-1)
        return total

    def index_product(self, bound: Mapping[str, Range]) -> E:
        left = self.index_unary(bound)
        while self.peek("*", "/", "//", "%"):
            at = self.tokens[self.pos].at
            op = self.tokens[self.pos].text
            self.pos += 1
            right = self.index_unary(bound)
            if op == "*" and left.is_const and left.den == 1:
                left, right = right, left
            elif not right.is_const or right.den != 1:
                raise self.error("an index is multiplied and divided by integers only", at)
            left = self.operated(op, left, right, at)
        return left

    def index_unary(self, bound: Mapping[str, Range]) -> E:
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
            return self.constant(self.integer())
        name = self.name("an iterator")
        if name not in bound:
            raise self.error(f"iterator {name!r} is not bound here (bound: {', '.join(bound) or 'none'})", token.at)
        return self.iterator(name)


class IndexReader(QuasiReader[Index]):
    """Index functions in normal form."""

    def constant(self, value: int) -> Index:
        return as_index(value)

    def iterator(self, name: str) -> Index:
        return var(name)

    def operated(self, op: str, left: Index, right: Index, at: int) -> Index:
        if op == "*":
            return left * right.const
        if right.const <= 0:
            raise self.error("an index is divided by positive integers only", at)
        if op == "/":
            return left / right.const
        return left // right.const if op == "//" else left % right.const
