"""Products of one operand with several weights as one product with the weights side by side, whose parts are read where they lie.

    x·[V W] = [x·V  x·W]

Of equal widths they are a batch as well, which leaves the rows of each result together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from typing import TypeVar

from einnet.expr.index import combine, floor_div, simplify, var
from einnet.expr.nodes import Body, Cond, Iter, Read, Scope, Select, Tensor, indices
from einnet.instantiate.kernels import Buffer, Kernel, Matmul, View, dense_strides, dense_view, loops_of
from einnet.instantiate.stitch import Window

T = TypeVar("T")

ROWS, COLUMNS = 0, 1
"""How results stand in a joint one: one below the other, as a batch, or side by side."""

Weights = Mapping[str, Tensor | Scope]
"""What constant buffers hold, dense."""


@dataclass(frozen=True)
class Joined:
    """Kernels with joint products, the buffers between kernels, the joint weights with the views that they are of and how these stand in them, and of
    what buffers of before are windows.
    """

    kernels: list[Kernel]
    temporaries: Mapping[str, Buffer]
    weights: Mapping[str, Scope] = field(default_factory=dict)
    parts: Mapping[str, tuple[tuple[View, ...], int]] = field(default_factory=dict)
    windows: Mapping[str, tuple[str, Window]] = field(default_factory=dict)


def joined(kernels: Sequence[Kernel], temporaries: Mapping[str, Buffer], weights: Weights) -> Joined | None:
    """The kernels with all products of one operand with weights computed together; None where there are none.

    `temporaries` are the buffers between the kernels; what leaves them is not joined.
    """
    found, tried = Joined(list(kernels), dict(temporaries)), set[tuple[str, ...]]()
    while (group := next((g for g in groups(found.kernels, found.temporaries, weights) if results(g) not in tried), None)) is not None:
        tried.add(results(group))
        found = with_group(found, group, weights) or found
    return found if found.weights else None


def results(group: Sequence[Matmul]) -> tuple[str, ...]:
    """What a group of products writes: it is known by that."""
    return tuple(k.c.buffer for k in group)


def groups(kernels: Sequence[Kernel], temporaries: Mapping[str, Buffer], weights: Weights) -> Iterator[list[Matmul]]:
    """Products that read one operand, each with weights of its own, and do the same to their results, by weights at most."""
    alike: dict[object, list[Matmul]] = {}
    for n, k in enumerate(kernels):
        if isinstance(k, Matmul) and joins(k, temporaries, weights) and writes(k.c.buffer, kernels) == 1 and not writes(k.a.buffer, kernels[n:]):
            alike.setdefault((k.a, tuple((p.kind, p.alpha, p.beta) for p in k.post)), []).append(k)
    yield from (group for group in alike.values() if len(group) > 1)


def joins(k: Matmul, temporaries: Mapping[str, Buffer], weights: Weights) -> bool:
    """A plain product of data with weights that fills a buffer of its own, and posts that know weights only."""
    rows, columns = k.c.shape[-2:]
    own = k.c.buffer in temporaries and k.c == dense_view(k.c.buffer, k.c.shape) and temporaries[k.c.buffer].size == rows * columns
    known = k.b.buffer in weights and all(p.operand is None or p.operand.buffer in weights for p in k.post)
    return own and known and k.a.buffer not in weights and len(k.c.shape) == 2 and all(p.operand is None or p.operand.shape[0] == 1 for p in k.post)


def writes(buffer: str, kernels: Sequence[Kernel]) -> int:
    """How many kernels write to a buffer."""
    return sum(v.buffer == buffer for k in kernels for v in k.result_views)


def with_group(found: Joined, group: Sequence[Matmul], weights: Weights, axis: int = COLUMNS) -> Joined | None:
    """The kernels with one product in place of some, where the first of them stands; None where a part of it cannot be read in its place, and for
    a batch of unequal widths."""
    shapes = [k.c.shape for k in group]
    if axis == ROWS and len(set(shapes)) > 1:
        return None
    begins = [0, *accumulate(shape[axis] for shape in shapes)]
    whole = replaced(shapes[0], axis, begins[-1])
    name = f"{group[0].c.buffer}_joint"
    windows = {k.c.buffer: Window(whole, axis, begin, shape[axis]) for k, begin, shape in zip(group, begins, shapes)}
    made: dict[str, Scope] = {}
    parts: dict[str, tuple[tuple[View, ...], int]] = {}

    def joint(views: Sequence[View]) -> View:
        """The weights that some views show, together, as a constant of its own."""
        scope = beside(views, weights, axis)
        made[f"w_{scope.key[:20]}"], parts[f"w_{scope.key[:20]}"] = scope, (tuple(views), axis)
        return batched(dense_view(f"w_{scope.key[:20]}", scope.shape), len(group), axis)

    post = tuple(
        replace(p, operand=joint([o for k in group if (o := wide(k.post[n].operand, k.c.shape[1]))])) if p.operand else p
        for n, p in enumerate(group[0].post)
    )
    c = batched(dense_view(name, whole), len(group), axis)
    product = replace(group[0], a=repeated(group[0].a, len(group), axis), b=joint([k.b for k in group]), c=c, post=post)
    rest = [product if k is group[0] else k for k in found.kernels if not any(k is other for other in group[1:])]
    moved = in_windows(rest, windows, name)
    if moved is None or name in found.temporaries:
        return None
    buffers = {n: b for n, b in found.temporaries.items() if n not in windows}
    buffers[name] = Buffer(name, prod(whole), "f32", "temporary")
    own = {n: (name, w) for n, w in windows.items()}
    return Joined(moved, buffers, {**found.weights, **made}, {**found.parts, **parts}, {**found.windows, **own})


def batched(view: View, count: int, axis: int) -> View:
    """Matrices that stand one below the other as a batch."""
    return view if axis == COLUMNS else dense_view(view.buffer, (count, view.shape[0] // count, view.shape[1]))


def repeated(view: View, count: int, axis: int) -> View:
    """A matrix as each one of a batch."""
    return view if axis == COLUMNS else replace(view, shape=(count, *view.shape), strides=(0, *view.strides))


def in_windows(kernels: Sequence[Kernel], windows: Mapping[str, Window], name: str) -> list[Kernel] | None:
    """The kernels with some buffers read as windows of another one, those that touch none as they are; None where strides cannot say one of the
    views."""
    views = {v for k in kernels for v in (*k.operand_views, *k.result_views) if v.buffer in windows}
    places = {v: windows[v.buffer].view(v, name) for v in views}
    if not all(places.values()):
        return None
    change: Callable[[View], View] = lambda v: places.get(v) or v  # noqa: E731
    return [k.map_views(change) if any(v in places for v in (*k.operand_views, *k.result_views)) else k for k in kernels]


def wide(view: View | None, width: int) -> View | None:
    """A row of weights over all of a width, also where it is one number for all."""
    if view is None or view.shape[1] == width:
        return view
    return replace(view, shape=(1, width), strides=(view.strides[0], 0))


def beside(views: Sequence[View], weights: Weights, axis: int = COLUMNS) -> Scope:
    """What matrices of weights hold, side by side or one below the other: of every column, or row, the one matrix that it is of."""
    begins = [0, *accumulate(v.shape[axis] for v in views)]
    loops = loops_of(replaced(views[0].shape, axis, begins[-1]))
    at = indices(loops)
    reads: list[Body] = [Read(shown(v, weights[v.buffer]), replaced(at, axis, at[axis] - begin)) for v, begin in zip(views, begins)]
    body = reads[0]
    for read, begin in zip(reads[1:], begins[1:]):
        body = Select((Cond(at[axis] - begin),), read, body)
    return Scope(loops, (), body)


def replaced(of: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    """A tuple with another value in one place."""
    return (*of[:place], value, *of[place + 1 :])


def shown(view: View, held: Tensor | Scope) -> Scope:
    """What a view of a dense buffer shows of what that holds."""
    loops = tuple(Iter(f"k{n}", 0, extent) for n, extent in enumerate(view.shape))
    box = [(0, n) for n in held.shape] if isinstance(held, Tensor) else held.box
    address = combine(*((var(i.name), s) for i, s in zip(loops, view.strides))) + view.offset
    ranges = {i.name: i.range for i in loops}
    index = []
    for stride, (lo, _) in zip(dense_strides(tuple(hi - lo for lo, hi in box)), box):
        digit = simplify(floor_div(address, stride), ranges)
        address = simplify(address - digit * stride, ranges)
        index.append(digit + lo)
    return Scope(loops, (), Read(held, tuple(index)))
