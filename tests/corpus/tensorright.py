"""TensorRight's rules over XLA's operators, at small ranks and sizes.

A rule's axes come in classes of any rank; here every class has one rank, and integer maps (sizes, starts, strides, paddings) are drawn until the
preconditions hold and all operators of the left side are valid. What is said of summation indices serves their proof method and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce as fold
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from tests.corpus.haskell import Definition, Evaluator, curried, definitions

ATTEMPTS = 1500
PATIENCE = 20
"""Attempts with the same numbers, which conditions of several rules share with sizes."""

LARGEST = 1200
"""Elements of a side's box."""

_SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, -1, -2)
_LETTERS = "ijklmnopquvw"

Axis = tuple[str, int]
"""The name of a class or a label, and which of its axes."""

Index = Mapping[Axis, str]


class Invalid(Exception):
    """An operator has no meaning, or a precondition does not hold: which class and which of its axes is to be drawn again."""


class Unknown(Exception):
    """The rule needs something that our expressions do not say."""


@dataclass(frozen=True, slots=True)
class Class:
    name: str


@dataclass(frozen=True, slots=True)
class Label:
    name: str


@dataclass(frozen=True, slots=True)
class Map:
    """An integer for each axis of a class, under a label where it sizes a tensor."""

    of: str
    values: tuple[int, ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Sizes by axis, and the text of an element; what is an index has its text too, a constant its number."""

    sizes: Mapping[Axis, int]
    at: Callable[[Index], str]
    bare: bool = False
    index: Callable[[Index], str] | None = None
    number: int | None = None
    classes: Mapping[str, str] = field(default_factory=dict)
    """The class of each label."""

    def boxed(self) -> Tensor:
        if self.bare:
            return self
        axes = list(self.sizes)
        names = dict(zip(axes, _LETTERS))
        text = f"{{L[{','.join(f'{names[a]}<{self.sizes[a]}' for a in axes)}] {self.at(names)}}}"
        return Tensor(self.sizes, lambda i: f"{text}[{','.join(i[a] for a in axes)}]", True, classes=self.classes)


@dataclass
class Draw:
    """One attempt: what maps are, tensors that were named, and the two sides."""

    rng: Random
    ranks: Mapping[str, int]
    zeros: bool
    assume: bool
    maps: dict[tuple[str, int, str], int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    below: dict[str, str] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    sides: tuple[Tensor, Tensor] | None = None
    assumed: bool = False

    def again(self, of: str, axis: int) -> Invalid:
        """Forgets what was drawn for an axis."""
        for key in [k for k in self.maps if k[0] == of and k[1] == axis]:
            del self.maps[key]
        return Invalid(f"{of} {axis}")

    def rank(self, of: str) -> int:
        return self.ranks.get(of, 1)

    def need(self, holds: Sequence[bool], of: str) -> None:
        for axis, good in enumerate(holds):
            if not good:
                raise self.again(of, axis)


def axes_of(t: Tensor, ref: Class | Label) -> list[Axis]:
    """The axes that a class or a label names: a class stands for the label under which the tensor has it."""
    names = {ref.name} if isinstance(ref, Label) else {ref.name, *(label for label, of in t.classes.items() if of == ref.name)}
    return [a for a in t.sizes if a[0] in names]


def sized(draw: Draw, shape: Sequence[tuple[Class | Label, Map]]) -> tuple[dict[Axis, int], dict[str, str]]:
    """Sizes by axis, and the classes of labels."""
    sizes: dict[Axis, int] = {}
    classes: dict[str, str] = {}
    for ref, m in shape:
        least = 0 if draw.zeros else 1
        draw.need([v >= least for v in m.values], m.of)
        if m.label:
            classes[m.label] = m.of
        sizes |= {(m.label or ref.name, k): v for k, v in enumerate(m.values)}
    return sizes, classes


def by_axis(t: Tensor, given: Sequence[tuple[Class | Label, Map]]) -> dict[Axis, tuple[int, str]]:
    """Integers by axis, with the class that is to be drawn again where they do not fit."""
    found: dict[Axis, tuple[int, str]] = {}
    for ref, m in given:
        for axis, v in zip(axes_of(t, ref), m.values, strict=True):
            found[axis] = v, m.of
    return found


def elementwise(draw: Draw, tensors: Sequence[Tensor], text: Callable[..., str]) -> Tensor:
    first = tensors[0]
    for t in tensors[1:]:
        if t.sizes.keys() != first.sizes.keys():
            raise Unknown("operands with other axes")
        for axis, n in t.sizes.items():
            if n != first.sizes[axis]:
                raise draw.again(first.classes.get(axis[0], axis[0]), axis[1])
    return Tensor(first.sizes, lambda i: text(*(t.at(i) for t in tensors)), classes=first.classes)


_BINARY = {"Add": "({}+{})", "Sub": "({}-{})", "Mul": "({})*({})", "Div": "({})/({})", "Min": "min({}, {})", "Max": "max({}, {})"}
_UNARY = {"Abs": "abs({})", "Neg": "-({})", "Exp": "exp({})"}
_COMPARE = {
    "Lt": "less({0}, {1})", "Gt": "less({1}, {0})", "Le": "(1-less({1}, {0}))", "Ge": "(1-less({0}, {1}))", "Eqv": "equal({0}, {1})",
    "Ne": "(1-equal({0}, {1}))",
}  # fmt: skip


@dataclass
class Operators:
    """The operators of the language of rules, for one attempt."""

    draw: Draw

    def environment(self) -> dict[str, Any]:
        d = self.draw
        named: dict[str, tuple[Callable[..., Any], int]] = {
            "newRClass": (self.new_class, 1), "newRClasses": (lambda names: list(map(self.new_class, names)), 1),
            "newMap": (self.new_map, 2), "newNonNegMap": (lambda n, c: self.new_map(n, c, 0), 2), "newConstMap": (self.const_map, 3),
            "newMaps": (lambda names, c: [self.new_map(n, c) for n in names], 2),
            "newNonNegMaps": (lambda names, c: [self.new_map(n, c, 0) for n in names], 2),
            "newConstMaps": (lambda names, v, c: [self.const_map(n, v, c) for n in names], 3),
            "combineMap": (lambda _, f, maps: Map(maps[0].of, tuple(f(list(v)) for v in zip(*(m.values for m in maps)))), 3),
            "sumMap": (lambda _, maps: Map(maps[0].of, tuple(map(sum, zip(*(m.values for m in maps))))), 2),
            "precondition": (self.precondition, 2), "precondition'": (self.whole_precondition, 2),
            "zipCondition": (lambda f, maps: all(f(list(v)) for v in zip(*(m.values for m in maps))), 2),
            "newTensor": (self.new_tensor, 2), "constant": (self.constant, 2), "iota": (self.iota, 2),
            "numBinOp": (self.binary, 3), "numUnaryOp": (lambda op, x: elementwise(d, [x], _UNARY[op].format), 2),
            "boolBinOp": (lambda op, x, y: elementwise(d, [x, y], ("({0})*({1})" if op == "And" else "({0}+{1}-({0})*({1}))").format), 3),
            "boolUnaryOp": (lambda op, x: elementwise(d, [x], "(1-{})".format), 2),
            "compareOp": (lambda op, x, y: elementwise(d, [x, y], _COMPARE[op].format), 3),
            "select": (lambda p, x, y: elementwise(d, [p, x, y], "(({0})*({1})+(1-{0})*({2}))".format), 3),
            "clamp": (lambda lo, x, hi: elementwise(d, [lo, x, hi], "min(max({1}, {0}), {2})".format), 3),
            "broadcast": (self.broadcast, 2), "reshapeDegenerate": (self.reshape, 3), "relabel": (self.relabel, 2),
            "reverseTensor": (self.reverse, 2), "concatTensor": (lambda x, y, ref: self.concat([x, y], ref), 3), "concatTensorList": (self.concat, 2),
            "slice": (self.slice, 2), "dynamicSlice": (self.dynamic_slice, 2), "dynamicUpdateSlice": (self.update, 3), "pad": (self.pad, 3),
            "reduce": (self.reduce, 2), "dot": (self.dot, 4), "conv": (self.conv, 4), "rewrite": (self.rewrite, 3), "divOr": (divided, 3),
            "symIte": (lambda c, a, b: a if c else b, 3), "tensorDiv": (lambda a, b: f"({a}/{b})", 2), "siRelation": (lambda *_: None, 2),
            "checkSIMap": (lambda *_: None, 2), "T.intercalate": (lambda a, b: a.join(map(str, b)), 2),
            "monitorExprOnFailure": (lambda *_: None, 2), "monitorMapOnFailure": (lambda *_: None, 3),
        }  # fmt: skip
        values = {name: curried(function, count) for name, (function, count) in named.items()}
        values |= {name: name for name in (*_BINARY, "Rem", *_UNARY, *_COMPARE, "And", "Or", "Not")}
        values |= dict.fromkeys(("Slice", "DySlice", "Padding", "ConvConfig", "ConvPadding"), dict)
        values |= {
            "ByRClass": lambda c: c, "ByLabel": lambda n: Label(str(n)), "con": lambda v: v, "nonInf": lambda v: v, "True": 1, "False": 0, "true": 1,
            "false": 0, "sum": sum, "head": lambda v: v[0], "abs": abs, "negInf": "-inf", "posInf": "inf", '"': Name, "undefined": None,
            "-->": lambda a, b: (a, b), "@@": lambda m, label: Map(m.of, m.values, str(label)), ".==": self.equal, ".>=": self.at_least,
            ".<=": lambda a, b: self.at_least(b, a), ".<": lambda a, b: not self.at_least(a, b), ".>": lambda a, b: not self.at_least(b, a),
            "+": lambda a, b: self.integer(a) + self.integer(b),
        }  # fmt: skip
        return values

    # names and integers

    def integer(self, v: Any) -> Any:
        """A name in a condition is an integer that is drawn."""
        if isinstance(v, Name) and str(v) not in self.draw.numbers:
            self.draw.numbers[str(v)] = self.draw.rng.choice([-3, -2, 1, 2, 3, 4, 5, 6, 7])
            raise Invalid("tensors may have been made of it already")
        return self.draw.numbers[str(v)] if isinstance(v, Name) else v

    def equal(self, a: Any, b: Any) -> bool:
        return bool(self.integer(a) == self.integer(b))

    def at_least(self, a: Any, b: Any) -> bool:
        return bool(self.integer(a) >= self.integer(b))

    def new_class(self, name: str) -> Class:
        self.draw.classes.append(str(name))
        return Class(str(name))

    def new_map(self, name: str, of: Class, least: int = -2) -> Map:
        d = self.draw
        choices = [s for s in _SIZES if s >= least]
        values = [d.maps.setdefault((of.name, k, str(name)), d.rng.choice(choices)) for k in range(d.rank(of.name))]
        return Map(of.name, tuple(values))

    def const_map(self, _: str, value: int, of: Class) -> Map:
        return Map(of.name, (value,) * self.draw.rank(of.name))

    def precondition(self, maps: Sequence[Map], holds: Callable[[list[int]], bool]) -> None:
        self.draw.need([bool(holds(list(v))) for v in zip(*(m.values for m in maps))], maps[0].of)

    def whole_precondition(self, maps: Sequence[Map], holds: Callable[[list[Map]], bool]) -> None:
        if not holds(list(maps)):
            chosen = self.draw.rng.choice(maps)
            raise self.draw.again(chosen.of, self.draw.rng.randrange(len(chosen.values)))

    # tensors

    def new_tensor(self, name: str, shape: Sequence[tuple[Class | Label, Map]]) -> Tensor:
        sizes, classes = sized(self.draw, shape)
        own = f"T{name}"
        self.draw.tensors[own] = tuple(sizes.values())
        axes = list(sizes)

        def at(index: Index) -> str:
            text = f"{own}[{','.join(index[a] for a in axes)}]"
            low = self.draw.below.get(own)
            return f"({low}[{','.join(index[a] for a in axes)}]+abs({text}))" if low else text

        return Tensor(sizes, at, True, classes=classes)

    def scalar(self, value: Any) -> str:
        """The text of a constant: a number, an infinity, or a tensor without axes."""
        value = self.draw.numbers.get(str(value), value) if isinstance(value, Name) else value
        if isinstance(value, int) or str(value) in ("inf", "-inf") or "[" in str(value):
            return str(value)
        own = f"S{str(value).lstrip('-')}"
        self.draw.tensors[own] = ()
        return f"-{own}[]" if str(value).startswith("-") else f"{own}[]"

    def constant(self, value: Any, shape: Sequence[tuple[Class | Label, Map]]) -> Tensor:
        sizes, classes = sized(self.draw, shape)
        text = str(value)
        if text.startswith("("):
            above, _, below = text.strip("()").partition("/")
            text = f"({self.scalar(int(above))}/{self.scalar(Name(below))})"
        else:
            text = self.scalar(value)
        number = int(text) if text.lstrip("-").isdigit() else None
        return Tensor(sizes, lambda _: text, number=number, classes=classes)

    def iota(self, shape: Sequence[tuple[Class | Label, Map]], ref: Class | Label) -> Tensor:
        sizes, classes = sized(self.draw, shape)
        axis, *others = axes_of(Tensor(sizes, lambda _: "", classes=classes), ref)
        if others:
            raise Unknown("numbers along one axis")
        return Tensor(sizes, lambda i: f"val({i[axis]})", index=lambda i: i[axis], classes=classes)

    def binary(self, op: str, x: Tensor, y: Tensor) -> Tensor:
        if op == "Rem":
            return self.remainder(x, y)
        found = elementwise(self.draw, [x, y], _BINARY[op].format)
        if op == "Add" and y.number is not None:
            if x.index is not None:
                place = x.index
                return Tensor(found.sizes, found.at, index=lambda i: f"({place(i)})+{y.number}", classes=found.classes)
            if x.number is not None:
                return Tensor(found.sizes, lambda _: str(x.number + y.number), number=x.number + y.number, classes=found.classes)
        return found

    def remainder(self, x: Tensor, y: Tensor) -> Tensor:
        """Of the sign of the dividend, or Euclid's where the index is not negative; of tensors by the quotient without its fraction."""
        if y.number is not None and (x.index is not None or x.number is not None):
            if y.number == 0:
                self.draw.numbers.clear()
                raise Invalid("division by 0")
            if x.number is not None:
                rest = abs(x.number) % abs(y.number) * (1 if x.number >= 0 else -1)
                return Tensor(x.sizes, lambda _: str(rest), number=rest, classes=x.classes)
            assert x.index is not None
            place = x.index
            return Tensor(x.sizes, lambda i: f"val(({place(i)})%{abs(y.number or 1)})", classes=x.classes)

        def text(a: str, b: str) -> str:
            return f"({a}-({b})*sign(({a})/({b}))*floor(abs(({a})/({b}))))"

        return elementwise(self.draw, [x, y], text)

    def broadcast(self, x: Tensor, shape: Sequence[tuple[Class | Label, Map]]) -> Tensor:
        sizes, classes = sized(self.draw, shape)
        if sizes.keys() & x.sizes.keys():
            raise Unknown("an axis is there already")
        return Tensor({**x.sizes, **sizes}, x.at, classes={**x.classes, **classes}, number=x.number, index=x.index)

    def reshape(self, x: Tensor, new: Sequence[tuple[Class | Label, Class]], gone: Sequence[Class | Label]) -> Tensor:
        lost = {a for ref in gone for a in axes_of(x, ref)}
        for a in lost:
            if x.sizes[a] != 1:
                raise self.draw.again(x.classes.get(a[0], a[0]), a[1])
        kept = {a: n for a, n in x.sizes.items() if a not in lost}
        kept |= {(ref.name, k): 1 for ref, of in new for k in range(self.draw.rank(of.name))}
        zero = dict.fromkeys(lost, "0")
        return Tensor(kept, lambda i: x.at({**i, **zero}), classes=x.classes)

    def relabel(self, x: Tensor, names: Sequence[tuple[Class | Label, Class | Label]]) -> Tensor:
        new = {a: (to.name, a[1]) for ref, to in names for a in axes_of(x, ref)}
        classes = {**x.classes, **{to.name: x.classes.get(a[0], a[0]) for ref, to in names for a in axes_of(x, ref)}}
        return Tensor({new.get(a, a): n for a, n in x.sizes.items()}, lambda i: x.at({a: i[new.get(a, a)] for a in x.sizes}), classes=classes)

    def reverse(self, x: Tensor, refs: Sequence[Class | Label]) -> Tensor:
        turned = {a for ref in refs for a in axes_of(x, ref)}
        return Tensor(x.sizes, lambda i: x.at({a: f"{x.sizes[a] - 1}-({i[a]})" if a in turned else i[a] for a in x.sizes}), classes=x.classes)

    def concat(self, xs: Sequence[Tensor], ref: Class | Label) -> Tensor:
        """Along all axes that are named; more than one cannot be."""
        axes = axes_of(xs[0], ref)
        if len(axes) != 1:
            raise Unknown("a concatenation has one axis")
        (axis,) = axes

        def join(x: Tensor, y: Tensor) -> Tensor:
            for a, n in x.sizes.items():
                if a != axis and y.sizes[a] != n:
                    raise self.draw.again(x.classes.get(a[0], a[0]), a[1])
            first = x.sizes[axis]

            def at(i: Index) -> str:
                return f"select({i[axis]}>={first}, {y.at({**i, axis: f'({i[axis]})-{first}'})}, {x.at(i)})"

            return Tensor({**x.sizes, axis: first + y.sizes[axis]}, at, classes=x.classes)

        return fold(join, xs)

    def slice(self, x: Tensor, how: Mapping[str, Any]) -> Tensor:
        starts, ends, strides = (by_axis(x, how[name]) for name in ("start", "end", "strides"))
        sizes = dict(x.sizes)
        for a in {**starts, **ends, **strides}:
            first, of = starts.get(a, (0, a[0]))
            last, _ = ends.get(a, (x.sizes[a], of))
            step, _ = strides.get(a, (1, of))
            if not (0 <= first <= last <= x.sizes[a] and step >= 1):
                raise self.draw.again((starts.get(a) or ends.get(a) or strides[a])[1], a[1])
            sizes[a] = -(-(last - first) // step)

        def at(i: Index) -> str:
            return x.at({a: f"{strides.get(a, (1,))[0]}*({i[a]})+{starts.get(a, (0,))[0]}" for a in x.sizes})

        return Tensor(sizes, at, classes=x.classes)

    def dynamic_slice(self, x: Tensor, how: Mapping[str, Any]) -> Tensor:
        starts, lengths = by_axis(x, how["start"]), by_axis(x, how["sizes"])
        for a, (first, of) in starts.items():
            if first < 0 or lengths[a][0] < 0 or first + lengths[a][0] > x.sizes[a]:
                raise self.draw.again(of, a[1])
        sizes = {a: lengths[a][0] if a in lengths else n for a, n in x.sizes.items()}

        def at(i: Index) -> str:
            return x.at({a: f"({i[a]})+{starts[a][0]}" if a in starts else i[a] for a in x.sizes})

        return Tensor(sizes, at, classes=x.classes)

    def update(self, x: Tensor, y: Tensor, start: Sequence[tuple[Class | Label, Map]]) -> Tensor:
        starts = by_axis(x, start)
        for a, (first, of) in starts.items():
            if first < 0 or first + y.sizes[a] > x.sizes[a]:
                raise self.draw.again(of, a[1])

        def at(i: Index) -> str:
            inside = [f"{i[a]}>={s} & {i[a]}<{s + y.sizes[a]}" for a, (s, _) in starts.items()]
            return f"select({' & '.join(inside)}, {y.at({a: f'({i[a]})-{starts[a][0]}' if a in starts else i[a] for a in x.sizes})}, {x.at(i)})"

        return Tensor(x.sizes, at, classes=x.classes)

    def pad(self, x: Tensor, value: Any, how: Mapping[str, Any]) -> Tensor:
        low, high, inner = (by_axis(x, how[name]) for name in ("low", "high", "interior"))
        sizes = dict(x.sizes)
        conditions: dict[Axis, tuple[int, int]] = {}
        for a in {**low, **high, **inner}:
            n = x.sizes[a]
            between, of = inner.get(a, (0, (low.get(a) or high[a])[1] if a in low or a in high else ""))
            before, after = low.get(a, (0,))[0], high.get(a, (0,))[0]
            sizes[a] = n + before + after + max(n - 1, 0) * between
            if between < 0 or sizes[a] < (0 if self.draw.zeros else 1):
                raise self.draw.again(of, a[1])
            conditions[a] = before, between + 1
        fill = self.scalar(value)

        def at(i: Index) -> str:
            where, place = [], dict(i)
            for a, (before, step) in conditions.items():
                where += [f"{i[a]}>={before}", f"{i[a]}<={before + (x.sizes[a] - 1) * step}"]
                where += [f"(({i[a]})-{before})%{step}==0"] if step > 1 else []
                place[a] = f"(({i[a]})-{before})//{step}"
            return f"select({' & '.join(where)}, {x.at(place)}, {fill})" if where else x.at(i)

        return Tensor(sizes, at, classes=x.classes)

    def reduce(self, x: Tensor, over: Sequence[tuple[Class | Label, Map]]) -> Tensor:
        gone = {a: f"z{k}" for k, a in enumerate(a for ref, _ in over for a in axes_of(x, ref))}
        sums = {name: x.sizes[a] for a, name in gone.items()}
        return self.summed({a: n for a, n in x.sizes.items() if a not in gone}, sums, lambda i: x.at({**i, **gone}), x.classes)

    def summed(self, sizes: Mapping[Axis, int], sums: Mapping[str, int], body: Callable[[Index], str], classes: Mapping[str, str]) -> Tensor:
        axes = list(sizes)
        names = dict(zip(axes, _LETTERS))
        text = f"{{L[{','.join(f'{names[a]}<{sizes[a]}' for a in axes)}] Σ[{','.join(f'{n}<{e}' for n, e in sums.items())}] {body(names)}}}"
        return Tensor(sizes, lambda i: f"{text}[{','.join(i[a] for a in axes)}]", True, classes=classes)

    def dot(self, x: Tensor, y: Tensor, over: Sequence[tuple[Class | Label, Map]], batch: Sequence[Class | Label]) -> Tensor:
        gone = {a: f"z{k}" for k, a in enumerate(a for ref, _ in over for a in axes_of(x, ref))}
        for a in {**gone, **{a: "" for ref in batch for a in axes_of(x, ref)}}:
            if x.sizes[a] != y.sizes[a]:
                raise self.draw.again(x.classes.get(a[0], a[0]), a[1])
        sizes = {a: n for a, n in {**x.sizes, **y.sizes}.items() if a not in gone}
        body = lambda i: f"({x.at({**i, **gone})})*({y.at({**i, **gone})})"  # noqa: E731
        if not gone:
            return Tensor(sizes, body, classes={**x.classes, **y.classes})
        return self.summed(sizes, {n: x.sizes[a] for a, n in gone.items()}, body, {**x.classes, **y.classes})

    def conv(self, x: Tensor, w: Tensor, how: Mapping[str, Any], around: Mapping[str, Any]) -> Tensor:
        low, high, left, right = (by_axis(x, around[name]) for name in ("low", "high", "ldilation", "rdilation"))
        strides = by_axis(x, how["strides"])
        gone = {a: f"z{k}" for k, a in enumerate(a for ref, _ in how["contractingSIMaps"] for a in axes_of(w, ref))}
        outputs = {a: w.sizes[a] for ref in how["outputFeatureRClasses"] for a in axes_of(w, ref)}
        sizes = {a: x.sizes[a] for ref in how["batchRClasses"] for a in axes_of(x, ref)} | outputs
        for a, (step, of) in strides.items():
            wide = (x.sizes[a] - 1) * left[a][0] + 1 + low[a][0] + high[a][0]
            window = (w.sizes[a] - 1) * right[a][0] + 1
            if min(step, left[a][0], right[a][0], x.sizes[a], w.sizes[a]) < 1 or window > wide:
                raise self.draw.again(of, a[1])
            sizes[a] = (wide - window) // step + 1
        for a in gone:
            if a not in strides and x.sizes[a] != w.sizes[a]:
                raise self.draw.again(x.classes.get(a[0], a[0]), a[1])
        source = x.boxed()

        def body(i: Index) -> str:
            place = {a: f"({strides[a][0]}*({i[a]})+{right[a][0]}*{gone[a]}-{low[a][0]})/{left[a][0]}" for a in strides}
            return f"{source.at({**i, **gone, **place})}*({w.at({**i, **gone})})"

        return self.summed(sizes, {n: w.sizes[a] for a, n in gone.items()}, body, x.classes)

    def rewrite(self, _: Any, left: Tensor, right: Tensor) -> None:
        self.draw.sides = left, right


def divided(default: int, a: int, b: int) -> int:
    return a // b if b else default


class Name(str):
    """A literal text: a name for a thing, a number, or a tensor without axes."""

    __slots__ = ()

    def __neg__(self) -> Name:
        return Name(f"-{self}")


def assumption(d: Draw, words: str) -> bool:
    """`numTensorAssumption [a, b] ...`: every element of the first is less than that of the second."""
    if not words.startswith("numTensorAssumption"):
        return False
    d.assumed = True
    if d.assume:
        low, high = words[words.index("[") + 1 : words.index("]")].split(",")
        d.below[f"T{high.strip()}"] = f"T{low.strip()}"
    return True


def attempt(rule: Definition, whole: Mapping[str, Definition], d: Draw) -> None:
    """Runs the statements of a rule. Raises Invalid."""
    evaluator = Evaluator(Operators(d).environment())
    for name, other in ((n, o) for n, o in whole.items() if len(o.parameters) > 1):
        evaluator.environment.setdefault(name, curried(lambda *given, other=other: called(other, whole, d, given), len(other.parameters) - 1))
    for statement in rule.statements:
        if not assumption(d, statement) and not statement.startswith(("siRelation", "let siCondition", "checkSIMap", "monitor")):
            evaluator.statement(statement)


def called(rule: Definition, whole: Mapping[str, Definition], d: Draw, given: Sequence[Any]) -> None:
    evaluator = Evaluator(Operators(d).environment() | dict(zip(rule.parameters, given)))
    for statement in rule.statements:
        evaluator.statement(statement)


def instance(rule: Definition, whole: Mapping[str, Definition], ranks: Mapping[str, int], seed: int, assume: bool) -> Draw | None:
    """A draw under which the rule says something of tensors that have elements, or of empty ones where there are no others."""
    for zeros in (False, True):
        d = Draw(Random(seed), ranks, zeros, assume)
        again = 0
        for _ in range(ATTEMPTS):
            d.tensors, d.classes, d.sides, d.below = {}, [], None, {}
            try:
                attempt(rule, whole, d)
            except Invalid:
                again = again + 1 if d.numbers else 0
                if again > PATIENCE:
                    d.numbers.clear()
                continue
            assert d.sides is not None
            left, right = d.sides
            extents = [*left.sizes.values(), *(n for shape in d.tensors.values() for n in shape)]
            if left.sizes == right.sizes and prod(left.sizes.values()) <= LARGEST and (zeros or min(extents, default=1) >= 1):
                return d
            d.maps.clear()
            d.numbers.clear()
    return None


def instances(path: Path) -> Iterator[tuple[str, str, str | None]]:
    """Of every rule that the files of a folder verify, its name, words for a setting, and declarations and both sides as a text."""
    for file in sorted(path.glob("*/Main.hs")):
        source = file.read_text(encoding="utf-8")
        whole = definitions(source)
        names = [n for n in whole if n != "main" and any(s.startswith("verify") and n in s.split() for s in whole["main"].statements)]
        for name in names:
            yield from of_rule(f"{file.parent.name}.{name}", whole[name], whole)


def of_rule(name: str, rule: Definition, whole: Mapping[str, Definition]) -> Iterator[tuple[str, str, str | None]]:
    seen: set[str] = set()
    for rank, seed, assume in ((1, 0, True), (1, 1, True), (2, 0, True), (2, 1, True), (1, 0, False)):
        try:
            d = instance(rule, whole, _Ranks(rank), seed, assume)
        except Unknown:
            continue
        if d is None or (not assume and not d.assumed):
            continue
        assert d.sides is not None
        words = f"rank={rank}" + (f" assumed={'yes' if assume else 'no'}" if d.assumed else "")
        text = written(d, *d.sides)
        if text not in seen and len(d.sides[0].sizes) <= 8:
            seen.add(text)
            yield name, words, text
    if not seen:
        yield name, "", None


class _Ranks(dict[str, int]):
    """One rank for all classes."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def get(self, key: str, default: Any = None) -> int:
        return self.rank


def written(d: Draw, left: Tensor, right: Tensor) -> str:
    axes = list(left.sizes)
    names = dict(zip(axes, _LETTERS))
    loops = f"L[{','.join(f'{names[a]}<{left.sizes[a]}' for a in axes)}] "
    declared = "".join(f"{name} : f32[{','.join(map(str, shape))}]\n" for name, shape in d.tensors.items())
    return f"{declared}from {loops}{left.at(names)}\nby published\n   {loops}{right.at(names)}\n"
