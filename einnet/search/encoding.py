"""Expressions, steps and forms as plain data (JSON), each distinct one once: what search sends between processes and keeps on disk.

The text form would do, but a search has thousands of expressions that share their parts; here a part is written once and named by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

from einnet.derivation.steps import Step
from einnet.expr.index import Floor, Index
from einnet.expr.nodes import Add, Body, Call, Cond, Const, Div, Iter, Mul, Number, Read, Scope, Select, Tensor, Val
from einnet.instantiate.matching.types import Match, Table
from einnet.search.forms import Form

Json = Any
V = TypeVar("V")


@dataclass
class Writer:
    """Collects tensors, scopes and steps; every method returns what stands for its argument."""

    tensors: dict[Tensor, int] = field(default_factory=dict)
    scopes: dict[Scope, int] = field(default_factory=dict)
    steps: dict[Step, int] = field(default_factory=dict)
    tables: dict[str, list[Json]] = field(default_factory=lambda: {"tensors": [], "scopes": [], "steps": []})

    def scope(self, s: Scope) -> int:
        if s not in self.scopes:
            value = [_iters(s.loops), _iters(s.sums), self.body(s.body), s.reduce]
            self.scopes[s] = self._put("scopes", value)
        return self.scopes[s]

    def tensor(self, t: Tensor) -> int:
        if t not in self.tensors:
            values = None if t.values is None else [str(v) for v in t.values]
            self.tensors[t] = self._put("tensors", [t.name, list(t.shape), t.dtype, t.weight, values])
        return self.tensors[t]

    def step(self, s: Step) -> int:
        if s not in self.steps:
            value = [s.rule, s.parameters, self.scope(s.before), self.scope(s.after), list(s.path), s.kind, s.bound]
            self.steps[s] = self._put("steps", value)
        return self.steps[s]

    def form(self, f: Form) -> Json:
        """Matches are written as which table matched which scope: matching again gives the kernel."""
        return [self.scope(f.start), self.scope(f.tree), [[self.scope(s), m.table] for s, m in f.matches], [self.step(s) for s in f.steps]]

    def body(self, b: Body) -> Json:
        match b:
            case Read(base, index, fill):
                where = ["s", self.scope(base)] if isinstance(base, Scope) else ["t", self.tensor(base)]
                return ["r", *where, [_index(e) for e in index], _number(fill)]
            case Const(value):
                return ["c", _number(value)]
            case Val(index):
                return ["v", _index(index)]
            case Add(args):
                return ["+", *map(self.body, args)]
            case Mul(args):
                return ["*", *map(self.body, args)]
            case Div(num, den):
                return ["/", self.body(num), self.body(den)]
            case Call(name, args):
                return ["f", name, *map(self.body, args)]
            case Select(conds, then, other):
                return ["?", [[_index(c.index), c.equal] for c in conds], self.body(then), self.body(other)]
        raise TypeError(f"not a body: {b!r}")

    def _put(self, table: str, value: Json) -> int:
        self.tables[table].append(value)
        return len(self.tables[table]) - 1


class Made(Generic[V]):
    """Values made of their entries when they are asked for."""

    def __init__(self, entries: Sequence[Json], make: Callable[[Json], V]) -> None:
        self._entries, self._make = entries, make
        self._made: dict[int, V] = {}

    def __getitem__(self, n: int) -> V:
        found = self._made.get(n)
        if found is None:
            found = self._made[n] = self._make(self._entries[n])
        return found

    def __len__(self) -> int:
        return len(self._entries)


class Reader:
    """What a Writer's tables stand for, made `at_once`, or when it is asked for. Raises ValueError, KeyError, IndexError or TypeError for tables that
    no Writer has written."""

    def __init__(self, tables: dict[str, list[Json]], operators: Iterable[Table], at_once: bool = True) -> None:
        self._operators = tuple(operators)
        self.tensors = Made(tables["tensors"], _tensor)
        self.scopes = Made(tables["scopes"], self._scope)
        self.steps = Made(tables["steps"], self._step)
        self._matches: dict[tuple[int, str], Match] = {}
        for made in (self.tensors, self.scopes, self.steps) if at_once else ():
            for n in range(len(made)):
                made[n]

    def _scope(self, value: Json) -> Scope:
        loops, sums, body, reduce = value
        return Scope(_read_iters(loops), _read_iters(sums), self.body(body), reduce)

    def _step(self, value: Json) -> Step:
        rule, parameters, before, after, path, kind, bound = value
        return Step(rule, parameters, self.scopes[before], self.scopes[after], tuple(path), kind, bound)

    def form(self, value: Json) -> Form:
        start, tree, matches, steps = value
        found = tuple((self.scopes[s], self._match(s, table)) for s, table in matches)
        return Form(self.scopes[start], self.scopes[tree], found, tuple(self.steps[n] for n in steps))

    def body(self, value: Json) -> Body:
        match value:
            case ["r", kind, base, index, fill]:
                return Read(self.scopes[base] if kind == "s" else self.tensors[base], tuple(map(_read_index, index)), _read_number(fill))
            case ["c", number]:
                return Const(_read_number(number))
            case ["v", index]:
                return Val(_read_index(index))
            case ["+", *args]:
                return Add(tuple(map(self.body, args)))
            case ["*", *args]:
                return Mul(tuple(map(self.body, args)))
            case ["/", num, den]:
                return Div(self.body(num), self.body(den))
            case ["f", name, *args]:
                return Call(name, tuple(map(self.body, args)))
            case ["?", conds, then, other]:
                return Select(tuple(Cond(_read_index(e), equal) for e, equal in conds), self.body(then), self.body(other))
        raise ValueError(f"no body: {value!r}")

    def _match(self, scope: int, table: str) -> Match:
        if (scope, table) not in self._matches:
            ordered = sorted(self._operators, key=lambda t: t.name != table)  # what is called alike has most likely matched
            tried = (t.match(self.scopes[scope]) for t in ordered)
            found = next((m for m in tried if isinstance(m, Match) and m.table == table), None)
            if found is None:
                raise ValueError(f"no {table}: {self.scopes[scope].text()}")
            self._matches[scope, table] = found
        return self._matches[scope, table]


def _tensor(value: Json) -> Tensor:
    name, shape, dtype, weight, values = value
    return Tensor(name, tuple(shape), dtype, weight, _values(values))


def _iters(iters: Sequence[Iter]) -> Json:
    return [list(i) for i in iters]


def _read_iters(value: Json) -> tuple[Iter, ...]:
    return tuple(Iter(*i) for i in value)


def _index(e: Index) -> Json:
    return [[[a if isinstance(a, str) else [_index(a.num), a.den], c] for a, c in e.terms], e.const, e.den]


def _read_index(value: Json) -> Index:
    terms, const, den = value
    return Index(tuple((a if isinstance(a, str) else Floor(_read_index(a[0]), a[1]), c) for a, c in terms), const, den)


def _number(value: Number) -> Json:
    return value if isinstance(value, float) else str(value)


def _read_number(value: Json) -> Number:
    return value if isinstance(value, float) else Fraction(value)


def _values(value: Json) -> tuple[Fraction, ...] | None:
    return None if value is None else tuple(map(Fraction, value))
