"""The tensor-algebra language as immutable values: scopes, and the scalar bodies in them.

A tensor is a total function on Z^n that has its fill value (0 unless a read says otherwise) outside its box. A scope is
`L[loops] reduce[sums] body`, a tensor over the box of its loops. Scopes are closed: a nested scope reads no iterator of the outer one, so
its meaning and its key do not depend on where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Union

from einnet.expr.index import Index, Range
from einnet.expr.remember import Hashed, hashed_in_slot, hashed_once, kept, remember, setters
from einnet.late import Late

INF = float("inf")
Number = Union[Fraction, float]
"""An exact rational, or one of the floats inf and -inf (fills and neutral elements of max and min)."""

REDUCTIONS = ("sum", "max", "min")


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


NOTHING = frozenset[str]()

ZERO = Fraction(0)
"""The fill of most reads: one object, whose hash need not be computed again and again."""


class Remembering:
    """A scalar body: its hash, the iterators that it uses and what it reads are asked of it again and again. None until they are."""

    __slots__ = ("_hash", "_names", "_reads")
    _hash: int | None
    _names: frozenset[str] | None
    _reads: tuple[Read, ...] | None

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), tuple(getattr(self, name) for name in type(self).__match_args__)  # type: ignore[attr-defined]


@hashed_once
@dataclass(frozen=True, slots=True)
class Tensor(Hashed):
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


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Const(Remembering):
    """A number."""

    value: Number

    def __init__(self, value: Number) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_value(self, value)


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Val(Remembering):
    """The value of an index function as a number."""

    index: Index

    def __init__(self, index: Index) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_function(self, index)


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Read(Remembering):
    """base[index]; `fill` outside the base's box."""

    base: Tensor | Scope
    index: tuple[Index, ...]
    fill: Number

    def __init__(self, base: Tensor | Scope, index: tuple[Index, ...], fill: Number = ZERO) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_base(self, base)
        set_index(self, index)
        set_fill(self, fill)

    def __hash__(self) -> int:
        return hash((self.base, self.index, 0 if self.fill is ZERO else self.fill))  # 0 has the hash of the fraction, which Python computes slowly


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Add(Remembering):
    """Sum of two or more terms."""

    args: tuple[Body, ...]

    def __init__(self, args: tuple[Body, ...]) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_terms(self, args)


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Mul(Remembering):
    """Product of two or more factors."""

    args: tuple[Body, ...]

    def __init__(self, args: tuple[Body, ...]) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_factors(self, args)


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Div(Remembering):
    """Real division."""

    num: Body
    den: Body

    def __init__(self, num: Body, den: Body) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_num(self, num)
        set_den(self, den)


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Call(Remembering):
    """A named scalar function (`einnet.expr.functions`)."""

    name: str
    args: tuple[Body, ...]

    def __init__(self, name: str, args: tuple[Body, ...]) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_name(self, name)
        set_args(self, args)


class Cond(NamedTuple):
    """`index >= 0`, or `index == 0` where `equal`. A fractional index satisfies neither `==` nor is it compared specially in `>=`."""

    index: Index  # type: ignore[assignment]
    equal: bool = False


@hashed_in_slot
@dataclass(frozen=True, slots=True, init=False)
class Select(Remembering):
    """`then` where all conditions hold, else `other`."""

    conds: tuple[Cond, ...]
    then: Body
    other: Body

    def __init__(self, conds: tuple[Cond, ...], then: Body, other: Body) -> None:
        no_hash(self, None), no_names(self, None), no_reads(self, None)
        set_conds(self, conds)
        set_then(self, then)
        set_other(self, other)


no_hash, no_names, no_reads = setters(Remembering)
(set_value,), (set_function,), (set_base, set_index, set_fill) = setters(Const), setters(Val), setters(Read)
(set_terms,), (set_factors,), (set_num, set_den) = setters(Add), setters(Mul), setters(Div)
(set_name, set_args), (set_conds, set_then, set_other) = setters(Call), setters(Select)

Body = Union[Const, Val, Read, Add, Mul, Div, Call, Select]


@dataclass(frozen=True, repr=False, init=False)
class Scope(Hashed):
    """L[loops] reduce[sums] body: a tensor over the box of the loops, 0 outside; loops in the order of the dimensions."""

    loops: tuple[Iter, ...]
    sums: tuple[Iter, ...]
    body: Body
    reduce: str = "sum"

    def __init__(self, loops: tuple[Iter, ...], sums: tuple[Iter, ...], body: Body, reduce: str = "sum") -> None:
        own = self.__dict__
        own["loops"], own["sums"], own["body"], own["reduce"] = loops, sums, body, reduce

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((self.loops, self.sums, self.body, self.reduce))
            remember(self, "_hash", found)
            return found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Scope) or hash(self) != hash(other):
            return False
        ours, theirs = self.__dict__, other.__dict__
        if ours["body"] is not theirs["body"]:
            if self.loops != other.loops or self.sums != other.sums or self.reduce != other.reduce or self.body != other.body:
                return False
            theirs["body"] = ours["body"]  # equal, and from now on known to be
            return True
        return self.loops == other.loops and self.sums == other.sums and self.reduce == other.reduce

    def __reduce__(self) -> tuple[type[Scope], tuple[object, ...]]:
        return Scope, (self.loops, self.sums, self.body, self.reduce)

    @kept
    def nested(self) -> tuple[Scope, ...]:
        """See `nested`."""
        return tuple(r.base for r in reads(self.body) if isinstance(r.base, Scope))

    @kept
    def parts(self) -> tuple[Scope, ...]:
        """The scope and all scopes inside it, each once, those that read others before these where they are first met."""
        found: dict[Scope, None] = {self: None}
        for s in self.nested:
            if s not in found:
                found.update(dict.fromkeys(s.parts))
        return tuple(found)

    @kept
    def box(self) -> tuple[Range, ...]:
        return tuple((i.lo, i.hi) for i in self.loops)

    @kept
    def shape(self) -> tuple[int, ...]:
        return tuple(i.hi - i.lo for i in self.loops)

    @kept
    def ranges(self) -> dict[str, Range]:
        """Ranges of loops and sums by name."""
        return {i.name: (i.lo, i.hi) for i in (*self.loops, *self.sums)}

    @kept
    def inside(self) -> frozenset[Scope]:
        """All scopes that are read within this one, itself left out."""
        return frozenset(self.nested).union(*(s.inside for s in self.nested))

    @kept
    def read(self) -> tuple[Tensor, ...]:
        """See `tensors`."""
        found: dict[str, Tensor] = {}
        for r in reads(self.body):
            for t in r.base.read if isinstance(r.base, Scope) else (r.base,):
                if found.setdefault(t.name, t) != t:
                    raise ValueError(f"tensor {t.name} is declared twice: {found[t.name]} and {t}")
        return tuple(found.values())

    @kept
    def reduces(self) -> bool:
        """The scope, or one inside it, has a sum."""
        return bool(self.sums) or any(s.reduces for s in self.nested)

    @kept
    def constant(self) -> bool:
        """See `is_weight`."""
        return is_weight(self.body)

    @kept
    def key(self) -> str:
        """The canonical key: 32 hex digits, equal for scopes that differ by names, summation order and operand order only."""
        return DIGEST(self)

    def text(self) -> str:
        """The expression on one line, without the declarations of its tensors."""
        return LINE(self)

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"

    def __str__(self) -> str:
        return TEXT(self)

    def _repr_latex_(self) -> str:
        return f"$${LATEX(self)}$$"

    def _repr_html_(self) -> str:
        return HTML(self)


DIGEST = Late[[Scope], str]("the canonical key")
LINE = Late[[Scope], str]("the notation on one line")
TEXT = Late[[Scope], str]("the notation with declarations")
LATEX = Late[[Scope], str]("LaTeX of an expression")
HTML = Late[[Scope], str]("HTML of an expression")


NEUTRAL: dict[str, Number] = {"sum": ZERO, "max": -INF, "min": INF}


def neutral(reduce: str) -> Number:
    """The neutral element of a reduction."""
    return NEUTRAL[reduce]


def children(body: Body) -> tuple[Body, ...]:
    """The direct scalar operands; a Read has none (its base is not a scalar)."""
    kind = type(body)
    if kind is Read or kind is Const or kind is Val:
        return ()
    if kind is Mul or kind is Add or kind is Call:
        return body.args  # type: ignore[union-attr]
    if isinstance(body, Div):
        return (body.num, body.den)
    assert isinstance(body, Select)
    return (body.then, body.other)


def reads(body: Body) -> tuple[Read, ...]:
    """All reads of the body, in order, not entering nested scopes."""
    found = body._reads
    if found is None:
        if isinstance(body, Read):
            return (body,)
        args = children(body)
        found = reads(args[0]) if len(args) == 1 else tuple(r for a in args for r in reads(a))
        remember(body, "_reads", found)
    return found


def used_names(body: Body) -> frozenset[str]:
    """The iterators that occur in the body."""
    found = body._names
    if found is None:
        if isinstance(body, Read):
            found = NOTHING.union(*[e.names() for e in body.index if e.terms])
        else:
            own = (body.index,) if isinstance(body, Val) else ()
            asked = [c.index for c in body.conds] if isinstance(body, Select) else ()
            found = NOTHING.union(*(e.names() for e in (*own, *asked)), *map(used_names, children(body)))
        remember(body, "_names", found)
    return found


def is_weight(node: Scope | Body) -> bool:
    """All that is read is known at compile time."""
    if isinstance(node, Scope):
        return node.constant
    return all(r.base.constant if isinstance(r.base, Scope) else r.base.weight for r in reads(node))
