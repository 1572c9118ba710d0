"""The tensor-algebra language as immutable values: scopes, and the scalar bodies in them.

A tensor is a total function on Z^n that has its fill value (0 unless a read says otherwise) outside its box. A scope is
`L[loops] reduce[sums] body`, a tensor over the box of its loops. Scopes are closed: a nested scope reads no iterator of the outer one, so
its meaning and its key do not depend on where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, Union

from einnet.expr.index import Index, Range, as_index, substitute, var

INF = float("inf")
Number = Union[Fraction, float]
"""An exact rational, or one of the floats inf and -inf (fills and neutral elements of max and min)."""

REDUCTIONS = ("sum", "max", "min")

FUNCTIONS: dict[str, int] = {
    "relu": 1, "exp": 1, "log": 1, "tanh": 1, "sigmoid": 1, "erf": 1, "sqrt": 1, "abs": 1, "sign": 1, "floor": 1, "ceil": 1, "round": 1,
    "sin": 1, "cos": 1, "softplus": 1, "not": 1,
    "max": 2, "min": 2, "pow": 2, "less": 2, "equal": 2,
}  # fmt: skip
"""Named scalar functions and their number of arguments. `round` is half to even; `less`, `equal`, `not` give 1 or 0."""


class Iter(NamedTuple):
    """An iterator over lo <= name < hi."""

    name: str
    lo: int
    hi: int

    @property
    def extent(self) -> int:
        return self.hi - self.lo

    @property
    def range(self) -> Range:
        return self.lo, self.hi


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array: box [0, n) in each dimension.

    `weight` marks values that are known at compile time; `values` gives them, exact and row-major, where they belong to the expression itself
    (the matrices of a bilinear algorithm).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    weight: bool = False
    values: tuple[Fraction, ...] | None = None

    @property
    def box(self) -> tuple[Range, ...]:
        return tuple((0, n) for n in self.shape)


@dataclass(frozen=True, slots=True)
class Const:
    """A number."""

    value: Number


@dataclass(frozen=True, slots=True)
class Val:
    """The value of an index function as a number."""

    index: Index


@dataclass(frozen=True, slots=True)
class Read:
    """base[index]; `fill` outside the base's box."""

    base: Tensor | Scope
    index: tuple[Index, ...]
    fill: Number = Fraction(0)


@dataclass(frozen=True, slots=True)
class Add:
    """Sum of two or more terms."""

    args: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Mul:
    """Product of two or more factors."""

    args: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Div:
    """Real division."""

    num: Body
    den: Body


@dataclass(frozen=True, slots=True)
class Call:
    """A named scalar function (FUNCTIONS)."""

    name: str
    args: tuple[Body, ...]


class Cond(NamedTuple):
    """`index >= 0`, or `index == 0` where `equal`. A fractional index satisfies neither `==` nor is it compared specially in `>=`."""

    index: Index  # type: ignore[assignment]
    equal: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """`then` where all conditions hold, else `other`."""

    conds: tuple[Cond, ...]
    then: Body
    other: Body


Body = Union[Const, Val, Read, Add, Mul, Div, Call, Select]


@dataclass(frozen=True, repr=False)
class Scope:
    """L[loops] reduce[sums] body: a tensor over the box of the loops, 0 outside; loops in the order of the dimensions."""

    loops: tuple[Iter, ...]
    sums: tuple[Iter, ...]
    body: Body
    reduce: str = "sum"
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __hash__(self) -> int:
        if not self._hash:
            object.__setattr__(self, "_hash", hash((self.loops, self.sums, self.body, self.reduce)) or 1)
        return self._hash

    @property
    def box(self) -> tuple[Range, ...]:
        return tuple((i.lo, i.hi) for i in self.loops)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(i.hi - i.lo for i in self.loops)

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Ranges of loops and sums by name."""
        return {i.name: (i.lo, i.hi) for i in (*self.loops, *self.sums)}

    @cached_property
    def constant(self) -> bool:
        """See `is_weight`."""
        return is_weight(self.body)

    @cached_property
    def key(self) -> str:
        """The canonical key: 32 hex digits, equal for scopes that differ by names, summation order and operand order only."""
        from einnet.expr.key import digest

        return digest(self)

    def text(self) -> str:
        """The expression on one line, without the declarations of its tensors."""
        from einnet.expr.printing import print_scope

        return print_scope(self)

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"

    def __str__(self) -> str:
        from einnet.expr.printing import print_with_declarations

        return print_with_declarations(self)

    def _repr_latex_(self) -> str:
        from einnet.expr.latex import latex

        return f"$${latex(self)}$$"

    def _repr_html_(self) -> str:
        from einnet.expr.markup import html

        return html(self)


def neutral(reduce: str) -> Number:
    """The neutral element of a reduction."""
    elements: dict[str, Number] = {"sum": Fraction(0), "max": -INF, "min": INF}
    return elements[reduce]


def children(body: Body) -> tuple[Body, ...]:
    """The direct scalar operands; a Read has none (its base is not a scalar)."""
    match body:
        case Add(args) | Mul(args) | Call(_, args):
            return args
        case Div(num, den):
            return (num, den)
        case Select(_, then, other):
            return (then, other)
        case _:
            return ()


def rebuild(body: Body, args: tuple[Body, ...]) -> Body:
    """The same node over other operands; a quotient of numbers is a number."""
    match body:
        case Add():
            return Add(args)
        case Mul():
            return Mul(args)
        case Call(name, _):
            return Call(name, args)
        case Div():
            return make_div(*args)
        case Select(conds, _, _):
            return Select(conds, *args)
        case _:
            return body


def map_leaves(body: Body, f: Callable[[Body], Body]) -> Body:
    """Apply f to every leaf (Const, Val, Read), keep the shape of the rest; unchanged parts are shared."""
    args = children(body)
    if not args:
        return f(body)
    new = tuple(map_leaves(a, f) for a in args)
    return body if all(a is b for a, b in zip(args, new)) else rebuild(body, new)


def map_reads(body: Body, f: Callable[[Read], Body]) -> Body:
    """Replace every read."""
    return map_leaves(body, lambda leaf: f(leaf) if isinstance(leaf, Read) else leaf)


def map_indices(body: Body, f: Callable[[Index], Index]) -> Body:
    """Apply f to every index function: of reads, values and conditions (not inside nested scopes, which are closed)."""
    match body:
        case Read(base, index, fill):
            new = tuple(f(i) for i in index)
            return body if new == index else Read(base, new, fill)
        case Val(index):
            return Val(f(index))
        case Select(conds, then, other):
            return Select(tuple(Cond(f(c.index), c.equal) for c in conds), map_indices(then, f), map_indices(other, f))
        case Const():
            return body
    args = children(body)
    new_args = tuple(map_indices(a, f) for a in args)
    return body if all(a is b for a, b in zip(args, new_args)) else rebuild(body, new_args)


def substitute_body(body: Body, mapping: Mapping[str, Index]) -> Body:
    """Replace iterators by index functions."""
    return map_indices(body, lambda e: substitute(e, mapping))


def reads(body: Body) -> Iterator[Read]:
    """All reads of the body, in order, not entering nested scopes."""
    if isinstance(body, Read):
        yield body
    for a in children(body):
        yield from reads(a)


def index_functions(body: Body) -> Iterator[Index]:
    """All index functions of the body, not entering nested scopes."""
    match body:
        case Read(_, index, _):
            yield from index
        case Val(index):
            yield index
        case Select(conds, _, _):
            for c in conds:
                yield c.index
    for a in children(body):
        yield from index_functions(a)


def used_names(body: Body) -> frozenset[str]:
    """The iterators that occur in the body."""
    return frozenset().union(*(e.names() for e in index_functions(body)))


def tensors(scope: Scope) -> dict[str, Tensor]:
    """All named tensors read by the scope and by the scopes inside it, by first occurrence.

    Raises ValueError if one name stands for two different tensors.
    """
    found: dict[str, Tensor] = {}

    def visit(s: Scope) -> None:
        for r in reads(s.body):
            if isinstance(r.base, Scope):
                visit(r.base)
            elif found.setdefault(r.base.name, r.base) != r.base:
                raise ValueError(f"tensor {r.base.name} is declared twice: {found[r.base.name]} and {r.base}")

    visit(scope)
    return found


def nested(scope: Scope) -> Iterator[Scope]:
    """The scopes read directly by this one, in order, repeated if read twice."""
    for r in reads(scope.body):
        if isinstance(r.base, Scope):
            yield r.base


def walk(scope: Scope) -> Iterator[Scope]:
    """The scope and all scopes inside it, outermost first."""
    yield scope
    for s in nested(scope):
        yield from walk(s)


def fresh(name: str, used: Iterable[str]) -> str:
    """`name`, or `name'`, `name''`... not among the used ones."""
    taken = used if isinstance(used, (set, frozenset, dict)) else set(used)
    while name in taken:
        name += "'"
    return name


def rename_apart(scope: Scope, used: Iterable[str]) -> Scope:
    """The same scope with loops and sums named differently from `used`."""
    taken = set(used)
    mapping: dict[str, Index] = {}
    renamed: dict[str, str] = {}
    own = {i.name for i in (*scope.loops, *scope.sums)}
    for i in (*scope.loops, *scope.sums):
        if i.name in taken:
            new = fresh(i.name, taken | own)
            own.add(new)
            mapping[i.name], renamed[i.name] = var(new), new
    if not mapping:
        return scope
    return replace(
        scope,
        loops=tuple(Iter(renamed.get(i.name, i.name), i.lo, i.hi) for i in scope.loops),
        sums=tuple(Iter(renamed.get(i.name, i.name), i.lo, i.hi) for i in scope.sums),
        body=substitute_body(scope.body, mapping),
    )


def make_add(args: Iterable[Body]) -> Body:
    """Flat sum; constants are not folded."""
    flat = [b for a in args for b in (a.args if isinstance(a, Add) else (a,))]
    return flat[0] if len(flat) == 1 else Add(tuple(flat)) if flat else Const(Fraction(0))


def make_mul(args: Iterable[Body]) -> Body:
    """Flat product; constants are not folded."""
    flat = [b for a in args for b in (a.args if isinstance(a, Mul) else (a,))]
    return flat[0] if len(flat) == 1 else Mul(tuple(flat)) if flat else Const(Fraction(1))


def make_div(num: Body, den: Body) -> Body:
    """A quotient. That of two numbers is a number, as it is when its text is read; not where one is infinite or the divisor is 0."""
    if isinstance(num, Const) and isinstance(den, Const) and isinstance(num.value, Fraction) and isinstance(den.value, Fraction) and den.value:
        return Const(num.value / den.value)
    return Div(num, den)


def negate(body: Body) -> Body:
    """-body."""
    return Const(-body.value) if isinstance(body, Const) else make_mul((Const(Fraction(-1)), body))


def indices(iters: Iterable[Iter]) -> tuple[Index, ...]:
    """The identity index function of some iterators."""
    return tuple(var(i.name) for i in iters)


def read(base: Tensor | Scope, *index: Index | int | str, fill: Number = Fraction(0)) -> Read:
    """Convenience: read(A, "h", var("w") + 1)."""
    return Read(base, tuple(as_index(i) for i in index), fill)


def is_weight(node: Scope | Body) -> bool:
    """All that is read is known at compile time."""
    if isinstance(node, Scope):
        return node.constant
    return all(r.base.constant if isinstance(r.base, Scope) else r.base.weight for r in reads(node))
