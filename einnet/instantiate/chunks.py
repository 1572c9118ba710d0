"""Chunks of an outer dimension: a sequence of kernels run part by part, so that what one hands to the next stays in cache.

Every buffer between the kernels holds one part only; the outermost dimension of the result (the images of a batch) is what is divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from einnet.expr.index import var
from einnet.expr.nodes import Body, Iter, Read, Scope, Select, Tensor, Val, children, map_reads, reads
from einnet.instantiate.kernels import Buffer, Conv, EOperator, Kernel, Matmul, View, map_views, result_views
from einnet.instantiate.padding import padded

CACHED = 6 << 20
"""Bytes of temporaries that stay in cache from one kernel to the next, beside weights and code."""

BYTES = 4


@dataclass(frozen=True, slots=True)
class Digit:
    """The part of a buffer's addresses that the divided dimension makes up: stride·i for i < extent."""

    stride: int
    extent: int

    @property
    def reach(self) -> int:
        return self.stride * self.extent


class Undivided(Exception):
    """The kernels cannot be run part by part; the message says why."""


def parts(temporaries: Mapping[str, Buffer], extent: int) -> int:
    """The smallest divisor of the extent by which all temporaries fit the cache; 1 where they do as they are, or never do."""
    size = BYTES * sum(b.size for b in temporaries.values())
    return next((n for n in range(1, extent + 1) if extent % n == 0 and size <= n * CACHED), 1)


def chunked(kernels: list[Kernel], temporaries: Mapping[str, Buffer]) -> tuple[list[Kernel], dict[str, Buffer]] | None:
    """The same kernels run part by part over smaller temporaries; None where that saves nothing or cannot be done."""
    if len(kernels) < 2 or not temporaries:
        return None
    (out,) = result_views(kernels[-1])
    moving = [(s, n) for s, n in zip(out.strides, out.shape) if n > 1]
    if not moving:
        return None
    stride, extent = max(moving)
    count = parts(temporaries, extent)
    if count == 1 or out.buffer in temporaries:
        return None
    try:
        return divided(kernels, temporaries, Digit(stride, extent), count)
    except Undivided:
        return None


def divided(kernels: list[Kernel], temporaries: Mapping[str, Buffer], whole: Digit, count: int) -> tuple[list[Kernel], dict[str, Buffer]]:
    """The kernels once for each of `count` parts of the result's digit. Raises Undivided."""
    (result,) = result_views(kernels[-1])
    digits = {result.buffer: whole}
    cut: list[tuple[Kernel, dict[View, int]]] = []
    for kernel in reversed(kernels):
        (out,) = result_views(kernel)
        if out.buffer not in digits:
            raise Undivided(f"{out.buffer} is not divided")
        cut.insert(0, cut_kernel(kernel, digits, temporaries, count))
    small = {name: replace(b, size=b.size // count) for name, b in temporaries.items() if name in digits}
    if len(small) < len(temporaries) or any(b.size % digits[name].reach for name, b in temporaries.items()):
        raise Undivided("a temporary is not made of whole digits")

    def narrow(view: View) -> View:
        reach = digits[view.buffer].reach if view.buffer in small else 0
        return shrunk(view, reach, reach // count) if reach else view

    first, padded_small = padded([map_views(kernel, narrow) for kernel, _ in cut], small)
    steps = [{v: step for v, step in steps.items() if step and v.buffer not in small} for _, steps in cut]
    return [moved(kernel, by, part) for part in range(count) for kernel, by in zip(first, steps, strict=True)], padded_small


def moved(kernel: Kernel, steps: Mapping[View, int], part: int) -> Kernel:
    """The first part's kernel as that of another part, from one to the next of which views move by `steps`."""
    return map_views(kernel, lambda v: replace(v, offset=v.offset + part * steps[v]) if v in steps else v) if part else kernel


def shrunk(view: View, reach: int, wanted: int) -> View:
    """The view of one part where address q·reach + r, r < wanted, has become q·wanted + r. Raises Undivided."""
    if any(n > 1 and (s * (n - 1) >= wanted if s < reach else s % reach) for s, n in zip(view.strides, view.shape)) or view.offset % reach:
        raise Undivided(f"{view} crosses the parts of its buffer")
    return replace(view, strides=tuple(s // reach * wanted if s >= reach else s for s in view.strides), offset=view.offset // reach * wanted)


def cut_kernel(kernel: Kernel, digits: dict[str, Digit], temporaries: Mapping[str, Buffer], count: int) -> tuple[Kernel, dict[View, int]]:
    """The kernel for one part, and how far each of its views moves from part to part; `digits` learns of the temporaries it reads."""
    steps: dict[View, int] = {}

    def along(view: View, dimension: int | None, extent: int) -> View:
        """The view cut along a dimension that is divided as a digit of `extent` values is; None leaves it whole."""
        if dimension is None or view.shape[dimension] == 1:
            if view.buffer in temporaries:
                raise Undivided(f"{view.buffer} is read as a whole")
            return view
        if view.shape[dimension] % extent:
            raise Undivided(f"dimension {dimension} of {view} is not divided evenly")
        digit = Digit(view.strides[dimension] * (view.shape[dimension] // extent), extent)
        if view.buffer in temporaries and digits.setdefault(view.buffer, digit) != digit:
            raise Undivided(f"{view.buffer} is divided in two ways")
        shape = tuple(n // count if d == dimension % len(view.shape) else n for d, n in enumerate(view.shape))
        small = replace(view, shape=shape)
        if steps.setdefault(small, digit.reach // count) != digit.reach // count:
            raise Undivided(f"{view.buffer} is read in two ways")
        return small

    (out,) = result_views(kernel)
    digit = digits[out.buffer]
    dimension = covering(out, digit)
    post_of = {}
    if isinstance(kernel, (Matmul, Conv)):
        post_of = {p.operand: along(p.operand, dimension if p.operand.shape[dimension] > 1 else None, digit.extent) for p in kernel.post if p.operand}
    match kernel:
        case EOperator(scope, operands):
            small, dims = restricted(scope, dimension, count)
            views = tuple((name, along(v, dims.get(name), digit.extent)) for name, v in operands)
            return replace(kernel, scope=small, operands=views, out=along(out, dimension, digit.extent)), steps
        case Matmul(a, b, c):
            rows, columns = dimension - len(c.shape) == -2, dimension - len(c.shape) == -1
            new = {a: along(a, None if columns else dimension, digit.extent), b: along(b, None if rows else dimension, digit.extent)}
        case Conv(x, w) if dimension == 0:
            new = {x: along(x, 0, digit.extent), w: along(w, None, digit.extent)}
        case _:
            raise Undivided("only generated kernels, products and batches of convolutions are divided")
    new = {**post_of, **new, out: along(out, dimension, digit.extent)}
    return map_views(kernel, lambda v: new[v]), steps


def covering(view: View, digit: Digit) -> int:
    """The dimension of a view that the digit is the leading part of."""
    for d, (s, n) in enumerate(zip(view.strides, view.shape)):
        if n > 1 and digit.stride % s == 0 and s * n == digit.reach:
            return d
    raise Undivided(f"no dimension of {view} has the digit {digit}")


def restricted(scope: Scope, position: int, count: int) -> tuple[Scope, dict[str, int]]:
    """The scope over the first of `count` parts of a loop, reading tensors as small as that, and the dimension in which each of them is.

    Raises Undivided where the loop stands anywhere but alone in one dimension of a read.
    """
    loop = scope.loops[position]
    if loop.lo or loop.extent % count or loop.name in valued(scope.body):
        raise Undivided(f"{loop.name} cannot be divided")
    dims: dict[str, int] = {}
    plain: set[str] = set()

    def learn(found: Mapping[str, int], r: Read) -> None:
        if any(dims.setdefault(name, d) != d for name, d in found.items()):
            raise Undivided(f"{r} reads a tensor in two ways")

    def small(r: Read) -> Read:
        where = [d for d, e in enumerate(r.index) if loop.name in e.names()]
        if not where:
            plain.update(t for t in tensors_of(r))
            return r
        if len(where) > 1 or r.index[where[0]] != var(loop.name) or r.base.box[where[0]] != loop.range:
            raise Undivided(f"{loop.name} does not stand alone in {r}")
        if isinstance(r.base, Scope):
            base, inner = restricted(r.base, where[0], count)
            learn(inner, r)
            plain.update(t for t in tensors_of(r) if t not in inner)
            return replace(r, base=base)
        learn({r.base.name: where[0]}, r)
        shape = tuple(n // count if d == where[0] else n for d, n in enumerate(r.base.shape))
        return replace(r, base=replace(r.base, shape=shape))

    body = map_reads(scope.body, small)
    if plain & dims.keys():
        raise Undivided("a tensor is read along the loop and as a whole")
    loops = tuple(Iter(i.name, 0, i.hi // count) if i is loop else i for i in scope.loops)
    return replace(scope, loops=loops, body=body), dims


def valued(body: Body) -> frozenset[str]:
    """Iterators whose values matter outside of the indices of reads."""
    match body:
        case Val(index):
            return index.names()
        case Select(conds):
            found = frozenset[str]().union(*(c.index.names() for c in conds))
        case _:
            found = frozenset()
    return found.union(*map(valued, children(body)))


def tensors_of(r: Read) -> Iterator[str]:
    """Names of the tensors that a read reaches."""
    if isinstance(r.base, Tensor):
        yield r.base.name
        return
    for inner in reads(r.base.body):
        yield from tensors_of(inner)
