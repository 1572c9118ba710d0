"""An eOperator as a nest over flat addresses: views applied, nested scopes without reduction inlined, the others named as functions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod

import numpy as np

from einnet.errors import BackendError
from einnet.expr.functions import named
from einnet.expr.index import Index, as_index, combine, floor_div, simplify, substitute, var
from einnet.expr.nodes import (
    Add,
    Body,
    Call,
    Cond,
    Const,
    Div,
    Iter,
    Mul,
    Read,
    Scope,
    Select,
    Tensor,
    Val,
    neutral,
    tensors,
)  # fmt: skip
from einnet.expr.nodes import (
    Number as Exact,
)
from einnet.expr.selection import selection
from einnet.instantiate.codegen.canonicalise import collapsed_sums
from einnet.instantiate.codegen.ir import (
    PICK,
    Apply,
    Choose,
    Expr,
    Function,
    Lit,
    Load,
    Nest,
    Number,
    Ranges,
    Reduce,
    Use,
    guarded,
    names,
    picks,
    pruned,
    simplified,
    substitute_expr,
    walk,
)  # fmt: skip
from einnet.instantiate.kernels import EOperator, View

EXPENSIVE = named(costly=True)
"""Functions that cost far more than a load and a store."""

ELEMENTS = {
    "f32": "float32", "bool": "uint8", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "uint16",
}  # fmt: skip
"""Element types that generated kernels read, and what the code calls what holds them (`mathfunctions.widened`); they compute with float32."""

OUT = "(out)"
"""The array that stands for the output in a nest."""


def single(value: Exact) -> float:
    """The float32 nearest to a number, which may be written as the shortest decimal that rounds to it."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def resolve(op: EOperator, tables: Collection[str] = ()) -> Nest:
    """The nest of an eOperator. Loops start at 0; operand arrays are named as the scope's tensors, the output `OUT`.

    `tables` are the operands whose values are known.

    Raises BackendError for a tensor without a view, a view of another shape, or a type that is not read.
    """
    views = dict(op.operands)
    for t in tensors(op.scope).values():
        if t.name not in views or views[t.name].shape != t.shape:
            raise BackendError(f"no view of shape {list(t.shape)} for tensor {t.name} of {op.scope.text()}")
        if t.dtype not in ELEMENTS:
            raise BackendError(f"generated kernels read no {t.dtype}, as tensor {t.name} of {op.scope.text()} is")
    if op.out.shape != op.scope.shape:
        raise BackendError(f"the output view has shape {list(op.out.shape)}, the expression {op.scope.text()} {list(op.scope.shape)}")
    return _Resolver(views, frozenset(tables)).nest(op)


@dataclass
class _Resolver:
    views: dict[str, View]
    tables: frozenset[str]
    functions: dict[Scope, Function] = field(default_factory=dict)
    count: int = 0

    def nest(self, op: EOperator) -> Nest:
        function = self.function(op.scope)
        shift = {i.name: var(i.name) + i.lo for i in function.loops}
        loops = tuple(Iter(i.name, 0, i.extent) for i in function.loops)
        address = combine(*((var(i.name), s) for i, s in zip(loops, op.out.strides)), (Index((), op.out.offset), 1))
        ranges = {i.name: i.range for i in loops}
        expr = simplified(substitute_expr(function.expr, shift), ranges)
        return Nest(loops, OUT, simplify(address, ranges), expr, tables=self.tables)

    def function(self, scope: Scope) -> Function:
        """The function of a scope, with iterator names that occur nowhere else."""
        if scope not in self.functions:
            self.count += 1
            fresh = {i.name: f"{i.name}{self.count}" for i in (*scope.loops, *scope.sums)}
            loops, sums = (tuple(Iter(fresh[i.name], i.lo, i.hi) for i in iters) for iters in (scope.loops, scope.sums))
            name = f"scope{self.count}"
            ranges = {i.name: i.range for i in (*loops, *sums)}
            if any(i.extent <= 0 for i in (*loops, *sums)):
                expr: Expr = Lit(float(neutral(scope.reduce)))
            else:
                expr = simplified(self.expr(scope.body, {k: var(v) for k, v in fresh.items()}, ranges), ranges)
                if selection(scope) is not None and isinstance(expr, Apply) and expr.op == "choose":
                    expr = Reduce(PICK, sums, expr)
                elif sums and all(i.extent > 0 for i in sums):
                    expr = reduction(scope.reduce, sums, expr, self.tables)
            self.functions[scope] = Function(name, loops, expr)
        return self.functions[scope]

    def expr(self, body: Body, renaming: dict[str, Index], ranges: Ranges) -> Expr:
        """A scalar body; `renaming` maps its iterators to their unique names."""
        match body:
            case Const(value):
                return Lit(single(value))
            case Val(index):
                return Number(substitute(index, renaming))
            case Read(base, index, fill):
                return self.read(base, tuple(substitute(i, renaming) for i in index), fill, ranges)
            case Add(args):
                return Apply("add", tuple(self.expr(a, renaming, ranges) for a in args))
            case Mul(args):
                return Apply("mul", tuple(self.expr(a, renaming, ranges) for a in args))
            case Div(num, den):
                return Apply("div", (self.expr(num, renaming, ranges), self.expr(den, renaming, ranges)))
            case Call(name, args):
                return Apply(name, tuple(self.expr(a, renaming, ranges) for a in args))
            case Select(conds, then, other):
                own = tuple(Cond(integral(substitute(c.index, renaming)), c.equal) for c in conds)
                return Choose(own, self.expr(then, renaming, ranges), self.expr(other, renaming, ranges))
        raise TypeError(body)

    def read(self, base: Tensor | Scope, index: tuple[Index, ...], fill: Exact, ranges: Ranges) -> Expr:
        conds: list[Cond] = []
        whole: list[Index] = []
        for e, (lo, hi) in zip(index, base.box):
            if e.den != 1:
                conds.append(Cond(integral(e) - e.den * floor_div(e, 1), equal=True))
                e = floor_div(e, 1)
            conds += [Cond(e - lo), Cond(hi - 1 - e)]
            whole.append(e)
        left = pruned(conds, ranges)
        if left is None:
            return Lit(single(fill))
        if isinstance(base, Tensor):
            view = self.views[base.name]
            address = combine(*zip(whole, view.strides), (as_index(view.offset), 1))
            return Load(base.name, simplify(address, ranges), left, single(fill))
        function = self.function(base)
        if worth_keeping(function):
            use = Use(function, tuple(whole), left)
            return Choose(left, use, Lit(single(fill))) if left else use
        inlined = substitute_expr(function.expr, {i.name: e for i, e in zip(function.loops, whole)})
        return guarded(inlined, left, single(fill))


def integral(e: Index) -> Index:
    """The numerator: its sign and its zero are those of e."""
    return Index(e.terms, e.const)


def worth_keeping(function: Function) -> bool:
    """The function does so much work at a point that it should not be repeated blindly."""
    return any((isinstance(e, Reduce) and not picks(e)) or (isinstance(e, Apply) and e.op in EXPENSIVE) for e in walk(function.expr))


def stages(sums: tuple[Iter, ...], factors: tuple[Expr, ...], tables: frozenset[str]) -> tuple[Iter, tuple[Expr, ...], tuple[Expr, ...]] | None:
    """A summation iterator that can be summed over last because it is weighted by a known matrix, the factors that wait for it, and the rest."""
    for i in sums if len(sums) > 1 else ():
        others = {j.name for j in sums if j != i}
        own = tuple(a for a in factors if i.name in names(a) and names(a).isdisjoint(others))
        rest = tuple(a for a in factors if a not in own)
        if rest and any(isinstance(a, Load) and a.array in tables for a in own):
            return i, own, rest
    return None


def _staged(sums: tuple[Iter, ...], body: Apply, tables: frozenset[str]) -> tuple[tuple[Iter, ...], Apply]:
    """A sum of a product as the sum over one iterator of what its known matrix weights, where it is one of several such."""
    found = stages(sums, body.args, tables)
    if found is None:
        return sums, body
    outer, own, rest = found
    inner = reduction("sum", tuple(i for i in sums if i != outer), Apply("mul", rest) if len(rest) > 1 else rest[0], tables)
    return (outer,), Apply("mul", (*own, inner))


def reduction(op: str, sums: tuple[Iter, ...], body: Expr, tables: frozenset[str] = frozenset()) -> Expr:
    """Reduce, where iterators that the body does not use are counted instead of walked, and free factors stand outside.

    Sums weighted by known matrices are taken one after the other: Σ[a,b] T[a]*U[b]*x[a,b] = Σ[b] U[b]*Σ[a] T[a]*x[a,b].
    """
    used = names(body)
    idle = prod(i.extent for i in sums if i.name not in used)
    kept = tuple(i for i in sums if i.name in used)
    if op == "sum" and isinstance(body, Apply) and body.op == "mul":
        free = tuple(a for a in body.args if names(a).isdisjoint(i.name for i in kept))
        if free and len(free) < len(body.args):
            inner = reduction(op, kept, Apply("mul", tuple(a for a in body.args if a not in free)), tables)
            return Apply("mul", (inner, *free, *((Lit(float(idle)),) if idle != 1 else ())))
        kept, body = _staged(kept, body, tables)
    result: Expr = Reduce(op, *collapsed_sums(kept, body)) if kept else body
    return Apply("mul", (result, Lit(float(idle)))) if op == "sum" and idle != 1 else result
