"""The golden derivations that the search finds, each for three shapes; `python -m tests.search.goldens` prints the table.

What is looked for is a structure: a vendor kernel with certain extents, and the generated part that reads it; never a name of an iterator.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

from einnet.derivation.einfile import write
from einnet.expr.index import Floor
from einnet.expr.nodes import Scope, index_functions, reads, walk
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import Conv, Matmul
from einnet.search.forms import Form
from einnet.search.space import Options, Space

Sizes = dict[str, int]
LIMIT = 500
"""Most states a golden may take, the search's settings being those of `optimize`."""

ROOM = 20
"""States by which a search may pass the number that it is given: it ends between two expansions."""


@dataclass(frozen=True)
class Golden:
    """`text` is a template over `sizes`; `wanted` says whether a form is the golden's right-hand side. `before`: states of the original engine."""

    name: str
    title: str
    text: str
    sizes: tuple[Sizes, ...]
    depth: int
    wanted: Callable[[Form, Sizes], bool]
    before: str = ""
    slow: bool = False
    """Its searches take seconds: by default, tests do that of the first shape only."""

    def source(self, sizes: Sizes) -> Scope:
        return parse(self.text.format(**sizes))


@dataclass(frozen=True)
class Result:
    """What one search gave; `states` are all that were visited when the golden was among the forms, at the least such depth."""

    form: Form | None
    depth: int
    states: int
    seconds: float


def search(golden: Golden, sizes: Sizes) -> Result:
    """Search as `optimize` does, one layer after the other, until the golden is found."""
    start = time.perf_counter()
    space, source = Space(Options(states=LIMIT - ROOM)), golden.source(sizes)
    form: Form | None = None
    depth = 0
    for depth in range(golden.depth + 1):
        form = next((f for f in space.forms(source, depth) if golden.wanted(f, sizes)), None)
        if form is not None or space.statistics.stopped:
            break
    return Result(form, depth, space.statistics.states, time.perf_counter() - start)


# ---------------------------------------------------------------------------------------------------------------- structure


def matmuls(form: Form) -> list[tuple[int, int, int, int]]:
    """(batch, m, n, k) of the Matmuls."""
    kernels = [m.kernel for _, m in form.matches if isinstance(m.kernel, Matmul)]
    return [(prod(k.c.shape[:-2]), k.c.shape[-2], k.c.shape[-1], k.a.shape[-1]) for k in kernels]


def convolutions(form: Form) -> list[Conv]:
    return [m.kernel for _, m in form.matches if isinstance(m.kernel, Conv)]


def has_matmul(form: Form, batch: int, rows: int, columns: int, k: int) -> bool:
    """One vendor kernel only, of these extents up to a swap of the operands."""
    found = matmuls(form)
    return len(form.matches) == 1 and found in ([(batch, rows, columns, k)], [(batch, columns, rows, k)])


def reduces(form: Form, *extents: int) -> bool:
    """What is generated around the vendor kernel adds up its result over sums of these extents, without a floor or remainder."""
    vendor = {s for s, _ in form.matches}
    outside = [s for s in walk(form.tree) if s not in vendor and not any(s in walk(v) for v in vendor)]
    sums = sorted(i.extent for s in outside for i in s.sums)
    divided = any(isinstance(a, Floor) for s in outside for e in index_functions(s.body) for a, _ in e.terms)
    return sums == sorted(extents) and not divided


def direct(form: Form) -> bool:
    """The vendor kernel is the whole expression, operands copied first."""
    return [s for s, _ in form.matches] == [form.tree]


def copies(form: Form) -> int:
    """Operands of the matched scope that are copies."""
    return sum(isinstance(r.base, Scope) for s, _ in form.matches for r in reads(s.body))


# ------------------------------------------------------------------------------------------------------------------ goldens

CONV = "A : f32[{h},{w},{c}]\nK : weight f32[{r},{r},{c},{f}]\nL[h<{h},w<{w},f<{f}] Σ[c<{c},r<{r},s<{r}] A[h+r-{p},w+s-{p},c]*K[r,s,c,f]"
COLUMN = "A : f32[{h},{w},{c}]\nK : weight f32[{r},{c},{f}]\nL[h<{h},w<{w},f<{f}] Σ[c<{c},r<{r}] A[h+r-{p},w,c]*K[r,c,f]"
ROW = "A : f32[{c},{h},{w}]\nK : weight f32[{f},{c},{r}]\nL[f<{f},h<{h},w<{w}] Σ[c<{c},s<{r}] A[c,h,w+s-{p}]*K[f,c,s]"
TRANSPOSED = (
    "A : f32[{h},{w},{c}]\nK : weight f32[4,4,{c},{f}]\n"
    "L[h<{hh},w<{ww},f<{f}] Σ[c<{c},r<4,s<4] A[(h-r+1)/2,(w-s+1)/2,c]*K[r,s,c,f]"
)  # fmt: skip
DILATED = (
    "A : f32[{h},{w},{c}]\nK : weight f32[3,3,{c},{f}]\n"
    "L[h<{h},w<{w},f<{f}] Σ[c<{c},r<3,s<3] A[h+{d}*r-{d},w+{d}*s-{d},c]*K[r,s,c,f]"
)  # fmt: skip
STRIDED = (
    "A : f32[{h},{w},{c}]\nK : weight f32[{r},{r},{c},{f}]\n"
    "L[h<{hh},w<{ww},f<{f}] Σ[c<{c},r<{r},s<{r}] A[{d}*h+r-{p},{d}*w+s-{p},c]*K[r,s,c,f]"
)  # fmt: skip
POINT = "A : f32[{h},{w},{c}]\nK : weight f32[{c},{f}]\nL[h<{h},w<{w},f<{f}] Σ[c<{c}] A[h,w,c]*K[c,f]"
GROUPED = "A : f32[{h},{w},{g},{c}]\nK : weight f32[{g},{c},{f}]\nL[h<{h},w<{w},g<{g},f<{f}] Σ[c<{c}] A[h,w,g,c]*K[g,c,f]"
BATCHED = "A : f32[{b},{m},{k}]\nB : f32[{b},{k},{n}]\nL[b<{b},m<{m},n<{n}] Σ[k<{k}] A[b,m,k]*B[b,k,n]"
PRODUCT = "A : f32[{a},{b}]\nB : f32[{b},{c}]\nC : f32[{c},{d}]\nL[m<{a},n<{d}] Σ[k<{b},l<{c}] A[m,k]*B[k,l]*C[l,n]"
NESTED = "A : f32[{a},{b}]\nB : f32[{b},{c}]\nC : f32[{c},{d}]\nL[m<{a},n<{d}] Σ[l<{c}] {{L[m<{a},l<{c}] Σ[k<{b}] A[m,k]*B[k,l]}}[m,l]*C[l,n]"
BAND = (
    "Q : f32[{b},{m},{k}]\nK : f32[{b},{m},{k}]\n"
    "L[b<{b},m<{m},w<{w}] Σ[k<{k}] Q[b,m,k]*K[b,m+{d}*w-{c},k]"
)  # fmt: skip
BAND_SUM = (
    "P : f32[{b},{m},{w}]\nV : f32[{b},{m},{k}]\n"
    "L[b<{b},m<{m},k<{k}] Σ[w<{w}] P[b,m,w]*V[b,m+{d}*w-{c},k]"
)  # fmt: skip

BLOCK = (
    "X : f32[{h},{w},{d}]\nA1 : weight f32[{r},{d},{c}]\nA2 : weight f32[{r},{c},{f}]\nB1 : weight f32[{r},{d},{c}]\nB2 : weight f32[{r},{c},{f}]\n"
    "L[h<{h},w<{w},f<{f}] "
    "{{L[h<{h},w<{w},f<{f}] Σ[c<{c},s<{r}] {{L[h<{h},w<{w},c<{c}] Σ[d<{d},r<{r}] X[h+r-{p},w,d]*A1[r,d,c]}}[h,w+s-{p},c]*A2[s,c,f]}}[h,w,f] + "
    "{{L[h<{h},w<{w},f<{f}] Σ[c<{c},r<{r}] {{L[h<{h},w<{w},c<{c}] Σ[d<{d},s<{r}] X[h,w+s-{p},d]*B1[s,d,c]}}[h+r-{p},w,c]*B2[r,c,f]}}[h,w,f]"
)
TWO_KERNELS = (
    "A : f32[{h},{w},{c}]\nK : weight f32[3,3,{c},{f}]\nP : weight f32[{c},{g}]\nL[h<{h},w<{w},f<{fg}] "
    "{{L[h<{h},w<{w},f<{f}] Σ[c<{c},r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]}}[h,w,f] + {{L[h<{h},w<{w},f<{g}] Σ[c<{c}] A[h,w,c]*P[c,f]}}[h,w,f-{f}]"
)
OF_CONCAT = "A : f32[{a},{b}]\nB : f32[{b},{c}]\nC : f32[{b},{d}]\nL[m<{a},n<{cd}] Σ[k<{b}] A[m,k]*{{L[k<{b},n<{cd}] B[k,n] + C[k,n-{c}]}}[k,n]"
OF_ROWS = "A : f32[{c},{b}]\nB : f32[{d},{b}]\nC : f32[{b},{a}]\nL[m<{cd},n<{a}] Σ[k<{b}] {{L[m<{cd},k<{b}] A[m,k] + B[m-{c},k]}}[m,k]*C[k,n]"
OF_SUMMED = "A : f32[{a},{c}]\nB : f32[{a},{d}]\nC : f32[{cd},{b}]\nL[m<{a},n<{b}] Σ[k<{cd}] {{L[m<{a},k<{cd}] A[m,k] + B[m,k-{c}]}}[m,k]*C[k,n]"
TO_CONCAT = (
    "A : f32[{a},{b}]\nB : f32[{b},{c}]\nC : f32[{b},{d}]\nL[m<{a},n<{cd}] "
    "{{L[m<{a},n<{c}] Σ[k<{b}] A[m,k]*B[k,n]}}[m,n] + {{L[m<{a},n<{d}] Σ[k<{b}] A[m,k]*C[k,n]}}[m,n-{c}]"
)
ADDED = (
    "A : f32[{a},{c}]\nB : f32[{c},{b}]\nC : f32[{a},{d}]\nD : f32[{d},{b}]\nL[m<{a},n<{b}] "
    "{{L[m<{a},n<{b}] Σ[k<{c}] A[m,k]*B[k,n]}}[m,n] + {{L[m<{a},n<{b}] Σ[k<{d}] C[m,k]*D[k,n]}}[m,n]"
)
MASKED = (
    "Q : f32[{m},{k}]\nK : f32[{m},{k}]\nV : f32[{m},{k}]\n"
    "L[m<{m},c<{k}] Σ[n<{m}] {{L[m<{m},n<{m}] exp({{L[m<{m},n<{m}] Σ[k<{k}] Q[m,k]*K[n,k]}}[m,n]"
    " + select(n-m+{c}>=0 & m-n+{c}>=0 & (n-m)%{d}==0, 0, -inf))}}[m,n]*V[n,c]"
)

PLANES: tuple[Sizes, ...] = (
    {"h": 57, "w": 43, "c": 5, "f": 8, "r": 3, "p": 1},
    {"h": 7, "w": 7, "c": 512, "f": 512, "r": 3, "p": 1},
    {"h": 20, "w": 11, "c": 24, "f": 7, "r": 5, "p": 2},
)
SMALL_TAPS: tuple[Sizes, ...] = tuple({**s, "r": 3, "p": 1} for s in PLANES)
UPSAMPLED: tuple[Sizes, ...] = tuple(
    {"h": h, "w": w, "hh": 2 * h, "ww": 2 * w, "c": c, "f": f} for h, w, c, f in ((57, 43, 5, 8), (2, 2, 448, 256), (9, 4, 16, 3))
)
FIVES: tuple[Sizes, ...] = tuple({**s, "r": 5, "p": 2} for s in PLANES)
RESIDUES: tuple[Sizes, ...] = tuple({**s, "d": d} for s, d in zip(PLANES, (2, 2, 3), strict=True))
LARGE_RESIDUES: tuple[Sizes, ...] = (RESIDUES[0], {**RESIDUES[1], "h": 14, "w": 14}, {**RESIDUES[2], "h": 24})
HALVED: tuple[Sizes, ...] = tuple(
    {**s, "d": d, "r": r, "p": p, "hh": (s["h"] + 2 * p - r) // d + 1, "ww": (s["w"] + 2 * p - r) // d + 1}
    for s, d, r, p in zip(PLANES, (2, 2, 3), (3, 3, 5), (1, 1, 2), strict=True)
)
GROUPS: tuple[Sizes, ...] = tuple({**s, "g": g} for s, g in zip(PLANES, (3, 32, 7), strict=True))
BANDS: tuple[Sizes, ...] = tuple(
    {"b": b, "m": m, "k": k, "w": w, "d": d, "c": d * (w // 2)}
    for b, m, k, w, d in ((5, 57, 43, 9, 2), (8, 4096, 64, 513, 4), (8, 10000, 64, 2001, 4))
)
MASKS: tuple[Sizes, ...] = tuple(
    {"b": 1, "m": m, "k": k, "w": w, "d": d, "c": d * (w // 2)} for m, k, w, d in ((57, 43, 5, 3), (4096, 64, 513, 4), (1000, 32, 129, 2))
)
BATCHES: tuple[Sizes, ...] = (
    {"b": 5, "m": 57, "n": 43, "k": 67}, {"b": 1, "m": 512, "n": 512, "k": 512}, {"b": 3, "m": 100, "n": 256, "k": 81},
)  # fmt: skip
CHAINS: tuple[Sizes, ...] = (
    {"a": 57, "b": 43, "c": 5, "d": 31}, {"a": 128, "b": 64, "c": 256, "d": 32}, {"a": 7, "b": 101, "c": 13, "d": 3},
)  # fmt: skip
BLOCKS: tuple[Sizes, ...] = (
    {"h": 57, "w": 43, "d": 6, "c": 5, "f": 8, "r": 3, "p": 1}, {"h": 14, "w": 14, "d": 64, "c": 85, "f": 128, "r": 5, "p": 2},
    {"h": 9, "w": 20, "d": 16, "c": 7, "f": 24, "r": 7, "p": 3},
)  # fmt: skip
PAIRS: tuple[Sizes, ...] = tuple({**s, "g": g, "fg": s["f"] + g} for s, g in zip(SMALL_TAPS, (3, 128, 11), strict=True))
CONCATENATIONS: tuple[Sizes, ...] = tuple({**s, "cd": s["c"] + s["d"]} for s in CHAINS)


def winograd(m: int) -> Callable[[Form, Sizes], bool]:
    """A batched Matmul over the (m+2)² points, one row per tile."""

    def wanted(form: Form, z: Sizes) -> bool:
        tiles = ceil(z["h"] / m) * ceil(z["w"] / m)
        return has_matmul(form, (m + 2) ** 2, tiles, z["f"], z["c"])

    return wanted


def phases(form: Form, z: Sizes) -> bool:
    """One stride-1 convolution of 2x2 taps whose output channels are the four phases."""
    return any(
        not k.transposed and k.w.shape[3:] == (2, 2) and k.strides == (1, 1) and k.w.shape[1:3] == (4 * z["f"], z["c"]) for k in convolutions(form)
    )


def phases_winograd(m: int) -> Callable[[Form, Sizes], bool]:
    """A batched Matmul over the (m+1)² points of windows of two taps, the four phases in its columns."""

    def wanted(form: Form, z: Sizes) -> bool:
        return has_matmul(form, (m + 1) ** 2, ceil((z["h"] + 1) / m) * ceil((z["w"] + 1) / m), 4 * z["f"], z["c"])

    return wanted


def dense(form: Form, batch: int, filters: int, channels: int, taps: int) -> bool:
    """One convolution without stride or dilation, of these extents."""
    kernels = convolutions(form)
    if len(form.matches) != 1 or len(kernels) != 1:
        return False
    (k,) = kernels
    shape = (k.x.shape[0], k.w.shape[1], k.w.shape[2], k.w.shape[3:])
    return not k.transposed and shape == (batch, filters, channels, (taps, taps)) and {*k.strides, *k.dilations} == {1}


def residues_winograd(form: Form, z: Sizes) -> bool:
    """A batched Matmul over the 36 points of F(4x4,3x3), one row per tile of each of the d² classes."""
    tiles = [z["d"] * ceil(ceil(z[x] / z["d"]) / 4) for x in ("h", "w")]
    return has_matmul(form, 36, tiles[0] * tiles[1], z["f"], z["c"])


def both(form: Form, z: Sizes, first: tuple[str, str, str]) -> bool:
    """Two Matmuls, the first of which has these extents."""
    m, n, k = (z[x] for x in first)
    return len(form.matches) == 2 and len(matmuls(form)) == 2 and any(x in matmuls(form) for x in ((1, m, n, k), (1, n, m, k)))


def blocks(z: Sizes, rows: str) -> Callable[[tuple[int, int, int, int]], bool]:
    """A batch over blocks of T rows of each residue class, every block a dense product with its window of T + w - 1 keys."""

    def fits(found: tuple[int, int, int, int]) -> bool:
        batch, m, n, k = found
        size, window = m, (n, k) if rows == "scores" else (k, n)
        classes = ceil(z["m"] / z["d"])
        return 1 < size <= z["w"] and batch == z["b"] * z["d"] * ceil(classes / size) and window == (size + z["w"] - 1, z["k"])

    return fits


def block_band(rows: str) -> Callable[[Form, Sizes], bool]:
    """One batched Matmul over blocks, whose windows overlap where the operand is read."""

    def wanted(form: Form, z: Sizes) -> bool:
        fits = blocks(z, rows)
        return len(form.matches) == 1 and any(fits(f) or fits((f[0], f[2], f[1], f[3])) for f in matmuls(form))

    return wanted


def exactly(form: Form, *extents: tuple[int, int, int, int]) -> bool:
    """These vendor kernels and no others: Matmuls of these extents, each up to a swap of its operands."""
    found = sorted((b, *sorted((m, n)), k) for b, m, n, k in matmuls(form))
    return len(form.matches) == len(extents) and found == sorted((b, *sorted((m, n)), k) for b, m, n, k in extents)


def block(form: Form, z: Sizes) -> bool:
    """The first convolutions of both branches are one Matmul, the second ones are one batched Matmul."""
    m = z["h"] * z["w"]
    return exactly(form, (1, m, 2 * z["r"] * z["c"], z["d"]), (2, m, z["r"] * z["f"], z["c"]))


def both_banded(form: Form, z: Sizes) -> bool:
    """The scores and the product with the values, each block by block."""
    found = matmuls(form)
    turned = [(b, n, m, k) for b, m, n, k in found]
    return len(found) == 2 and all(any(map(blocks(z, rows), (*found, *turned))) for rows in ("scores", "values"))


GOLDENS: tuple[Golden, ...] = (
    Golden("G1", "Conv to Matmul + OffsetReduce", CONV, PLANES, 2,
           lambda f, z: has_matmul(f, 1, z["h"] * z["w"], z["r"] ** 2 * z["f"], z["c"]) and reduces(f, z["r"], z["r"]), "158k / 7.1M"),
    Golden("G2", "Conv to im2col + Matmul", CONV, PLANES, 1,
           lambda f, z: has_matmul(f, 1, z["h"] * z["w"], z["f"], z["r"] ** 2 * z["c"]) and direct(f) and copies(f) >= 1),
    Golden("G3", "ConvTranspose to Matmul + reduce", TRANSPOSED, UPSAMPLED, 2,
           lambda f, z: has_matmul(f, 1, z["h"] * z["w"], 16 * z["f"], z["c"]) and reduces(f, 4, 4), "901k / 64M"),
    Golden("G3 phases", "ConvTranspose to a stride-1 Conv, four phases in its channels", TRANSPOSED, UPSAMPLED, 3, phases, "901k / 64M"),
    Golden("G4", "Conv5x5 to Conv3x3 of 4 times the channels + OffsetReduce", CONV, FIVES, 0,
           lambda f, z: dense(f, 1, 4 * z["f"], z["c"], 3) and reduces(f, 2, 2), "2.2M / 77M"),
    Golden("G5", "dilated Conv to residue classes in the batch, plain Conv", DILATED, RESIDUES, 1,
           lambda f, z: dense(f, z["d"] ** 2, z["f"], z["c"], 3)),
    Golden("G5 F(4)", "dilated Conv to residue classes, each F(4x4,3x3)", DILATED, LARGE_RESIDUES, 2, residues_winograd),
    Golden("G6", "strided Conv to space-to-depth, stride-1 Conv", STRIDED, HALVED, 1,
           lambda f, z: dense(f, 1, z["f"], z["c"] * z["d"] ** 2, ceil(z["r"] / z["d"]))),
    Golden("G7", "Conv k×1 to Matmul + OffsetReduce", COLUMN, PLANES, 2,
           lambda f, z: has_matmul(f, 1, z["h"] * z["w"], z["r"] * z["f"], z["c"]) and reduces(f, z["r"])),
    Golden("G7 row", "Conv 1×k, channels first, to Matmul + OffsetReduce", ROW, PLANES, 2,
           lambda f, z: has_matmul(f, 1, z["h"] * z["w"], z["r"] * z["f"], z["c"]) and reduces(f, z["r"])),
    Golden("G9", "dilated band of scores to block-band batched Matmul", BAND, BANDS, 2, block_band("scores"), "18k / 1.3M"),
    Golden("G9 sum", "dilated band times values to block-band batched Matmul", BAND_SUM, BANDS, 2, block_band("values"), "18k / 1.3M"),
    Golden("G8", "GCN block: first pair one Matmul, second pair one batched Matmul", BLOCK, BLOCKS, 2, block),
    Golden("G9 masked", "dense scores with a dilated band mask to blocks, before and after the exponential", MASKED, MASKS, 6, both_banded),
    Golden("G10", "Conv 1x1 to Matmul", POINT, PLANES, 0, lambda f, z: has_matmul(f, 1, z["h"] * z["w"], z["f"], z["c"]) and not f.steps),
    Golden("G10 groups", "grouped Conv 1x1 to batched Matmul", GROUPED, GROUPS, 0,
           lambda f, z: has_matmul(f, z["g"], z["h"] * z["w"], z["f"], z["c"]) and copies(f) == 0),
    Golden("G11 F(2)", "Conv3x3 to F(2x2,3x3)", CONV, SMALL_TAPS, 1, winograd(2)),
    Golden("G11 F(4)", "Conv3x3 to F(4x4,3x3)", CONV, (SMALL_TAPS[0], {**SMALL_TAPS[1], "h": 14, "w": 15}, SMALL_TAPS[2]), 1, winograd(4)),
    Golden("G12", "ConvTranspose to four phases, each F(3x3,2x2)", TRANSPOSED, UPSAMPLED, 3, phases_winograd(3), "901k / 64M", slow=True),
    Golden("G11 Strassen", "Matmul to seven products of blocks", BATCHED, BATCHES, 1,
           lambda f, z: has_matmul(f, 7 * z["b"], -(-z["m"] // 2), -(-z["n"] // 2), -(-z["k"] // 2))),
    Golden("G13", "A·B·C as (A·B)·C", PRODUCT, CHAINS, 1, lambda f, z: both(f, z, ("a", "c", "b"))),
    Golden("G13 other", "A·B·C as A·(B·C)", PRODUCT, CHAINS, 1, lambda f, z: both(f, z, ("b", "d", "c"))),
    Golden("G13 nested", "(A·B)·C to A·(B·C)", NESTED, CHAINS, 2, lambda f, z: both(f, z, ("b", "d", "c"))),
    Golden("G14", "concat of Matmuls to Matmul of concat", TO_CONCAT, CONCATENATIONS, 2,
           lambda f, z: exactly(f, (1, z["a"], z["cd"], z["b"]))),
    Golden("G14 back", "Matmul of concat to concat of Matmuls", OF_CONCAT, CONCATENATIONS, 2,
           lambda f, z: exactly(f, (1, z["a"], z["c"], z["b"]), (1, z["a"], z["d"], z["b"]))),
    Golden("G14 rows", "Matmul of concatenated rows to concat of Matmuls", OF_ROWS, CONCATENATIONS, 2,
           lambda f, z: exactly(f, (1, z["c"], z["a"], z["b"]), (1, z["d"], z["a"], z["b"]))),
    Golden("G14 summed", "Matmul over a concatenated depth to a sum of Matmuls", OF_SUMMED, CONCATENATIONS, 2,
           lambda f, z: exactly(f, (1, z["a"], z["b"], z["c"]), (1, z["a"], z["b"], z["d"]))),
    Golden("G14 added", "sum of Matmuls to one Matmul over a concatenated depth", ADDED, CONCATENATIONS, 2,
           lambda f, z: exactly(f, (1, z["a"], z["b"], z["cd"]))),
    Golden("G15", "Conv3x3 and Conv1x1 of one input to one Matmul", TWO_KERNELS, PAIRS, 3,
           lambda f, z: exactly(f, (1, z["h"] * z["w"], 9 * z["f"] + z["g"], z["c"]))),
)  # fmt: skip


FILES = Path(__file__).parent.parent / "derivations"


def file_of(golden: Golden) -> Path:
    """Where the derivation for the golden's first shape is stored."""
    return FILES / f"{golden.name.lower().replace(' ', '_').replace('(', '').replace(')', '')}.ein"


def store(golden: Golden, form: Form) -> None:
    """Write the derivation, with what it is as a comment."""
    FILES.mkdir(exist_ok=True)
    file_of(golden).write_text(f"# {golden.name}: {golden.title}\n{write(form.derivation, form.operators())}", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Print the table; fail where a golden is not found. `--store` writes the derivations of the first shapes to tests/derivations."""
    missing = 0
    print(f"{'golden':<12} {'states':>22} {'depth':>6} {'seconds':>8}   {'original (with / without fingerprint)':<38} what")
    for golden in GOLDENS:
        results = [search(golden, sizes) for sizes in golden.sizes]
        missing += sum(r.form is None for r in results)
        if results[0].form and "--store" in arguments:
            store(golden, results[0].form)
        states = ", ".join(str(r.states) if r.form else "none" for r in results)
        seconds = max(r.seconds for r in results)
        print(f"{golden.name:<12} {states:>22} {max(r.depth for r in results):>6} {seconds:>8.2f}   {golden.before or '-':<38} {golden.title}")
    raise SystemExit(f"{missing} searches found nothing" if missing else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
