"""Vendor kernels as oneDNN primitives: what layouts they take, what they pack, and what they refuse.

`prepare` needs no memory: it asks the library for an implementation and reports what has to be stored. `prepared.Prepared` binds it to addresses.
An implementation whose name holds `ref` is a silent fall-back hundreds of times slower; it is refused, so that a chooser sees no candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from einnet.instantiate.kernels import LINE, Conv, Matmul, VendorKernel, View
from einnet.instantiate.kernels.arithmetics import ARITHMETICS, F32, I8U8, U8I8, Arithmetic
from einnet.instantiate.kernels.contractions import Contraction, arithmetic_of, as_convolution
from einnet.instantiate.kernels.primitive import Primitive
from einnet.runtime import machine
from einnet.runtime.cpu import dnnl
from einnet.runtime.cpu.dnnl import Desc, Refused
from einnet.runtime.cpu.dnnl_posts import PostOperations, described, like, post_operations, split_bias
from einnet.runtime.cpu.layouts import agree, broadcast, canonical_image, canonical_matrix, overlaps, permuted_strides, swapped
from einnet.runtime.cpu.prepared import Packed, Prepared
from einnet.runtime.cpu.threads import current_threads, limited

MOST_REPEATS = 4096
"""Most products that one batch is taken apart into."""

TURNED = {**ARITHMETICS, U8I8.name: I8U8, I8U8.name: U8I8}
"""The arithmetic of a product whose factors change places, by its name."""

_Create = Callable[[Desc, Desc, Desc | None, Desc, Sequence[dnnl.PostOp]], dnnl.PrimitiveDesc]


@dataclass(frozen=True)
class Request:
    """A kernel in the library's terms: views with its logical shapes, and how to ask for an implementation."""

    x: View
    w: View
    y: View
    bias: View | None
    posts: PostOperations
    pack: bool
    create: _Create
    arithmetic: Arithmetic = F32
    stored: str = dnnl.F32


ALIKE = 8 * LINE
"""Rows of so many elements, or of a multiple, fall into an eighth of a cache's sets at most."""


def prepare(kernel: VendorKernel, constants: Collection[str] = (), reference: bool = False) -> Prepared:
    """The fastest form of the kernel that the library has; weights in the `constants` buffers are packed.

    With `reference` the library's reference code will do: it is right, and takes hundreds of times as long. A batched Matmul with windows that
    overlap is one product for each element of the batch: the library's descriptions of memory cannot overlap. Call it with the number of threads
    set that the kernel will run with. Raises Refused with the reasons.
    """
    if not isinstance(kernel, Matmul) or not overlapping(kernel):
        return _prepare(kernel, constants, reference)
    if arithmetic_of(kernel) != F32:
        raise Refused(f"windows that overlap have no copy in {arithmetic_of(kernel).name}")
    return _repeated(kernel, reference) if 1 < prod(kernel.c.shape[:-2]) <= MOST_REPEATS else _prepare(kernel, constants, reference)


def _repeated(kernel: Matmul, reference: bool) -> Prepared:
    """A batch as one plain product after the other. They differ by where their operands begin, which is affine in the place: the library, which
    takes milliseconds, is asked for the first product and for one step along each dimension of the batch."""
    extents = kernel.c.shape[:-2]
    threads = current_threads()
    steps = [tuple(int(d == axis) for d in range(len(extents))) for axis, extent in enumerate(extents) if extent > 1]
    with limited(1):
        first = _prepare(product_at(kernel, (0,) * len(extents)), (), reference)
        seconds = [_prepare(product_at(kernel, step), (), reference) for step in steps]
    described = [(arg, desc) for arg, desc, _ in first.operands]
    assert all(described == [(arg, desc) for arg, desc, _ in one.operands] for one in seconds)
    moves = [[one.operands[n][2].offset - view.offset for one in seconds] for n, (_, _, view) in enumerate(first.operands)]

    def at(place: tuple[int, ...]) -> tuple[tuple[int, Desc, View], ...]:
        moved = [sum(p * by for p, by in zip(place, own, strict=True)) for own in moves]
        return tuple((arg, desc, replace(v, offset=v.offset + by)) for (arg, desc, v), by in zip(first.operands, moved, strict=True))

    _, *others = product(*(range(extent) for extent in extents if extent > 1))
    return replace(first, repeats=tuple(map(at, others)), shares=min(threads, len(others) + 1))


def overlapping(kernel: Matmul) -> bool:
    """An operand's windows share elements."""
    return any(overlaps(broadcast(v, keep=2)) for v in (kernel.a, kernel.b))


def product_at(kernel: Matmul, place: tuple[int, ...]) -> Matmul:
    """The plain product of a batch at a place."""

    def part(v: View) -> View:
        offset = sum(p * s for p, s, n in zip(place, v.strides, v.shape) if n > 1)
        return View(v.buffer, v.shape[-2:], v.strides[-2:], v.offset + offset)

    post = tuple(replace(p, operand=p.operand and part(p.operand)) for p in kernel.post)
    return Matmul(part(kernel.a), part(kernel.b), part(kernel.c), post)


def _prepare(kernel: VendorKernel, constants: Collection[str], reference: bool) -> Prepared:
    reasons: list[str] = []
    written = kernel.result
    if overlaps(written):
        raise Refused(f"the result's strides {written.strides} for shape {written.shape} overlap")
    if missing := arithmetic_of(kernel).missing(machine.cpu_features()):
        raise Refused(f"products in {arithmetic_of(kernel).name} take the instructions {' '.join(missing)}, which this processor lacks")
    if isinstance(kernel, Contraction) and kernel.by:
        for request in by_name(kernel, constants):
            with suppress(Refused):
                return _build(request, reference, kernel.by)
    for asked in _requests(kernel, constants):
        try:
            return _build(asked, reference) if isinstance(asked, Request) else _asked(asked, reference)
        except Refused as e:
            reasons.append(str(e))
    raise Refused("; ".join(dict.fromkeys(reasons)) or f"oneDNN has no {type(kernel).__name__}")


def _requests(kernel: VendorKernel, constants: Collection[str]) -> Iterator[Request | Primitive]:
    """The ways to ask for a kernel: contractions have several, with packed weights and without; other operators say how themselves."""
    if isinstance(kernel, Matmul):
        return _matmul_forms(kernel, constants)
    return _conv_forms(kernel, constants) if isinstance(kernel, Conv) else kernel.primitives()


def _asked(primitive: Primitive, reference: bool) -> Prepared:
    """An operator that reads and writes views where they stand."""
    operands = tuple((argument, described(view), view) for argument, view in primitive.operands)
    pd = dnnl.described(primitive.name, *primitive.before, *(desc for _, desc, _ in operands), *primitive.after)
    if "ref" in pd.implementation and not reference:
        layouts = ", ".join(f"{view.shape} strides {view.strides}" for _, _, view in operands)
        raise Refused(f"oneDNN has only its reference code {pd.implementation} of {primitive.name} for {layouts}")
    return Prepared(pd, pd.implementation, operands, None, pd.desc(dnnl.QUERY_SCRATCHPAD))


def refusal(kernel: VendorKernel, constants: Collection[str] = ()) -> str | None:
    """Why the library has no fast implementation, None if it has one."""
    try:
        prepare(kernel, constants)
    except Refused as e:
        return str(e)
    return None


def _build(request: Request, reference: bool, by: str = "") -> Prepared:
    """The request as the library's first implementation does it that will do, or as the one of a name."""
    x, w, bias, y = operands_of(request)
    rounds = request.arithmetic.rounds
    pd = with_layouts(request, x, w, bias, y)
    while (why := unfit(pd.implementation, request, reference)) or by not in ("", pd.implementation):
        if why and not (reference or by):
            raise Refused(why)
        pd.following()
    name = pd.implementation
    operands = [(dnnl.ARG_DST, y, request.y)]
    if bias and request.bias:
        operands.append((dnnl.ARG_BIAS, bias, request.bias))
    for n, (post, view) in enumerate(request.posts):
        if view and isinstance(post, dnnl.Binary):
            operands.append((dnnl.post_argument(n), post.operand, view))
    wanted = pd.desc(dnnl.QUERY_WEIGHTS)
    packed = Packed(request.w, w, wanted) if request.pack and wanted != w else None
    read = [] if packed else [(dnnl.ARG_WEIGHTS, Packed(request.w, w, wanted))]
    read.append((dnnl.ARG_SRC, Packed(request.x, x, pd.desc(dnnl.QUERY_SOURCE))))
    if not rounds:
        operands += [(argument, one.source, one.view) for argument, one in read]
    return Prepared(pd, name, tuple(operands), packed, pd.desc(dnnl.QUERY_SCRATCHPAD), rounded=tuple(read) if rounds else ())


def operands_of(request: Request) -> tuple[Desc, Desc, Desc | None, Desc]:
    """Data, weights, bias and result as they stand in memory."""
    x, w = map(described, (request.x, request.w), request.arithmetic.elements)
    return x, w, described(request.bias) if request.bias else None, described(request.y, request.stored)


def with_layouts(request: Request, x: Desc, w: Desc, bias: Desc | None, y: Desc) -> dnnl.PrimitiveDesc:
    """The library's form of a request, which chooses the layouts of what is copied for it."""
    rounds, posts = request.arithmetic.rounds, [p for p, _ in request.posts]
    free_x, free_w = map(Desc.any, (request.x.shape, request.w.shape), request.arithmetic.operands)
    pd = request.create(free_x if rounds else x, free_w if rounds or request.pack else w, bias, y, posts)
    apart = _rows_apart(request.w) if request.pack and not rounds and pd.implementation.startswith("gemm") else None
    other = request.create(x, apart, bias, y, posts) if apart else pd
    return other if other.implementation == pd.implementation else pd  # the library may have nothing but its reference code for a layout


def _rows_apart(view: View) -> Desc | None:
    """A layout of constant weights whose rows are an odd number of cache lines apart, where rows that follow each other as they stand would fall into
    few sets of the cache (`ALIKE`); None where they would not.

    The library's older product reads many rows of a few lines each: with 2,048 columns it took twice as long as with 2,000. An odd number has no
    factor in common with the number of sets, which is a power of two.
    """
    rows, columns = view.shape[-2:]
    if columns % ALIKE or rows == 1:
        return None
    strides = [1, columns + LINE]
    for extent in reversed(view.shape[1:-1]):
        strides.append(strides[-1] * extent)
    return Desc.strided(view.shape, strides[::-1])


def unfit(name: str, request: Request, reference: bool) -> str | None:
    """Why the implementation of that name will not do, None if it does."""
    binary = [(p, v) for p, v in request.posts if v and isinstance(p, dnnl.Binary)]
    if "ref" in name and not reference:
        layouts = ", ".join(f"{n} {v.shape} strides {v.strides}" for n, v in (("x", request.x), ("w", request.w), ("y", request.y)))
        return f"oneDNN has only its reference code {name} for {layouts}"
    if request.arithmetic.whole and not _adds_in_32_bits(name):
        return f"oneDNN's {name} may add up products of bytes in 16 bits"
    if request.create is dnnl.matmul and "ref" not in name and _crossed(request.y) and any(v.shape != request.y.shape for _, v in binary):
        return f"oneDNN's {name} reads past a post-operation's operand that is broadcast, where rows of a batch are written between each other"
    if name.startswith("gemm") and len(binary) > 1:
        return f"oneDNN's {name} reads past its operands with several binary post-operations"
    if name.startswith("gemm") and any(_varies_with_batch(v, request.y) for _, v in binary):
        return f"oneDNN's {name} is wrong, or reads past its operands, where a post-operation takes another row for each matrix of a batch"
    return None


def _adds_in_32_bits(name: str) -> bool:
    """The implementation of that name adds up products of bytes exactly on a processor that can; the one of matrices does where the library may."""
    return any(word in name for word in ("vnni", "amx", "ref")) or (name.endswith("gemm:jit") and not dnnl.limit())


def _varies_with_batch(operand: View, result: View) -> bool:
    """The operand varies along a batch dimension and not along a later one of the result."""
    varies = [n > 1 for n in operand.shape]
    return any(v and any(m > 1 and not w for m, w in zip(result.shape[d:], varies[d:])) for d, v in enumerate(varies[:-2]))


def by_name(kernel: Contraction, constants: Collection[str]) -> Iterator[Request]:
    """The ways to ask for a contraction that has several implementations: as it is, and a product with constant weights as a convolution."""
    yield from (request for request in _requests(kernel, constants) if isinstance(request, Request))
    if isinstance(kernel, Matmul) and (convolution := as_convolution(kernel, constants)) is not None:
        yield from _conv_forms(convolution, constants)


def _matmul_forms(kernel: Matmul, constants: Collection[str]) -> Iterator[Request]:
    """The product in the ways to describe it, the fast ones first."""
    if _per_row(kernel):
        kernel = _lifted(kernel)
    elif _interleaved(kernel):
        yield from _described(_lifted(kernel), constants)
    yield from _described(kernel, constants)


def _described(kernel: Matmul, constants: Collection[str]) -> Iterator[Request]:
    """The product as it stands and transposed (b'·a' = c'), those with packed weights first; the result's rows must be contiguous."""
    forms = []
    for a, b, c, arrange in ((kernel.a, kernel.b, kernel.c, canonical_matrix),
                             (swapped(kernel.b), swapped(kernel.a), swapped(kernel.c), lambda v: canonical_matrix(swapped(v)))):  # fmt: skip
        x, w, y = (canonical_matrix(broadcast(v, keep=2)) for v in (a, b, c))
        y = replace(y, strides=(*y.strides[:-1], 1)) if y.shape[-1] == 1 else y
        if y.strides[-1] == 1:
            forms += [(x, w, y, arrange, pack) for pack in {w.buffer in constants, False}]
    if not forms:
        raise Refused(f"the result has no contiguous dimension: shape {kernel.c.shape} strides {kernel.c.strides}")
    for x, w, y, arrange, pack in sorted(forms, key=lambda form: not form[4]):
        bias, rest = split_bias(tuple(replace(p, operand=p.operand and arrange(p.operand)) for p in kernel.post), -1)
        if bias:
            ones = (1,) * (len(y.shape) - 1)
            bias = replace(bias, shape=(*ones, *bias.shape), strides=(*(bias.shape[0] for _ in ones), 1))
        arithmetic = kernel.arithmetic if arrange is canonical_matrix else TURNED[kernel.arithmetic.name]
        yield Request(x, w, y, bias, post_operations(rest, y, lambda v: v), pack, dnnl.matmul, arithmetic, kernel.stored)


def _per_row(kernel: Matmul) -> bool:
    """A product of matrices with a post-op operand that varies along one dimension of the result only."""
    return len(kernel.c.shape) == 2 and any(p.operand and max(p.operand.shape) > 1 == min(p.operand.shape) for p in kernel.post)


def _crossed(view: View) -> bool:
    """Matrices of a batch have their rows between those of others."""
    rows = max((s for s, n in zip(view.strides[-2:], view.shape[-2:]) if n > 1), default=0)
    return any(n > 1 and s < rows for s, n in zip(view.strides[:-2], view.shape[:-2]))


def _interleaved(kernel: Matmul) -> bool:
    """A batch of matrices of which one has its rows between those of the others, as the heads of an attention, in memory without gaps."""
    views = [broadcast(v, keep=2) for v in (kernel.a, kernel.b, kernel.c)]
    return len(kernel.c.shape) == 3 and all(map(_dense, views)) and any(map(_crossed, views))


def _dense(view: View) -> bool:
    """The view is all of a stretch of memory, in some order of its dimensions."""
    order = sorted(range(len(view.shape)), key=lambda d: (-view.strides[d], d))
    return agree(view.shape, view.strides, permuted_strides(view.shape, order))


def _lifted(kernel: Matmul) -> Matmul:
    """The same as a batch of one: the library's fast code takes an operand per row of the result in batched products only, and matrices whose rows
    are interleaved in four dimensions only."""

    def lift(v: View) -> View:
        return replace(v, shape=(1, *v.shape), strides=(max(n * s for n, s in zip(v.shape, v.strides, strict=True)), *v.strides))

    post = tuple(replace(p, operand=p.operand and lift(p.operand)) for p in kernel.post)
    return replace(kernel, a=lift(kernel.a), b=lift(kernel.b), c=lift(kernel.c), post=post)


def _conv_forms(kernel: Conv, constants: Collection[str]) -> Iterator[Request]:
    """The convolution with exact padding, with packed weights if they are constant, and with the weights as they stand."""
    kernel, pads = exact_padding(kernel)
    w = kernel.w if kernel.w.shape[0] > 1 else replace(kernel.w, shape=kernel.w.shape[1:], strides=kernel.w.strides[1:])
    x, y = canonical_image(broadcast(kernel.x)), canonical_image(kernel.y)
    if x.shape != kernel.x.shape:
        raise Refused(f"a convolution's input cannot be broadcast: shape {kernel.x.shape} strides {kernel.x.strides}")

    def create(x: Desc, w: Desc, bias: Desc | None, y: Desc, posts: Sequence[dnnl.PostOp]) -> dnnl.PrimitiveDesc:
        return dnnl.convolution(x, w, bias, y, kernel.strides, kernel.dilations, pads, posts, kernel.transposed)

    bias, rest = split_bias(kernel.post, 1)
    posts = post_operations(rest, y, lambda v: like(v, y))
    for pack in (True, False) if kernel.w.buffer in constants else (False,):
        yield Request(x, w, y, bias, posts, pack, create, kernel.arithmetic, kernel.stored)


def exact_padding(kernel: Conv) -> tuple[Conv, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The padding that makes extents fit exactly; what is read of x beyond that, or before its start, is cut from its view.

    The extent of y is what counts: the end padding follows from it. It may be negative, by less than a stride.
    """
    x, begins, ends = kernel.x, list(kernel.pads_begin), []
    for d, (stride, dilation, begin) in enumerate(zip(kernel.strides, kernel.dilations, kernel.pads_begin, strict=True)):
        taps = (kernel.w.shape[3 + d] - 1) * dilation + 1
        small, large = (kernel.x, kernel.y) if kernel.transposed else (kernel.y, kernel.x)
        extent = large.shape[2 + d]
        end = (small.shape[2 + d] - 1) * stride + taps - begin - extent
        if kernel.transposed and (begin < 0 or end <= -stride):
            raise Refused(f"a transposed convolution whose result reaches beyond its taps: padding {begin}, {end} in dimension {d}")
        if not kernel.transposed:
            cut_front, cut_back = max(0, -begin), -end if end <= -stride else 0
            if extent <= cut_front + cut_back:
                raise Refused(f"nothing of x is read in dimension {d}")
            shape = tuple(n - cut_front - cut_back if e == 2 + d else n for e, n in enumerate(x.shape))
            x = replace(x, shape=shape, offset=x.offset + cut_front * x.strides[2 + d])
            begins[d], end = max(begin, 0), end + cut_back
        ends.append(end)
    return replace(kernel, x=x), (tuple(begins), tuple(ends))
