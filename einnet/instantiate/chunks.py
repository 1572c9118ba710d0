"""Parts of outer dimensions: a sequence of kernels run part by part, so that what one hands to the next stays in cache.

Every buffer between the kernels holds one part only. What is divided are the outermost dimensions of the last kernel's result: the images of a
batch, heads, blocks of rows. The sequence is the whole subprogram, or those of its kernels that hand each other its largest temporaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from einnet.expr.nodes import Scope
from einnet.instantiate.kernels import Buffer, EOperator, Kernel, VendorKernel, View
from einnet.instantiate.padding import padded
from einnet.instantiate.restrict import Undivided, restricted

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


MOST_CALLS = 4096
"""Kernels that a sequence may become."""


def cuts(size: int, digits: Sequence[Digit]) -> list[tuple[Digit, int]]:
    """Into how many parts each digit is divided, the outermost first, so that `size` bytes fit the cache with as few parts as that takes.

    Nothing where they fit as they are, or never do.
    """
    found: list[tuple[Digit, int]] = []
    for digit in digits:
        count = next((n for n in range(1, digit.extent + 1) if digit.extent % n == 0 and size <= n * CACHED), digit.extent)
        if count > 1:
            found.append((digit, count))
        size = -(-size // count)
        if size <= CACHED:
            return found
    return []


def chunked(kernels: list[Kernel], temporaries: Mapping[str, Buffer]) -> tuple[list[Kernel], dict[str, Buffer]] | None:
    """The same kernels run part by part over smaller temporaries; None where that saves nothing or cannot be done."""
    for before, chosen, after in (([], kernels, []), core(kernels, temporaries)):
        inside = between(before, chosen, after, temporaries)
        if len(chosen) < 2 or not inside:
            continue
        (out,) = chosen[-1].result_views
        digits = [Digit(s, n) for s, n in sorted(zip(out.strides, out.shape), reverse=True) if n > 1]
        steps = cuts(sum(BYTES * b.size for b in inside.values()), digits)
        if not steps or out.buffer in inside or prod(count for _, count in steps) * len(chosen) > MOST_CALLS:
            continue
        try:
            made, small = all_divided(chosen, inside, steps)
        except Undivided:
            continue
        return [*before, *made, *after], {**temporaries, **small}
    return None


Sequences = tuple[list[Kernel], list[Kernel], list[Kernel]]


def core(kernels: list[Kernel], temporaries: Mapping[str, Buffer]) -> Sequences:
    """What comes before, from the first to the last kernel that touches one of the largest temporaries, and what comes after.

    Kernels that stand between these and do not need them come before.
    """
    most = max((b.size for b in temporaries.values()), default=0)
    large = {name for name, b in temporaries.items() if 2 * b.size > most}
    touching = [n for n, k in enumerate(kernels) if large & touched(k)]
    if not touching:
        return kernels, [], []
    begin, end = touching[0], touching[-1] + 1
    before, chosen = kernels[:begin], kernels[begin : begin + 1]
    for kernel in kernels[begin + 1 : end]:
        met, written = touched(kernel), frozenset(v.buffer for v in kernel.result_views)
        free = not met & large and all(not (met & {v.buffer for v in k.result_views} or written & touched(k)) for k in chosen)
        (before if free else chosen).append(kernel)
    return before, chosen, kernels[end:]


def between(before: Sequence[Kernel], chosen: Sequence[Kernel], after: Sequence[Kernel], temporaries: Mapping[str, Buffer]) -> dict[str, Buffer]:
    """The temporaries that the chosen kernels hand each other and nobody else touches."""
    written = {v.buffer for k in chosen for v in k.result_views}
    elsewhere = frozenset[str]().union(*map(touched, (*before, *after)))
    return {name: b for name, b in temporaries.items() if name in written - elsewhere}


def touched(kernel: Kernel) -> frozenset[str]:
    """The buffers that a kernel reads or writes."""
    return frozenset(v.buffer for v in (*kernel.operand_views, *kernel.result_views))


def all_divided(
    kernels: list[Kernel], temporaries: Mapping[str, Buffer], steps: Sequence[tuple[Digit, int]]
) -> tuple[list[Kernel], dict[str, Buffer]]:  # fmt: skip
    """The kernels divided by one digit, the kernels of every part by the next. Raises Undivided."""
    (digit, count), *more = steps
    parts, small = divided(kernels, temporaries, digit, count, pad=not more)
    if not more:
        return [k for part in parts for k in part], small
    inner = [all_divided(part, small, more) for part in parts]
    return [k for made, _ in inner for k in made], inner[0][1]


def divided(
    kernels: Sequence[Kernel], temporaries: Mapping[str, Buffer], whole: Digit, count: int, pad: bool = True
) -> tuple[list[list[Kernel]], dict[str, Buffer]]:  # fmt: skip
    """The kernels for each of `count` parts of the result's digit, products between temporaries padded if wanted. Raises Undivided."""
    (result,) = kernels[-1].result_views
    digits = {result.buffer: whole}
    cut: list[Cut] = []
    for kernel in reversed(kernels):
        (out,) = kernel.result_views
        if out.buffer not in digits:
            raise Undivided(f"{out.buffer} is not divided")
        cut.insert(0, cut_kernel(kernel, digits, temporaries, count))
    small = {name: replace(b, size=b.size // count) for name, b in temporaries.items() if name in digits}
    if len(small) < len(temporaries) or any(b.size % digits[name].reach for name, b in temporaries.items()):
        raise Undivided("a temporary is not made of whole digits")

    def narrow(view: View) -> View:
        reach = digits[view.buffer].reach if view.buffer in small else 0
        return shrunk(view, reach, reach // count) if reach else view

    first = [c.kernel.map_views(narrow) for c in cut]
    if pad:
        first, small = padded(first, small)
    steps = [{v: step for v, step in c.steps.items() if step and v.buffer not in small} for c in cut]
    return [[moved(c.of(part, k), by, part) for c, k, by in zip(cut, first, steps, strict=True)] for part in range(count)], small


def moved(kernel: Kernel, steps: Mapping[View, int], part: int) -> Kernel:
    """The first part's kernel at the views of another part: by `steps` they move from one to the next."""
    return kernel.map_views(lambda v: v.at(v.offset + part * steps[v]) if v in steps else v) if part else kernel


def shrunk(view: View, reach: int, wanted: int) -> View:
    """The view of one part where address q·reach + r, r < wanted, has become q·wanted + r. Raises Undivided."""
    if any(n > 1 and (s * (n - 1) >= wanted if s < reach else s % reach) for s, n in zip(view.strides, view.shape)) or view.offset % reach:
        raise Undivided(f"{view} crosses the parts of its buffer")
    return replace(view, strides=tuple(s // reach * wanted if s >= reach else s for s in view.strides), offset=view.offset // reach * wanted)


@dataclass(frozen=True)
class Cut:
    """A kernel for one part, how far each of its views moves from part to part, and the expressions of the parts of a generated one."""

    kernel: Kernel
    steps: Mapping[View, int]
    scopes: tuple[Scope, ...] = ()

    def of(self, part: int, kernel: Kernel) -> Kernel:
        """The first part's kernel with what another part computes."""
        return replace(kernel, scope=self.scopes[part]) if isinstance(kernel, EOperator) and part else kernel


@dataclass
class _Views:
    """Views cut as the digits of their buffers are divided; `digits` learns of the temporaries among them, `steps` how far apart the parts lie."""

    digits: dict[str, Digit]
    temporaries: Mapping[str, Buffer]
    count: int
    steps: dict[View, int] = field(default_factory=dict)

    def along(self, view: View, dimension: int | None, extent: int) -> View:
        """The view cut along a dimension that is divided as a digit of `extent` values is; None leaves it whole. Raises Undivided."""
        if dimension is None or view.shape[dimension] == 1:
            if view.buffer in self.temporaries:
                raise Undivided(f"{view.buffer} is read as a whole")
            return view
        if view.shape[dimension] % extent:
            raise Undivided(f"dimension {dimension} of {view} is not divided evenly")
        digit = Digit(view.strides[dimension] * (view.shape[dimension] // extent), extent)
        if view.buffer in self.temporaries and self.digits.setdefault(view.buffer, digit) != digit:
            raise Undivided(f"{view.buffer} is divided in two ways")
        shape = tuple(n // self.count if d == dimension % len(view.shape) else n for d, n in enumerate(view.shape))
        small = replace(view, shape=shape)
        if self.steps.setdefault(small, digit.reach // self.count) != digit.reach // self.count:
            raise Undivided(f"{view.buffer} is read in two ways")
        return small


def cut_kernel(kernel: Kernel, digits: dict[str, Digit], temporaries: Mapping[str, Buffer], count: int) -> Cut:
    """The kernel divided as its result is; `digits` learns of the temporaries it reads. Raises Undivided."""
    views = _Views(digits, temporaries, count)
    (out,) = kernel.result_views
    digit = digits[out.buffer]
    dimension = covering(out, digit)
    if isinstance(kernel, EOperator):
        inner, dims = restricted(kernel.scope, dimension, count)
        operands = tuple((name, views.along(v, dims.get(name), digit.extent)) for name, v in kernel.operands)
        scopes = tuple(restricted(kernel.scope, dimension, count, part)[0] for part in range(count))
        return Cut(replace(kernel, scope=inner, operands=operands, out=views.along(out, dimension, digit.extent)), views.steps, scopes)
    where = kernel.along(dimension) if isinstance(kernel, VendorKernel) else None
    if not isinstance(kernel, VendorKernel) or where is None:
        raise Undivided("only generated kernels, products and batches of convolutions are divided")
    added = [p.operand for p in kernel.posts if p.operand]
    new = {v: views.along(v, dimension if v.shape[dimension] > 1 else None, digit.extent) for v in added}
    new |= {v: views.along(v, d, digit.extent) for v, d in zip(kernel.inputs, where, strict=True)}
    new[out] = views.along(out, dimension, digit.extent)
    return Cut(kernel.map_views(lambda v: new[v]), views.steps)


def covering(view: View, digit: Digit) -> int:
    """The dimension of a view that the digit is the leading part of."""
    for d, (s, n) in enumerate(zip(view.strides, view.shape)):
        if n > 1 and digit.stride % s == 0 and s * n == digit.reach:
            return d
    raise Undivided(f"no dimension of {view} has the digit {digit}")
