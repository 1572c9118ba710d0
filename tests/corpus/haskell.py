"""As much Haskell as TensorRight's rules are written in: definitions whose body is a block of statements, evaluated with Python's values.

Types are dropped; a bind and a let are both definitions, since an operator gives its result whether it is run or read. Records are keyword arguments.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Value = Any
"""Whatever the functions of the environment take and give."""

_TOKENS = re.compile(
    r"\s+|(?P<text>\"(?:\\.|[^\"\\])*\")|(?P<number>\d+)|(?P<name>[A-Za-z_][\w']*(?:\.[A-Za-z]\w*)*)|(?P<op>-->|->|<-|\.==|\.>=|\.<=|\.&&|\.\|\||"
    r"\.<|\.>|<>|@@|[-+*$=\\\[\](){},])"
)
_LEVELS = (("$",), (".||",), (".&&",), (".==", ".>=", ".<=", ".<", ".>"), ("<>",), ("-->",), ("@@",), ("+", "-"), ("*",))
_OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, ".==": operator.eq, ".>=": operator.ge, ".<=": operator.le, ".<": operator.lt,
    ".>": operator.gt, ".&&": lambda a, b: a and b, ".||": lambda a, b: a or b, "<>": operator.add, "$": lambda f, x: f(x),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Definition:
    """Names of parameters, and statements as texts; a body without `do` is one statement."""

    parameters: tuple[str, ...]
    statements: tuple[str, ...]


def definitions(source: str) -> dict[str, Definition]:
    """The definitions of a file by name, signatures and comments left out."""
    source = re.sub(r"\{-.*?-\}", "", source, flags=re.S)
    source = re.sub(r"(?m)^\s*--.*$|\s--\s.*$", "", source)
    found: dict[str, Definition] = {}
    for block in re.split(r"\n(?=\S)", source):
        head = re.match(r"(\w+)((?: \w+)*) = (do\b)?", block)
        if head is None:
            continue
        body = block[head.end() :]
        statements = tuple(s for s in re.split(r"\n  (?=\S)", body) if s.strip()) if head[3] else (body,)
        found[head[1]] = Definition(tuple(head[2].split()), statements)
    return found


def tokens(text: str) -> list[str]:
    """Without type annotations and applications."""
    text = re.sub(r"(?<=\s)@(?=[A-Za-z])\w+|::\s*\w+", "", text)
    found, at = [], 0
    while at < len(text):
        m = _TOKENS.match(text, at)
        if m is None:
            raise ValueError(f"cannot be read: {text[at : at + 40]!r}")
        at = m.end()
        if m.lastgroup:
            found.append(m.group())
    return found


@dataclass
class Evaluator:
    """Evaluates expressions in an environment; `of_text` is what a literal text means, where it is no argument of a function that names things."""

    environment: dict[str, Value]

    def statement(self, text: str) -> Value:
        """A bind, a let, or an expression; the value of the last."""
        if text.startswith("let "):
            for clause in re.split(r"\n {6}(?=\S)", text[4:]):
                self.clause(clause)
            return None
        words = tokens(text)
        if "<-" in words:
            k = words.index("<-")
            value = self.expression(words[k + 1 :])
            self.environment |= bound(words[:k], value)
            return value
        return self.expression(words)

    def clause(self, text: str) -> None:
        words = tokens(text)
        k = words.index("=")
        name, parameters = words[0], words[1:k]
        if not parameters:
            self.environment[name] = self.expression(words[k + 1 :])
        elif name not in self.environment:
            self.environment[name] = self.function(patterns(parameters), words[k + 1 :])

    def function(self, takes: list[list[str]], body: list[str]) -> Value:
        def call(*arguments: Value) -> Value:
            inner = dict(self.environment)
            for pattern, value in zip(takes, arguments, strict=True):
                inner |= bound(pattern, value)
            return Evaluator(inner).expression(body)

        return curried(call, len(takes))

    def expression(self, words: list[str]) -> Value:
        value, at = self.level(words, 0, 0)
        if at != len(words):
            raise ValueError(f"cannot be read: {' '.join(words[at:])}")
        return value

    def level(self, words: list[str], at: int, n: int) -> tuple[Value, int]:
        if n == len(_LEVELS):
            return self.application(words, at)
        left, at = self.level(words, at, n + 1)
        while at < len(words) and words[at] in _LEVELS[n]:
            sign = words[at]
            right, at = self.level(words, at + 1, n if sign == "$" else n + 1)
            function = self.environment.get(sign) or _OPERATORS[sign]
            left = function(left, right)
        return left, at

    def application(self, words: list[str], at: int) -> tuple[Value, int]:
        value, at = self.atom(words, at)
        while at < len(words) and (words[at] in ("(", "[", "{") or words[at][0].isalnum() or words[at][0] in '_"\\') and words[at] != "\\":
            if words[at] == "{":
                fields, at = self.record(words, at)
                value = value(**fields)
            else:
                argument, at = self.atom(words, at)
                if at < len(words) and words[at] == "{":
                    fields, at = self.record(words, at)
                    argument = argument(**fields)
                value = value(argument)
        return value, at

    def record(self, words: list[str], at: int) -> tuple[dict[str, Value], int]:
        fields: dict[str, Value] = {}
        while words[at] != "}":
            name = words[at + 1]
            fields[name], at = self.level(words, at + 3, 0)
        return fields, at + 1

    def atom(self, words: list[str], at: int) -> tuple[Value, int]:
        word = words[at]
        if word == "-":
            value, at = self.atom(words, at + 1)
            return -value, at
        if word == "\\":
            arrow = words.index("->", at)
            end = closing(words, at)
            return self.function(patterns(words[at + 1 : arrow]), words[arrow + 1 : end]), end
        if word in ("(", "["):
            items: list[Value] = []
            at += 1
            comma = False
            while words[at] not in (")", "]"):
                if words[at] == ",":
                    at, comma = at + 1, True
                    continue
                item, at = self.level(words, at, 0)
                items.append(item)
            if word == "[":
                return items, at + 1
            return (tuple(items) if comma else items[0]), at + 1
        if word[0] == '"':
            return self.environment['"'](word[1:-1]), at + 1
        if word.isdigit():
            return int(word), at + 1
        if word not in self.environment:
            raise ValueError(f"{word} is not known")
        return self.environment[word], at + 1


def closing(words: list[str], at: int) -> int:
    """Where the bracket closes that a lambda stands in; the end where it stands in none."""
    depth = 0
    for k in range(at, len(words)):
        depth += (words[k] in ("(", "[", "{")) - (words[k] in (")", "]", "}"))
        if depth < 0 or (depth == 0 and words[k] == ","):
            return k
    return len(words)


def patterns(words: list[str]) -> list[list[str]]:
    """Names, and lists of names in brackets."""
    found: list[list[str]] = []
    at = 0
    while at < len(words):
        end = words.index("]", at) + 1 if words[at] == "[" else at + 1
        found.append(words[at:end])
        at = end
    return found


def bound(pattern: list[str], value: Value) -> Mapping[str, Value]:
    if pattern[0] != "[":
        return {pattern[0]: value}
    return dict(zip([w for w in pattern[1:-1] if w != ","], value, strict=True))


def curried(function: Callable[..., Value], count: int) -> Value:
    """A function of so many arguments, one at a time."""
    if count == 0:
        return function()

    def take(given: tuple[Value, ...]) -> Value:
        return lambda x: function(*given, x) if len(given) + 1 == count else take((*given, x))

    return take(())
