"""Vector statements and shuffles in TVM's terms: masks, masked memory access, transposition, interleaving, horizontal reduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.tirx import Buffer, Expr, Stmt

from einnet.instantiate.codegen.mathfunctions import BINARY, lanes


def broadcast(x: Expr, width: int) -> Expr:
    """A scalar in every lane; vectors stay."""
    return tirx.Broadcast(x, width) if width > 1 and lanes(x) == 1 else x


def conjunction(conds: Sequence[Expr]) -> Expr:
    """All of them, with scalars broadcast where one is a vector."""
    width = max(lanes(c) for c in conds)
    result = broadcast(conds[0], width)
    for c in conds[1:]:
        result = tirx.And(result, broadcast(c, width))
    return result


def contiguous(buffer: Buffer, base: Expr, width: int) -> Expr:
    """buffer[base : base + width]."""
    return tirx.BufferLoad(buffer, [tirx.Ramp(base, 1, width) if width > 1 else base])


def masked_load(buffer: Buffer, base: Expr, mask: Expr, fill: Expr, widest: int) -> Expr:
    """Lanes of buffer[base : base + width] where the mask holds, else fill; other lanes touch no memory.

    No more than `widest` lanes, which the processor loads under one mask, are loaded at once: LLVM 22 divides wider ones itself, and where half of a
    mask is known to be false and several loads share it, all but the first of them read that half without a mask, and give what lies there.
    """
    width = min(lanes(fill), widest)
    pieces = []
    for k in range(0, lanes(fill), width):
        where, rest = _element(buffer, base, k), _lanes_from(fill, k, width)
        pieces.append(tirx.call_llvm_intrin(f"float32x{width}", "llvm.masked.load", where, _lanes_from(mask, k, width), rest))
    return pieces[0] if len(pieces) == 1 else tirx.Shuffle(pieces, [*range(lanes(fill))])


def masked_store(buffer: Buffer, base: Expr, mask: Expr, value: Expr, widest: int) -> list[Stmt]:
    """Store the lanes where the mask holds, no more than `widest` at once, as they are loaded."""
    written, width = as_element(buffer, value), min(lanes(mask), widest)
    return [
        tirx.Evaluate(
            tirx.call_llvm_intrin("void", "llvm.masked.store", _lanes_from(written, k, width), _element(buffer, base, k), _lanes_from(mask, k, width))
        )
        for k in range(0, lanes(mask), width)
    ]


def _element(buffer: Buffer, base: Expr, k: int) -> Expr:
    """The address of element base + k."""
    return tirx.address_of(tirx.BufferLoad(buffer, [base + k]))


def _lanes_from(x: Expr, first: int, width: int) -> Expr:
    """That many lanes of a vector."""
    return x if lanes(x) == width else tirx.Shuffle([x], [*range(first, first + width)])


def stored(buffer: Buffer, value: Expr, place: Expr) -> Stmt:
    """Store a value, or one in each lane."""
    return tirx.BufferStore(buffer, as_element(buffer, value), [place])


def as_element(buffer: Buffer, value: Expr) -> Expr:
    """The value as an element of the buffer: of integers, those that the type has."""
    if buffer.dtype == "float32":
        return value
    width = lanes(value)
    return value.astype(f"int32x{width}" if width > 1 else "int32").astype(f"{buffer.dtype}x{width}" if width > 1 else buffer.dtype)


def strided(pieces: Sequence[Expr], stride: int) -> Expr:
    """Every stride-th element, from pieces of `width` elements that start at 0, width, ..., the last one ending at the last element wanted."""
    width = lanes(pieces[0])
    last = (stride - 1) * (width - 1)
    places = [j * stride for j in range(width)]
    return tirx.Shuffle(list(pieces), [(stride - 1) * width + p - last if p >= last else p for p in places])


def piece_offsets(stride: int, width: int) -> list[int]:
    """Where the pieces for `strided` start."""
    return [k * width for k in range(stride - 1)] + [(stride - 1) * (width - 1)]


def interleaved(vectors: Sequence[Expr]) -> list[Expr]:
    """v0[0], v1[0], ..., v0[1], v1[1], ... as vectors of the same width."""
    count, width = len(vectors), lanes(vectors[0])
    order = [(m % count) * width + m // count for m in range(count * width)]
    return [tirx.Shuffle(list(vectors), order[k * width : (k + 1) * width]) for k in range(count)]


def reverse(x: Expr) -> Expr:
    return tirx.Shuffle([x], list(range(lanes(x)))[::-1])


def transpose(rows: Sequence[Expr], bind: Callable[[Expr], Expr]) -> list[Expr]:
    """The columns of a square block, by log2(width) rounds of exchanges between rows at distance d."""
    width = len(rows)
    block = list(rows)
    d = width // 2
    while d:
        upper = [width + j - d if j & d else j for j in range(width)]
        lower = [width + j if j & d else j + d for j in range(width)]
        for i in range(width):
            if not i & d:
                pair = [block[i], block[i + d]]
                block[i], block[i + d] = bind(tirx.Shuffle(pair, upper)), bind(tirx.Shuffle(pair, lower))
        d //= 2
    return block


def horizontals(vectors: Sequence[Expr], op: str, bind: Callable[[Expr], Expr]) -> list[Expr]:
    """All lanes of each vector combined into a scalar: the halves of several vectors are combined as one vector."""
    found: list[Expr] = []
    while len(found) < len(vectors):
        rest = len(vectors) - len(found)
        count = min(1 << (rest.bit_length() - 1), lanes(vectors[0]))
        group = _combined(vectors[len(found) : len(found) + count], op, bind)
        found += [bind(_lanes_from(group, n, 1)) for n in range(count)]
    return found


def _combined(vectors: Sequence[Expr], op: str, bind: Callable[[Expr], Expr]) -> Expr:
    """One vector with what each of these gives, halves first: of two vectors while there are several, else of the parts of one."""
    part = lanes(vectors[0])
    while part > 1:
        pairs = [*zip(vectors[::2], vectors[1::2])] if len(vectors) > 1 else [(vectors[0],)]
        starts = range(0, lanes(vectors[0]) * len(pairs[0]), part)
        part //= 2
        low = [s + n for s in starts for n in range(part)]
        vectors = [bind(BINARY[op](tirx.Shuffle(list(p), low), tirx.Shuffle(list(p), [n + part for n in low]), bind)) for p in pairs]
    return vectors[0]
