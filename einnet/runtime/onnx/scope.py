"""Expressions as standard ONNX operators: every scope of the language has such a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import prod

import numpy as np

from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import Add, Body, Call, Const, Div, Mul, Read, Scope, Select, Val, neutral, used_names
from einnet.expr.values.bodies import holds, numerator, terms
from einnet.runtime.onnx.node_writer import Emitter, Value
from einnet.runtime.onnx.reads import read
from einnet.runtime.onnx.skew import unskewed
from einnet.runtime.onnx.softmax import once, softmax

FLOAT, BOOL = 1, 9
"""Element types by their numbers in ONNX."""
SHORTER = {"as_f16": 10, "as_bf16": 16}
"""Roundings to other types, which are casts there and back."""
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Aligned:
    """Values over some iterators of a scope, an axis each, in the scope's order."""

    value: Value
    names: tuple[str, ...]


class ScopeEmitter:
    """Writes scopes over named tensors; every distinct nested scope is written once."""

    def __init__(self, emitter: Emitter, tensors: Mapping[str, Value]) -> None:
        self.e, self.tensors = emitter, tensors
        self.done: dict[Scope, Value] = {}

    def scope(self, s: Scope) -> Value:
        """The scope over the box of its loops."""
        if s not in self.done:
            self.done[s] = self._scope(unskewed(s))
        return self.done[s]

    def _scope(self, s: Scope) -> Value:
        if any(i.extent == 0 for i in s.sums):
            return self.e.expand(self.e.number(neutral(s.reduce)), s.shape)
        writer = _Body(self, s)
        total = reduce(lambda a, b: writer.join("Add", a, b), [writer.term(t) for t in terms(s)])
        loops = {i.name for i in s.loops}
        shape = tuple(n if i.name in total.names else 1 for i, n in zip(s.loops, s.shape))
        assert set(total.names) <= loops
        return self.e.expand(self.e.reshape(total.value, shape), s.shape)


class _Body:
    """The scalar bodies of one scope."""

    def __init__(self, owner: ScopeEmitter, s: Scope) -> None:
        self.owner, self.e, self.s = owner, owner.e, s
        self.order = {i.name: n for n, i in enumerate((*s.loops, *s.sums))}
        self.sums = {i.name for i in s.sums}

    def term(self, body: Body) -> Aligned:
        """One term of the scope's body, reduced."""
        factors = [self.body(f) for f in (body.args if isinstance(body, Mul) else (body,))]
        if self.s.reduce == "sum" and self.sums and len(factors) > 1:
            done = self.contract(factors)
        else:
            product = self.multiplied(factors)
            axes = [a for a, n in enumerate(product.names) if n in self.sums]
            done = Aligned(self.e.reduce(self.s.reduce, product.value, axes), tuple(n for n in product.names if n not in self.sums))
        if self.s.reduce != "sum":
            return done
        repeats = prod(i.extent for i in self.s.sums if i.name not in used_names(body))
        return done if repeats == 1 else self.join("Mul", done, self.number(repeats))

    def contract(self, factors: list[Aligned]) -> Aligned:
        """The sum of a product, as an Einsum; iterators that only one factor has are summed before."""
        scalars = [f for f in factors if not f.names]
        arrays = [self.summed(f, {n for g in factors if g is not f for n in g.names}) for f in factors if f.names]
        names = tuple(sorted({n for f in arrays for n in f.names}, key=self.order.__getitem__))
        kept = tuple(n for n in names if n not in self.sums)
        if not arrays:
            return self.multiplied(scalars)
        if len(arrays) == 1 or len(names) > len(LETTERS):
            product = self.multiplied(arrays)
            done = Aligned(self.e.reduce("sum", product.value, [a for a, n in enumerate(product.names) if n in self.sums]), kept)
        else:
            equation = spelled(names, [f.names for f in arrays], kept)
            done = Aligned(self.e.op("Einsum", [f.value for f in arrays], tuple(map(self.extent, kept)), equation=equation), kept)
        return self.multiplied([done, *scalars])

    def multiplied(self, factors: Sequence[Aligned]) -> Aligned:
        return reduce(partial(self.join, "Mul"), factors)

    def summed(self, f: Aligned, elsewhere: set[str]) -> Aligned:
        own = [a for a, n in enumerate(f.names) if n in self.sums and n not in elsewhere]
        return Aligned(self.e.reduce("sum", f.value, own), tuple(n for a, n in enumerate(f.names) if a not in own))

    def body(self, b: Body) -> Aligned:
        """Any scalar body over the iterators that occur in it."""
        b = once(b)
        match b:
            case Const(v):
                return Aligned(self.e.number(v), ())
            case Val(index):
                names, env = self.grid(index.names())
                return self.table(numerator(index, env) / np.float64(index.den), names, np.float32)
            case Read(base, index, fill):
                given = self.owner.scope(base) if isinstance(base, Scope) else self.owner.tensors[base.name]
                value, axes = read(self.e, given, base.box, index, self.s.ranges, fill)
                order = sorted(range(len(axes)), key=lambda a: self.order[axes[a]])
                return Aligned(self.e.transpose(value, order), tuple(axes[a] for a in order))
            case Add(args) | Mul(args):
                kind = "Add" if isinstance(b, Add) else "Mul"
                return reduce(lambda a, c: self.join(kind, a, c), map(self.body, args))
            case Div(num, den):
                weights = softmax(b, self.s)
                if weights is not None:
                    return self.softmax(*weights)
                return self.join("Div", self.body(num), self.body(den))
            case Call(name, args):
                return self.call(name, [self.body(a) for a in args])
            case Select(conds, then, other):
                names, env = self.grid(frozenset().union(*(c.index.names() for c in conds)))
                where = self.table(holds(conds, env), names, np.bool_)
                return self.join("Where", where, self.body(then), self.body(other))
        raise TypeError(f"not a body: {b!r}")

    def softmax(self, score: Body, over: frozenset[str]) -> Aligned:
        """exp(score) by its sum over some iterators: these last and as one axis."""
        given = self.body(score)
        names = (*(n for n in given.names if n not in over), *(n for n in given.names if n in over))
        kept = tuple(self.extent(n) for n in names if n not in over)
        value = self.e.transpose(given.value, [given.names.index(n) for n in names])
        flat = self.e.reshape(value, (*kept, prod(self.extent(n) for n in over)))
        done = self.e.reshape(self.e.op("Softmax", [flat], flat.shape, axis=-1), value.shape)
        return Aligned(self.e.transpose(done, [names.index(n) for n in given.names]), given.names)

    def call(self, name: str, args: list[Aligned]) -> Aligned:
        function = FUNCTIONS[name]
        if name == "choose":
            condition = self.e.op("Cast", [args[0].value], args[0].value.shape, to=BOOL)
            return self.join("Where", Aligned(condition, args[0].names), *args[1:])
        if name in SHORTER:
            short = self.e.op("Cast", [args[0].value], args[0].value.shape, to=SHORTER[name])
            return Aligned(self.e.op("Cast", [short], short.shape, to=FLOAT), args[0].names)
        if function.onnx is None:
            assert name == "not", f"no ONNX operator for {name}"
            made = self.join("Equal", args[0], self.number(0))
        elif function.arity == 1:
            made = Aligned(self.e.op(function.onnx, [args[0].value], args[0].value.shape), args[0].names)
        else:
            made = self.join(function.onnx, *args)
        return Aligned(self.e.op("Cast", [made.value], made.value.shape, to=FLOAT), made.names) if function.truth else made

    def join(self, kind: str, *args: Aligned) -> Aligned:
        """An elementwise operator; axes that an operand lacks broadcast."""
        names = tuple(sorted({n for a in args for n in a.names}, key=self.order.__getitem__))
        values = [self.e.reshape(a.value, tuple(self.extent(n) if n in a.names else 1 for n in names)) for a in args]
        return Aligned(self.e.op(kind, values, tuple(map(self.extent, names))), names)

    def number(self, value: int) -> Aligned:
        return Aligned(self.e.constant(np.array(value, dtype=np.float32)), ())

    def grid(self, used: frozenset[str]) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
        names = tuple(sorted(used, key=self.order.__getitem__))
        return names, dict(zip(names, np.ix_(*(np.arange(*self.s.ranges[n], dtype=np.int64) for n in names))))

    def table(self, values: np.ndarray, names: tuple[str, ...], dtype: type) -> Aligned:
        shape = tuple(map(self.extent, names))
        return Aligned(self.e.constant(np.ascontiguousarray(np.broadcast_to(values, shape).astype(dtype)).reshape(shape)), names)

    def extent(self, name: str) -> int:
        lo, hi = self.s.ranges[name]
        return hi - lo


def spelled(names: Sequence[str], operands: Sequence[Sequence[str]], kept: Sequence[str]) -> str:
    """The equation of an Einsum, with a letter for each iterator."""
    letter = dict(zip(names, LETTERS))
    words = ["".join(letter[n] for n in own) for own in (*operands, kept)]
    return f"{','.join(words[:-1])}->{words[-1]}"
