"""How long kernels of a CUDA card take, as laws whose parameters are data of its profile: what was not recorded is priced by them.

Each law says what bounds the kernel that the library has for such a shape. Parameters are seconds, operations or bytes per second, unless said
otherwise; `fit` in `benchmarks/card/fit.py` finds them from recorded times, one set for each arithmetic. Weights are taken to be cold, as they
are in a program, and all else to lie in the level-2 cache.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil, inf, prod
from typing import Any

from einnet.instantiate.kernels import Conv, View
from einnet.records import Count, NotNegative, Positive
from einnet.runtime.cuda.program import Gemm, Matrix

TILES = ((32, 32), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128))
"""Rows and columns of the result that one block of a library's product computes."""

SPLITS = (1, 2, 4, 8, 16)
"""Into how many parts a library's product divides the sum."""

LEAST_PART = 64
"""Terms of a part at least."""

THIN = 16
"""Rows or columns up to which products are thin: the libraries have kernels without tiles for those."""

UNIT = 32 * 32
"""Elements of the tile that `step` is about."""

PADDED, DEEP = 64, 4
"""Filters that cuDNN's kernels compute at a time, and channels that they walk at a time."""

ITEM = 4

SHORTER = 2.0
"""How many times as fast tensor cores are with factors of 16 bits as in TF32, by data sheets."""


@dataclass(frozen=True, slots=True)
class ProductLaw:
    """One call of cuBLASLt. A block walks the sum: `step` for a term of a 32x32 tile, larger ones by the power `growth` of their elements.

    `batched` multiplies `step` where several products are computed at once, whose sums are never divided; a divided sum costs `split` and moves
    its parts at `partial`. All blocks together reach `rate`. Operands come at `bandwidth`. A thin product takes `thin` for a term and `row` for
    each row of it, for `wide` columns at once. What each of several products reads and writes passes the level-2 cache, as fast as generated
    kernels have it from there.
    """

    begin: NotNegative
    step: NotNegative
    growth: NotNegative
    batched: NotNegative
    rate: Positive
    split: NotNegative
    partial: Positive
    bandwidth: Positive
    thin: NotNegative
    row: NotNegative
    wide: NotNegative


@dataclass(frozen=True, slots=True)
class ConvolutionLaw:
    """cuDNN's forward convolution: `step` for a term of the sum while no multiprocessor has more than `together` blocks, all at `rate`.

    Tensors that are not stored as its kernels want them (`channels_last`) are moved, each in a kernel that takes `move` and its bytes twice at
    `moving`. A term waits `cold` for filters that are not in a cache. Without a plane to walk (one spatial dimension) `line` is added, and for
    channels or filters that are no multiple of 4, `odd` and `odd_step` for a term. Channels in groups take `grouped` more: they are put apart and
    together by kernels of their own, or walked by ones that no plane fills.
    """

    begin: NotNegative
    step: NotNegative
    together: NotNegative
    rate: Positive
    channels_last: bool
    move: NotNegative
    moving: Positive
    cold: NotNegative
    line: NotNegative
    odd: NotNegative
    odd_step: NotNegative
    grouped: NotNegative = 0.0


@dataclass(frozen=True, slots=True)
class TransposedLaw:
    """cuDNN's gradient of data, which is what a transposed convolution is: `step` for each input channel, all at `rate`; the rest as forward."""

    begin: NotNegative
    step: NotNegative
    rate: Positive
    move: NotNegative
    moving: Positive
    cold: NotNegative
    line: NotNegative


@dataclass(frozen=True, slots=True)
class GeneratedLaw:
    """A generated kernel: `begin` for each launch, then what moves at `bandwidth`, at `cached` where `cache` bytes hold it all.

    Sums take `work` times as long as the model of their tiles says, and each further term of short sums in sums, which are written out, `term`.
    Elements without tiles take `touch` for each number that they read, and are read meanwhile.
    """

    begin: NotNegative
    bandwidth: Positive
    cached: Positive
    cache: NotNegative
    work: NotNegative
    term: NotNegative
    touch: NotNegative = 0.0


@dataclass(frozen=True, slots=True)
class Laws:
    """The laws of one card in one arithmetic, with its number of multiprocessors."""

    processors: Count
    products: ProductLaw
    convolutions: ConvolutionLaw
    transposed: TransposedLaw
    generated: GeneratedLaw


PARTS = {"products": ProductLaw, "convolutions": ConvolutionLaw, "transposed": TransposedLaw, "generated": GeneratedLaw}

RATES = ("rate", "partial", "bandwidth", "moving", "cached")
"""Parameters that are amounts per second; `rate` of operations, the others of bytes."""


def product(step: Gemm, laws: Laws) -> float:
    """Seconds of one call for the product with all batches; those that no common stride connects take no longer, by what is known of them."""
    law, processors, batches = laws.products, laws.processors, step.count
    item = step.factors.nbytes if step.factors.short else ITEM
    a, b, c = distinct(step)
    moving = (item * (a + b) + ITEM * c) / law.bandwidth
    computing = min(_tiled(step, batches, rows, columns, law, processors) for rows, columns in TILES)
    if min(step.m, step.n) <= THIN:
        waves = max(1.0, max(step.m, step.n) * batches / law.wide)
        computing = min(computing, step.k * (law.thin + law.row * min(step.m, step.n)) * waves)
    if batches > 1:
        passing = batches * (item * (step.m * step.k + step.k * step.n) + ITEM * step.m * step.n)
        computing = max(computing, passing / laws.generated.cached)
    return law.begin + computing + moving


def shortened(laws: Laws) -> Laws:
    """The laws of products whose factors lie in 16 bits, by those in TF32: an estimate, for none was timed.

    Data sheets give tensor cores twice the rate, and they multiply twice as many terms at once.
    """
    law = laws.products
    return replace(laws, products=replace(law, rate=SHORTER * law.rate, step=law.step / SHORTER))


def distinct(step: Gemm) -> tuple[int, int, int]:
    """Elements of a, b and c, each counted once however many products of the batch have it."""

    def elements(m: Matrix, name: str, rows: int, columns: int) -> int:
        batches: list[tuple[int, int]] = [(b.count, getattr(b, name)) for b in step.batches if getattr(b, name)]
        reach = 1 + (rows - 1) * m.row + (columns - 1) * m.column + sum((count - 1) * stride for count, stride in batches)
        return min(rows * columns * prod(count for count, _ in batches), reach)

    return elements(step.a, "a", step.m, step.k), elements(step.b, "b", step.k, step.n), elements(step.c, "c", step.m, step.n)


def _tiled(step: Gemm, batches: int, rows: int, columns: int, law: ProductLaw, processors: int) -> float:
    """Seconds of the computation with tiles of one size, the sum divided as is fastest."""
    tiles = ceil(step.m / rows) * ceil(step.n / columns) * batches
    each = law.step * (law.batched if batches > 1 else 1.0) * (rows * columns / UNIT) ** law.growth
    best = inf
    for parts in SPLITS:
        if parts > 1 and (batches > 1 or step.k < LEAST_PART * parts):
            break
        terms = ceil(step.k / parts)
        busy = ceil(tiles * parts / processors) * 2 * rows * columns * terms * processors / law.rate
        added = law.split + parts * step.m * step.n * ITEM / law.partial if parts > 1 else 0.0
        best = min(best, max(each * terms, busy) + added)
    return best


def convolution(kernel: Conv, laws: Laws) -> float:
    """Seconds of a convolution with what cuDNN moves around it."""
    groups, filters, channels, *taps = kernel.w.shape
    if kernel.transposed:
        back = laws.transposed
        return back.begin + (back.step + back.cold) * channels + _operations(kernel) / back.rate + _moved(kernel, back, False)
    law = laws.convolutions
    positions = prod(kernel.y.shape) // kernel.y.shape[1]
    terms = channels * prod(taps)
    blocks = ceil(positions / 32) * ceil(filters / 32) * groups
    waves = max(1.0, blocks / (laws.processors * law.together))
    work = 2.0 * positions * groups * prod(taps) * ceil(channels / DEEP) * DEEP * ceil(filters / PADDED) * PADDED
    odd = law.odd + law.odd_step * terms * min(1.0, 32 / filters) if filters % 4 or channels % 4 else 0.0
    added = odd + (law.grouped if groups > 1 else 0.0)
    return law.begin + (law.step * waves + law.cold) * terms + work / law.rate + added + _moved(kernel, law, law.channels_last)


def _operations(kernel: Conv) -> float:
    """Multiply-adds of a transposed convolution, counted twice, with those of filters that are not there."""
    return 2.0 * prod(kernel.w.shape[3:]) * prod(kernel.x.shape) * ceil(kernel.w.shape[1] / PADDED) * PADDED


def _moved(kernel: Conv, law: ConvolutionLaw | TransposedLaw, channels_last: bool) -> float:
    """Seconds of the kernels that store tensors as the library's kernel wants them, and of joining one spatial dimension to a plane."""
    tensors = [kernel.x, kernel.y, *(p.operand for p in kernel.post if p.operand and p.operand.shape == kernel.y.shape)]
    wrong = [v for v in tensors if not _stored(v, 1, channels_last)]
    if channels_last and not _stored(kernel.w, 2, True):
        wrong.append(kernel.w)
    seconds = sum(law.move + 2 * ITEM * prod(v.shape) / law.moving for v in wrong)
    return seconds + (law.line if len(kernel.x.shape) == 3 else 0.0)


def _stored(view: View, channel: int, last: bool) -> bool:
    """The dimensions lie row-major, the channel's as it stands or innermost; extents of 1 do not count."""
    order = [d for d in range(len(view.shape)) if d != channel] + [channel] if last else list(range(len(view.shape)))
    reach = 1
    for d in reversed(order):
        if view.shape[d] > 1:
            if view.strides[d] != reach:
                return False
            reach *= view.shape[d]
    return True


def wants_channels_last(laws: Laws) -> bool:
    """Convolutions are faster where data has its channels in the last dimension: so on tensor cores, and not in strict float32."""
    return laws.convolutions.channels_last


def traffic(nbytes: float, law: GeneratedLaw) -> float:
    """Seconds in which a generated kernel moves so many bytes."""
    return nbytes / (law.cached if nbytes <= law.cache else law.bandwidth)


def scaled(laws: Laws, operations: float, nbytes: float, begin: float) -> Laws:
    """The laws of a card that computes and moves so many times as fast and takes so many times as long to begin a kernel: an estimate."""

    def part(law: Any) -> Any:
        change = {}
        for f in fields(law):
            value = getattr(law, f.name)
            if f.name in RATES:
                change[f.name] = value * (operations if f.name == "rate" else nbytes)
            elif f.name in ("begin", "move", "line", "split", "odd", "grouped"):
                change[f.name] = value * begin
            elif f.name in ("step", "odd_step", "cold", "thin", "row", "term", "touch"):
                change[f.name] = value / operations
        return replace(law, **change)

    return replace(laws, **{name: part(getattr(laws, name)) for name in PARTS})
