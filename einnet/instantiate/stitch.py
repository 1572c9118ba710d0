"""Concatenations are not copied: each part is computed where it stands in the whole (disjoint writes)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from einnet.expr.index import Index, in_range, var
from einnet.expr.nodes import Add, Body, Iter, Read, Scope, Select, Tensor
from einnet.instantiate.address import flat_index
from einnet.instantiate.kernels import EOperator, View, dense_view
from einnet.instantiate.padding import restrided


@dataclass(frozen=True, slots=True)
class Window:
    """Positions [begin, begin + extent) of one axis of a dense tensor of the given shape."""

    shape: tuple[int, ...]
    axis: int
    begin: int
    extent: int

    def view(self, v: View, buffer: str) -> View | None:
        """A view of a dense tensor of the window's shape as a view of the whole in `buffer`, or None where strides cannot say it."""
        inner = prod(self.shape[self.axis + 1 :])
        found = restrided(v, self.extent * inner, self.shape[self.axis] * inner)
        return replace(found, buffer=buffer, offset=found.offset + self.begin * inner) if found else None

    def copy(self, name: str, buffer: str) -> EOperator:
        """The kernel that copies the window out of the whole in `buffer` into a dense buffer of that name."""
        shape = tuple(self.extent if k == self.axis else n for k, n in enumerate(self.shape))
        loops = tuple(Iter(f"i{k}", 0, n) for k, n in enumerate(shape))
        index = tuple(var(i.name) + self.begin if k == self.axis else var(i.name) for k, i in enumerate(loops))
        scope = Scope(loops, (), Read(Tensor(buffer, self.shape), index))
        return EOperator(scope, ((buffer, dense_view(buffer, self.shape)),), dense_view(name, shape))


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a concatenation: a scope, and where it stands."""

    scope: Scope
    window: Window


def pieces(scope: Scope) -> tuple[Piece, ...]:
    """The parts of a scope that is a sum of reads whose boxes tile one axis of its box, or that says along one axis from where on something else
    stands; () for any other scope."""
    if scope.sums:
        return ()
    return _chosen(scope, scope.body) if isinstance(scope.body, Select) else _added(scope, scope.body) if isinstance(scope.body, Add) else ()


def _added(scope: Scope, body: Add) -> tuple[Piece, ...]:
    """The parts of a scope that adds up what is nothing outside of its box."""
    placed = [_placed(scope, r) for r in body.args if isinstance(r, Read) and not r.fill]
    boxes = [p[0] for p in placed if p is not None]
    axes = {k for box in boxes for k, (side, i) in enumerate(zip(box, scope.loops)) if side != i.range}
    if len(boxes) != len(body.args) or len(axes) != 1:
        return ()
    (axis,) = axes
    order = sorted(range(len(boxes)), key=lambda n: boxes[n][axis])
    ends = [scope.loops[axis].lo, *(boxes[n][axis][1] for n in order)]
    if any(boxes[n][axis][0] != end for n, end in zip(order, ends)) or ends[-1] != scope.loops[axis].hi:
        return ()
    lo = scope.loops[axis].lo
    return tuple(
        Piece(part, Window(scope.shape, axis, box[axis][0] - lo, box[axis][1] - box[axis][0])) for box, part in (p for p in placed if p is not None)
    )


def _chosen(scope: Scope, body: Select) -> tuple[Piece, ...]:
    """The parts of a scope that is one thing or another by where one of its loops is."""
    named = {n for c in body.conds for n in c.index.names()}
    axis = next((k for k, i in enumerate(scope.loops) if {i.name} == named), None)
    found = None if axis is None else _ranges(body, scope.loops[axis])
    if axis is None or found is None or len(found) < 2:
        return ()
    return tuple(_part(scope, axis, i, part) for i, part in found)


def _ranges(body: Body, i: Iter) -> list[tuple[Iter, Body]] | None:
    """What stands in each range of a loop, the lowest first; None where a choice hangs on anything else than from where on."""
    if not isinstance(body, Select):
        return [(i, body)]
    (cond, *more) = body.conds
    sign = cond.index.coefficient(i.name)
    if more or cond.equal or abs(sign) != 1 or cond.index != sign * var(i.name) + cond.index.const:
        return None
    border = -cond.index.const if sign == 1 else cond.index.const + 1
    low, high = (body.other, body.then) if sign == 1 else (body.then, body.other)
    found: list[tuple[Iter, Body]] = []
    for own, part in ((Iter(i.name, i.lo, min(i.hi, border)), low), (Iter(i.name, max(i.lo, border), i.hi), high)):
        inner = _ranges(part, own) if own.extent > 0 else []
        if inner is None:
            return None
        found += inner
    return found


def _part(scope: Scope, axis: int, i: Iter, body: Body) -> Piece:
    """A part of a scope in which a loop has a range of its own: what it reads itself, where that is all of a scope, from its beginning to its end."""
    loops = tuple(i if k == axis else j for k, j in enumerate(scope.loops))
    own, window = Scope(loops, (), body), Window(scope.shape, axis, i.lo - scope.loops[axis].lo, i.extent)
    if isinstance(body, Read) and isinstance(body.base, Scope):
        inside = all(in_range(ix, box, own.ranges) for ix, box in zip(body.index, body.base.box))
        here = flat_index([var(j.name) for j in loops], own.box, own.ranges)
        if inside and prod(body.base.shape) == prod(own.shape) and flat_index(body.index, body.base.box, own.ranges) == here:
            return Piece(body.base, window)
    return Piece(own, window)


def _placed(scope: Scope, r: Read) -> tuple[tuple[tuple[int, int], ...], Scope] | None:
    """Where the box of what is read, dimension by dimension a loop plus a constant, lies in the scope's, and it as a scope."""
    if len(r.index) != len(scope.loops) or any(ix - ix.const != var(i.name) and not _unit(ix, i) for ix, i in zip(r.index, scope.loops)):
        return None
    shifts = [ix.const if ix.terms else ix.const - i.lo for ix, i in zip(r.index, scope.loops)]
    box = tuple((lo - shift, hi - shift) for shift, (lo, hi) in zip(shifts, r.base.box))
    if any(lo < i.lo or hi > i.hi for (lo, hi), i in zip(box, scope.loops)):
        return None
    if isinstance(r.base, Scope):
        return box, r.base
    loops = tuple(Iter(i.name, lo, hi) for i, (lo, hi) in zip(scope.loops, box))
    return box, Scope(loops, (), r)


def _unit(ix: Index, i: Iter) -> bool:
    """A unit loop written as its value."""
    return ix.is_const and i.extent == 1 and ix.den == 1


def window_of(scope: Scope) -> Window | None:
    """Where a scope that reads a range of one axis of a tensor, and all of the others, stands in it; None for any other scope."""
    if scope.sums or not isinstance(scope.body, Read) or not isinstance(scope.body.base, Tensor):
        return None
    base, index = scope.body.base, list(scope.body.index)
    shape = scope.shape
    if len(index) == len(shape) + 1 and index[0].is_const and index[0].den == 1:
        return Window(base.shape, 0, index[0].const, 1) if _whole(index[1:], scope, base.shape[1:]) else None
    if len(index) != len(shape):
        return None
    begins = [ix.const + (i.lo if ix.terms else 0) for ix, i in zip(index, scope.loops)]
    cut = [k for k, (n, size, begin) in enumerate(zip(shape, base.shape, begins)) if n != size or begin]
    if len(cut) > 1 or not all(map(_along, index, scope.loops)):
        return None
    axis = cut[0] if cut else 0
    inside = begins[axis] >= 0 and begins[axis] + shape[axis] <= base.shape[axis]
    return Window(base.shape, axis, begins[axis], shape[axis]) if inside else None


def _along(ix: Index, i: Iter) -> bool:
    """The index goes with a loop, from some place on."""
    return ix - ix.const == var(i.name) or ix.is_const and i.extent == 1


def _whole(index: list[Index], scope: Scope, shape: tuple[int, ...]) -> bool:
    """The loops of a scope walk a tensor of that shape from its beginning to its end."""
    return scope.shape == shape and all(ix == var(i.name) and i.lo == 0 or ix == Index() and i.extent == 1 for ix, i in zip(index, scope.loops))
