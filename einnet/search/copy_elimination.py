"""No copy that strides can express: parts of a concatenation are written where they stand in it, parts of a tensor are read where they stand in it.

A kernel that only copies a tensor into a window of another, or a window of another into a tensor, or into another order, is left out where all that
touches the tensor can use the window or the order instead and is measured to gain by it: libraries are slower, or useless, with some strides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Select, Tensor
from einnet.instantiate.kernels import EOperator, Kernel, OpaqueCall, Plan, View, dense_view, numbered
from einnet.instantiate.relaid import Relaid, relaid
from einnet.instantiate.stitch import Window

Measured = Callable[[Sequence[Kernel]], Sequence[float | None]]
"""Seconds of kernels, inf for one that cannot run well, None for one that could not be measured."""


GAIN = 0.03


@dataclass(frozen=True, slots=True)
class Copy:
    """The whole of `buffer`, dense in `shape`, equals a window of `other`, or all of it in another order; `kernel` makes it so."""

    buffer: str
    shape: tuple[int, ...]
    other: str
    window: Window | Relaid
    kernel: Kernel


def in_place(plan: Plan, measured: Measured) -> Plan:
    """The same plan with fewer copies. What it computes is the same whatever `measured` says; a kernel without a time stays as it is."""
    return in_place_owned(plan, [""] * len(plan.kernels), measured)[0]


def in_place_owned(plan: Plan, owners: Sequence[str], measured: Measured) -> tuple[Plan, list[str]]:
    """The same, and who owns each kernel that is left, given who owned each of the plan's."""
    pass_ = _Pass(plan, owners, measured)
    for kernel in plan.kernels:
        pass_.visit(kernel)
    for kernel in plan.kernels:
        pass_.read(kernel)
    used = {v.buffer for k in pass_.kernels for v in views_of(k)} | {v.buffer for _, v in (*plan.inputs, *plan.outputs)}
    buffers = tuple(b for b in plan.buffers if b.name in used)
    constants = {name: value for name, value in plan.constants.items() if name in used}
    expressions = {name: scope for name, scope in plan.expressions.items() if name in used}
    places = {name: view for name, view in pass_.places.items() if view.buffer in used and name not in used}
    made = replace(plan, buffers=buffers, kernels=tuple(pass_.kernels), constants=constants, expressions=expressions, places=places)
    return made, pass_.owners


def views_of(kernel: Kernel) -> tuple[View, ...]:
    """Everything the kernel reads and writes."""
    return (*kernel.operand_views, *kernel.result_views)


class _Pass:
    def __init__(self, plan: Plan, owners: Sequence[str], measured: Measured) -> None:
        self.measured = measured
        self.kernels: list[Kernel] = list(plan.kernels)
        self.owners = list(owners)
        self.places: dict[str, View] = dict(plan.places)
        given = {v.buffer for _, v in (*plan.inputs, *plan.outputs)}
        self.free = {b.name for b in plan.buffers if b.role == "temporary"} - given
        self.size = {b.name: b.size for b in plan.buffers}
        self.dtype = {b.name: b.dtype for b in plan.buffers}
        self.failed: set[tuple[tuple[int, ...], tuple[Kernel, ...]]] = set()
        """Readers with the copies that they read, without names and places, and how often each is read, that gained nothing as the plan is: a plan in
        hundreds of chunks has as many readers that are alike, and of a copy that all of them read each would ask for the times of all."""

    def visit(self, kernel: Kernel) -> None:
        """Leave the copies of one kernel of the plan out, as far as that gains."""
        now = next((k for k in self.kernels if k is kernel or same_result(k, kernel)), kernel)
        if not isinstance(now, EOperator):
            return
        copies = list(self.copies(now))
        if not copies:
            next((copy for copy in self.orders(now) if self.alias(copy)), None)
            return
        place = self.kernels.index(now)

        def apart() -> bool:
            self.kernels[place : place + 1] = [c.kernel for c in copies]
            self.owners[place : place + 1] = [self.owners[place]] * len(copies)
            left_out = [self.alias(copy) for copy in copies]
            return any(left_out)

        self.tried(apart)

    def read(self, reader: Kernel) -> None:
        """Leave out all the copies at once that a kernel of the plan reads, where that gains though none of them gains by itself."""
        views = {v.buffer for k in self.kernels if k is reader or k.result_views == reader.result_views for v in k.operand_views}
        copies = [c for k in self.kernels if isinstance(k, EOperator) and k.out.buffer in views for c in self.orders(k) if c.buffer == k.out.buffer]
        if len(copies) < 2:
            return
        reads = Counter(v.buffer for k in self.kernels for v in k.operand_views)
        alike = tuple(reads[c.buffer] for c in copies), tuple(map(placeless, (reader, *(c.kernel for c in copies))))
        if alike not in self.failed and not self.tried(lambda: all(self.moved(copy) for copy in copies)):
            self.failed.add(alike)

    def tried(self, change: Callable[[], bool]) -> bool:
        """Whether a change is made and gains; else everything is as it was."""
        before, owners, places = list(self.kernels), list(self.owners), self.places
        gained = change() and self.gains(other_than(before, self.kernels), other_than(self.kernels, before))
        if gained:
            self.failed.clear()
        else:
            self.kernels, self.owners, self.places = before, owners, places
        return gained

    def copies(self, kernel: EOperator) -> Iterator[Copy]:
        """A kernel that only copies, one part after the other; nothing for any other kernel and for one none of whose parts can be left out."""
        found: list[Copy] = []
        for read, box in parts(kernel.scope):
            copy = self.part(kernel, read, box)
            if copy is None:
                return
            found.append(copy)
        yield from found if any(c.buffer for c in found) else ()

    def part(self, kernel: EOperator, read: Read, box: Box) -> Copy | None:
        """The copy of what a read takes into a box of the result, by a kernel of its own; None where either is no window of a dense buffer.

        What is read as a whole can be written where it is copied to, what is written as a whole can be read where it is copied from; of another
        part no buffer can be left out.
        """
        out, loops = kernel.out, kernel.scope.loops
        source = dict(kernel.operands).get(read.base.name) if isinstance(read.base, Tensor) else None
        if source is None or not self.dense(source) or not self.dense(out):
            return None
        shape = tuple(hi - lo for lo, hi in box)
        into, out_of = window(tuple(i.range for i in loops), box), window(tuple((0, n) for n in source.shape), _taken(read, loops, box))
        if into is None or out_of is None:
            return None
        dense = dense_view(source.buffer, shape)
        target, origin = into.view(dense, out.buffer), out_of.view(dense, source.buffer)
        if target is None or origin is None:
            return None
        made = _moved(loops, origin, target)
        if shape == source.shape and source.buffer in self.free:
            return Copy(source.buffer, shape, out.buffer, into, made)
        if shape == out.shape and out.buffer in self.free:
            return Copy(out.buffer, shape, source.buffer, out_of, made)
        return Copy("", shape, "", into, made)

    def orders(self, kernel: EOperator) -> Iterator[Copy]:
        """A kernel that only copies in another order: what it reads could be written so, or what it writes be read so."""
        within, apart = relaid(kernel)
        for place, view, other in zip((within, apart), (*kernel.operand_views, kernel.out), (kernel.out, *kernel.operand_views)):
            if place and view.buffer in self.free and self.dense(view):
                yield Copy(view.buffer, view.shape, other.buffer, place, kernel)

    def dense(self, view: View) -> bool:
        """The view is all of its buffer, row-major."""
        return view == dense_view(view.buffer, view.shape) and self.size[view.buffer] == prod(view.shape)

    def alias(self, copy: Copy) -> bool:
        """Let everything that touches the copied buffer use its place in the other one, if it can and gains by it."""
        return self.tried(lambda: self.moved(copy))

    def moved(self, copy: Copy) -> bool:
        """Let everything that touches the copied buffer use its place in the other one, if it can."""
        if copy.kernel not in self.kernels:
            return False
        touching = [k for k in self.kernels if k != copy.kernel and any(v.buffer == copy.buffer for v in views_of(k))]
        views = self.places_of(copy, touching)
        if views is None:
            return False
        moved = {id(k): k.map_views(lambda v: views.get(v, v)) for k in touching}
        self.owners = [owner for k, owner in zip(self.kernels, self.owners, strict=True) if k != copy.kernel]
        self.kernels = [moved.get(id(k), k) for k in self.kernels if k != copy.kernel]
        known = {**self.places, copy.buffer: dense_view(copy.buffer, copy.shape)}
        within = {name: copy.window.view(v, copy.other) if v.buffer == copy.buffer else v for name, v in known.items()}
        self.places = {name: v for name, v in within.items() if v is not None}
        return True

    def places_of(self, copy: Copy, touching: Sequence[Kernel]) -> dict[View, View] | None:
        """Where each view of the copied buffer lies in the other one; None where the copy has to stay.

        It has to where a kernel asks for a buffer of its own, where the two hold other types, where the other one changes while the copy is in
        use, and where a view is none in the window.
        """
        if not touching or any(isinstance(k, OpaqueCall) for k in touching) or self.dtype[copy.buffer] != self.dtype[copy.other]:
            return None
        if self.changed_after(copy):
            return None
        views = {v: copy.window.view(v, copy.other) for k in touching for v in views_of(k) if v.buffer == copy.buffer}
        found = {v: place for v, place in views.items() if place}
        return found if len(found) == len(views) else None

    def changed_after(self, copy: Copy) -> bool:
        """What is copied is written again after that, while the copy holds what was there before."""
        (source,) = copy.kernel.operand_views
        after = self.kernels[self.kernels.index(copy.kernel) + 1 :]
        return any(v.buffer == source.buffer for k in after for v in k.result_views)

    def gains(self, old: Sequence[Kernel], new: Sequence[Kernel]) -> bool:
        """The new kernels are measured to take less time than the old ones, by more than the share `GAIN`."""
        seconds = self.measured([*old, *new])
        if any(s is None for s in seconds):
            return False
        known = [s for s in seconds if s is not None]
        return sum(known[len(old) :]) < (1 - GAIN) * sum(known[: len(old)])


def placeless(kernel: Kernel) -> Kernel:
    """The kernel with its buffers numbered, at offset 0."""
    names: dict[str, str] = {}
    return kernel.map_views(lambda v: numbered(v, names, 0))


def other_than(kernels: Sequence[Kernel], those: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that are none of those."""
    known = set(map(id, those))
    return [k for k in kernels if id(k) not in known]


def _moved(loops: Sequence[Iter], origin: View, target: View) -> EOperator:
    """The kernel that copies one view into another of the same shape, over loops of these names."""
    own = tuple(Iter(i.name, 0, n) for i, n in zip(loops, origin.shape))
    return EOperator(Scope(own, (), Read(Tensor("x", origin.shape), tuple(var(i.name) for i in own))), (("x", origin),), target)


def same_result(a: Kernel, b: Kernel) -> bool:
    """Two generated kernels compute the same scope into the same buffer: one is the other with operands that lie elsewhere."""
    return isinstance(a, EOperator) and isinstance(b, EOperator) and a.scope == b.scope and a.out == b.out


Box = tuple[tuple[int, int], ...]


def parts(scope: Scope) -> tuple[tuple[Read, Box], ...]:
    """The reads of a scope that only copies, each with the part of the scope's box that it fills; () for any other scope.

    Conditions compare one loop with a constant; a read takes every loop in order, each plus a constant, and lies inside its tensor.
    """
    found = tuple(_parts(scope.body, scope, tuple(i.range for i in scope.loops))) if not scope.sums else ()
    return () if any(not _inside(r, scope, box) for r, box in found) or not found else found


def _parts(body: Body, scope: Scope, box: Box) -> Iterator[tuple[Read, Box]]:
    """The reads below a body with their boxes; a box of no extent is left out, a body of another form yields a read that fits nowhere."""
    match body:
        case Select((cond,), then, other) if not cond.equal and (at := _threshold(cond.index, scope)):
            axis, start = at
            lo, hi = box[axis]
            start = min(max(start, lo), hi)
            yield from _parts(then, scope, (*box[:axis], (start, hi), *box[axis + 1 :]))
            yield from _parts(other, scope, (*box[:axis], (lo, start), *box[axis + 1 :]))
        case Read() if all(lo < hi for lo, hi in box):
            yield body, box
        case Read():
            return
        case _:
            yield Read(Tensor("", ()), ()), box


def _threshold(index: Index, scope: Scope) -> tuple[int, int] | None:
    """(axis, start) for `loop - start >= 0`."""
    for axis, i in enumerate(scope.loops):
        rest = index - var(i.name)
        if rest.is_const and rest.den == 1:
            return axis, -rest.const
    return None


def _inside(r: Read, scope: Scope, box: Box) -> bool:
    """The read is a shift of the loops that stays inside a tensor over the box."""
    if not isinstance(r.base, Tensor) or len(r.index) != len(scope.loops):
        return False
    shifts = [_shift(ix, i) for ix, i in zip(r.index, scope.loops)]
    return all(s is not None and lo + s >= 0 and hi + s <= n for s, (lo, hi), n in zip(shifts, box, r.base.shape))


def _taken(read: Read, loops: Sequence[Iter], box: Box) -> Box:
    """The part of its tensor that a read takes over a box of the loops, each of which it takes plus a constant."""
    shifts = [_shift(ix, i) or 0 for ix, i in zip(read.index, loops)]
    return tuple((lo + s, hi + s) for s, (lo, hi) in zip(shifts, box))


def _shift(index: Index, i: Iter) -> int | None:
    """c for `loop + c`, also where a unit loop is written as its value."""
    rest = index - var(i.name)
    if rest.is_const and rest.den == 1:
        return rest.const
    return index.const - i.lo if index.is_const and index.den == 1 and i.extent == 1 else None


def window(whole: Box, box: Box) -> Window | None:
    """The box as positions of one axis of the whole; None where it is smaller along several."""
    axes = [k for k, (side, full) in enumerate(zip(box, whole)) if side != full]
    if len(axes) > 1:
        return None
    axis = axes[0] if axes else 0
    lo, hi = box[axis]
    return Window(tuple(b - a for a, b in whole), axis, lo - whole[axis][0], hi - lo)
