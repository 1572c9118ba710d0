"""An equation at one point of its outer iterators, as a generated kernel: where its operands begin is an affine function of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from einnet.derivation.facts import box_of
from einnet.expr.index import Index, Range, affine_parts, bounds, var
from einnet.expr.nodes import Body, Cond, Const, Read, Scope, Select, Tensor, children, map_leaves, rebuilt, used_names
from einnet.instantiate.kernels import EOperator, View, dense_view

OUT = "out"


class NotStepped(Exception):
    """An equation that is no kernel at one time, and why."""


@dataclass(frozen=True)
class Start:
    """Where an operand begins: the tensor, and the places along those of its dimensions that the kernel does not have."""

    tensor: Tensor
    fixed: tuple[tuple[int, Index], ...]


@dataclass(frozen=True)
class Stripped:
    """A kernel over operands that begin at `starts`, the result last."""

    operator: EOperator
    starts: tuple[Start, ...]


def stripped(target: Tensor, scope: Scope, outer: Mapping[str, Range], fixed: Callable[[Tensor, int, Index], bool]) -> Stripped:
    """The scope without its `outer` loops, over their ranges. Dimensions of operands that are `fixed` at an index are none of the kernel.

    Raises NotStepped where the scope asks more of an outer iterator than where something is read.
    """
    ranges = {**scope.ranges, **outer}
    starts: dict[Start, Tensor] = {}

    def swap(leaf: Body) -> Body:
        if not isinstance(leaf, Read):
            return leaf
        if isinstance(leaf.base, Scope):
            raise NotStepped("a scope stands within an equation")
        start, rest = split(leaf.base, leaf.index, outer, ranges, fixed)
        shape = tuple(n for axis, n in enumerate(leaf.base.shape) if axis not in dict(start.fixed))
        tensor = starts.setdefault(start, Tensor(f"x{len(starts)}", shape, leaf.base.dtype))
        return Read(tensor, rest, leaf.fill)

    body = map_leaves(pruned(scope.body, ranges), swap)
    if not outer.keys().isdisjoint(used_names(body)):
        raise NotStepped("an equation asks for the number of a time")
    own, _ = split(target, tuple(var(i.name) for i in scope.loops), outer, ranges, fixed)
    loops = tuple(i for i in scope.loops if i.name not in outer)
    operands = tuple((t.name, view(start, t.name)) for start, t in starts.items())
    operator = EOperator(Scope(loops, scope.sums, body, scope.reduce), operands, view(own, OUT))
    return Stripped(operator, (*starts, own))


def split(
    tensor: Tensor, index: tuple[Index, ...], outer: Mapping[str, Range], ranges: Mapping[str, Range], fixed: Callable[[Tensor, int, Index], bool]
) -> tuple[Start, tuple[Index, ...]]:  # fmt: skip
    """The dimensions of a read that outer iterators fix, and the index along the others."""
    found, rest = [], []
    for axis, (ix, extent) in enumerate(zip(index, tensor.shape)):
        if outer.keys().isdisjoint(ix.names()) and not fixed(tensor, axis, ix):
            rest.append(ix)
            continue
        parts = affine_parts(ix)
        if parts is None or ix.den != 1 or not parts[0].keys() <= outer.keys():
            raise NotStepped(f"{tensor.name} is read at a place that is no function of times alone")
        low, high = bounds(ix, ranges)
        if low < 0 or high >= extent:
            raise NotStepped(f"{tensor.name} is read outside of its times")
        found.append((axis, ix))
    return Start(tensor, tuple(found)), tuple(rest)


def view(start: Start, name: str) -> View:
    """What is left of a dense tensor, from its first element on."""
    whole = dense_view(name, start.tensor.shape)
    left = [axis for axis in range(len(whole.shape)) if axis not in dict(start.fixed)]
    return View(name, tuple(whole.shape[a] for a in left), tuple(whole.strides[a] for a in left))


def pruned(body: Body, ranges: Mapping[str, Range]) -> Body:
    """The body without conditions, and reads, that ranges decide."""
    if isinstance(body, Select):
        left: list[Cond] = []
        for c in body.conds:
            low, high = bounds(c.index, ranges)
            holds, fails = (low == high == 0, low > 0 or high < 0) if c.equal else (low >= 0, high < 0)
            if fails:
                return pruned(body.other, ranges)
            if not holds:
                left.append(c)
        then = pruned(body.then, ranges)
        return Select(tuple(left), then, pruned(body.other, ranges)) if left else then
    if isinstance(body, Read):
        return Const(body.fill) if any(_never(ix, box, ranges) for ix, box in zip(body.index, box_of(body))) else body
    return rebuilt(body, tuple(pruned(a, ranges) for a in children(body)))


def _never(ix: Index, box: Range, ranges: Mapping[str, Range]) -> bool:
    low, high = bounds(ix, ranges)
    return high < box[0] or low >= box[1]
