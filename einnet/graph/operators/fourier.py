"""DFT and STFT by their definition: a sum over a table of cosines and sines, which is a weight. Nothing here knows a fast algorithm."""

from __future__ import annotations

import numpy as np

from einnet.expr.index import ZERO, Index, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, indices, make_mul
from einnet.graph.operators.builders import loops_of
from einnet.graph.operators.op import Function, Inexpressible, Op, Result, Unsupported

MOST_ELEMENTS = 1 << 25
"""Of a table: larger ones are read more slowly than any fast algorithm runs."""


def waves(points: int, bins: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of 2π·n·k/length for n < points and k < bins, exact where they are 0."""
    turns = np.arange(points)[:, None] * np.arange(bins)[None, :] % length
    angles = 2 * np.pi * np.arange(length) / length
    cosine, sine = (np.where(np.abs(f) < 1e-15, 0.0, f) for f in (np.cos(angles), np.sin(angles)))
    return cosine[turns], sine[turns]


def table(points: int, bins: int, length: int, parts: int, inverse: bool) -> np.ndarray:
    """What part d of element n adds to part c of bin k, [n, d, k, c]; a real input has no second part."""
    if points * parts * bins * 2 > MOST_ELEMENTS:
        raise Inexpressible(f"a table of {points} by {bins} points")
    cosine, sine = waves(points, bins, length)
    sine = sine if inverse else -sine
    rows = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    return rows[:, :parts] / length if inverse else rows[:, :parts]


def real_table(bins: int, points: int, length: int) -> np.ndarray:
    """What bin k of the half spectrum of a real signal adds to its element n, [k, d, n, 1]; a bin stands for its mirror image, too."""
    if 2 * bins * points > MOST_ELEMENTS:
        raise Inexpressible(f"a table of {bins} by {points} points")
    cosine, sine = waves(bins, points, length)
    k = np.arange(bins)
    twice = np.where((k == 0) | (2 * k == length), 1.0, 2.0)[:, None]
    return np.stack([twice * cosine, -twice * sine], 1)[..., None] / length


def transformed(op: Op, out: tuple[Iter, ...], data: Body, weight: Tensor, summed: tuple[Iter, ...]) -> Scope:
    """Y[.., k, c] = Σ[n, d] data * T[n, d, k, c], where the bins are the loop `k` of the result."""
    (k,) = (i for i in out if i.name == "k")
    parts = var("d") if any(i.name == "d" for i in summed) else ZERO
    return Scope(out, summed, make_mul((data, Read(weight, (var("n"), parts, var(k.name), var(out[-1].name))))))


def sums(points: int, parts: int) -> tuple[Iter, ...]:
    """The iterators of a sum over the elements of a signal and the parts of each."""
    return (Iter("n", 0, points), *([Iter("d", 0, parts)] if parts > 1 else []))


def named(shape: tuple[int, ...], bins: int) -> tuple[Iter, ...]:
    """Loops of a result: `k` are the bins, `c` is the part."""
    batch = iter(f"b{p}" for p in range(len(shape)))
    names = ["c" if p == len(shape) - 1 else "k" if p == bins else next(batch) for p in range(len(shape))]
    return tuple(Iter(name, 0, n) for name, n in zip(names, shape))


def place(axis: int, rank: int) -> int:
    """The axis from the front; the last dimension holds the parts."""
    if not -rank <= axis < rank or axis % rank == rank - 1:
        raise Inexpressible(f"axis {axis} of {rank} dimensions, the last of which holds the parts")
    return axis % rank


def _length(op: Op, default: int) -> int:
    """The number of points of a transform."""
    known = op.integers_of(1, "dft_length")
    return known[0] if known else default


def dft(op: Op) -> Result:
    """Y[b, k, c] = Σ[n, d] X[b, n, d] T[n, d, k, c] along one axis; elements beyond the length are left out, missing ones are 0."""
    x = op.input(0).tensor
    rank, parts = len(x.shape), x.shape[-1]
    given = op.integers_of(2, "axis") if op.version >= 20 else (op.integer("axis", 1),)
    axis = place(given[0] if given else -2, rank)
    inverse, half = bool(op.integer("inverse", 0)), bool(op.integer("onesided", 0))
    real = inverse and half
    length = _length(op, 2 * (x.shape[axis] - 1) if real else x.shape[axis])
    if parts not in (1, 2) or length < 1 or half and (parts == 1) == inverse:
        return Unsupported(f"{parts} parts of {length} points{', one-sided' if half else ''}{', inverse' if inverse else ''}")
    one_side = length // 2 + 1
    points = min(x.shape[axis], one_side if real else length)
    bins = op.out.shape[axis]
    if (bins, op.out.shape[-1]) != (one_side if half and not inverse else length, 1 if real else 2):
        return Unsupported(f"a result of shape {list(op.out.shape)} for {length} points")
    loops = named(op.out.shape, axis)
    values = real_table(points, bins, length) if real else table(points, bins, length, parts, inverse)
    index = [var("n") if p == axis else var(i.name) for p, i in enumerate(loops)]
    index[-1] = var("d") if parts > 1 else ZERO
    return transformed(op, loops, Read(x, tuple(index)), op.weight(values, "waves"), sums(points, parts))


def stft(op: Op) -> Result:
    """Y[b, f, k, c] = Σ[n, d] X[b, step·f + n, d] window[n] T[n, d, k, c]; a window that is known is part of the table."""
    x = op.input(0).tensor
    step = int(op.constant(1).reshape(-1)[0])
    length = int(op.constant(3).reshape(-1)[0]) if op.given(3) else op.input(2).shape[0] if op.given(2) else x.shape[1]
    parts = x.shape[2] if len(x.shape) == 3 else 1
    _, frames, bins, _ = op.out.shape
    wanted = length // 2 + 1 if op.integer("onesided", 1) else length
    if parts not in (1, 2) or step < 1 or (frames - 1) * step + length > x.shape[1] or bins != wanted:
        return Unsupported(f"{frames} frames of {length} points and {bins} bins, {step} apart, in a signal of shape {list(x.shape)}")
    if op.given(2) and op.input(2).shape != (length,):
        return Unsupported(f"a window of shape {list(op.input(2).shape)} for frames of {length}")
    loops = named(op.out.shape, 2)
    batch, frame = var(loops[0].name), var(loops[1].name)
    weight = op.weight(table(length, bins, length, parts, False), "waves")

    def signal(n: Index, d: Index) -> Read:
        return Read(x, (batch, frame * step + n, *([d] if len(x.shape) == 3 else [])))

    data: Body = signal(var("n"), var("d") if parts > 1 else ZERO)
    if op.given(2) and op.input(2).tensor.weight:
        i, rest = loops_of(weight.shape)[0], loops_of(weight.shape)
        window = op.read(2, (var(i.name),))
        weight = op.step(Scope(rest, (), make_mul((window, Read(weight, indices(rest))))), "windowed")
    elif op.given(2):
        shape = (*loops[:2], *sums(length, parts))
        framed = op.step(Scope(shape, (), make_mul((data, op.read(2, (var("n"),))))), "framed")
        data = Read(framed, indices(shape))
    return transformed(op, loops, data, weight, sums(length, parts))


FOURIER: dict[str, Function] = {"DFT": dft, "STFT": stft}
