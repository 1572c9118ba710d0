"""Conv and ConvTranspose in any number of dimensions."""

from __future__ import annotations

from einnet.expr.index import Index, var
from einnet.expr.nodes import Iter, Read, Scope, make_mul
from einnet.graph.operators.builders import spatial_names, tap_names, with_channel_bias
from einnet.graph.operators.op import Inexpressible, Op, Result, Unsupported
from einnet.graph.operators.window import per_axis, window


def iters(names: tuple[str, ...], extents: tuple[int, ...]) -> tuple[Iter, ...]:
    return tuple(Iter(name, 0, n) for name, n in zip(names, extents))


def group_channel(group_size: int, outputs_per_group: int, groups: int) -> Index:
    """The input channel that output channel f and summand c of its group read."""
    return var("c") if groups == 1 else var("f") // outputs_per_group * group_size + var("c")


def conv(op: Op) -> Result:
    """Y[n,f,h,w] = Σ[c,r,s] X[n, f//Fg·Cg + c, h·stride + r·dilation - pad, ..] W[f,c,r,s] + B[f]."""
    x, w = op.input(0).tensor, op.input(1).tensor
    rank, groups = len(w.shape) - 2, op.integer("group", 1)
    if rank < 1:
        return Unsupported("a convolution without spatial dimensions")
    if groups < 1 or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        return Unsupported(f"{x.shape[1]} channels and filters {list(w.shape)} in {groups} groups")
    win = window(op, w.shape[2:], x.shape[2:], op.out.shape[2:])
    spatial, taps = spatial_names(rank), tap_names(rank)
    loops = iters(("n", "f", *spatial), op.out.shape)
    sums = iters(("c", *taps), w.shape[1:])
    data = Read(
        x,
        (var("n"), group_channel(w.shape[1], w.shape[0] // groups, groups), *(win.position(k, spatial[k], taps[k]) for k in range(rank))),
    )
    weight = Read(w, (var("f"), var("c"), *map(var, taps)))
    return with_channel_bias(op, Scope(loops, sums, make_mul((data, weight))), op.input(2) if op.given(2) else None, "conv")


def transposed_padding(op: Op, source: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """What is cut off before the first element of a ConvTranspose's result, per spatial dimension."""
    rank = len(kernel)
    strides, dilations = per_axis(op, "strides", rank, 1), per_axis(op, "dilations", rank, 1)
    extra = per_axis(op, "output_padding", rank, 0)
    mode = op.string("auto_pad", "NOTSET")
    shape = op.integers("output_shape")
    if shape is None and mode in ("NOTSET", "", "VALID"):
        return (op.integers("pads") or (0,) * (2 * rank))[:rank] if mode != "VALID" else (0,) * rank
    if mode not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Inexpressible(f"auto_pad {mode!r} is not known")
    target = shape[-rank:] if shape is not None else op.out.shape[2:]
    before = []
    for n, k, s, d, e, m in zip(source, kernel, strides, dilations, extra, target):
        total = max(s * (n - 1) + e + (k - 1) * d + 1 - m, 0)
        before.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return tuple(before)


def conv_transpose(op: Op) -> Result:
    """Y[n,f,h,w] = Σ[c,r,s] X[n, c, (h + pad - r·dilation)/stride, ..] W[c,f,r,s] + B[f]; a read off the lattice is a read outside."""
    x, w = op.input(0).tensor, op.input(1).tensor
    rank, groups = len(w.shape) - 2, op.integer("group", 1)
    if rank < 1:
        return Unsupported("a convolution without spatial dimensions")
    if groups < 1 or w.shape[0] % groups or x.shape[1] != w.shape[0]:
        return Unsupported(f"{x.shape[1]} channels and filters {list(w.shape)} in {groups} groups")
    spatial, taps = spatial_names(rank), tap_names(rank)
    strides, dilations = per_axis(op, "strides", rank, 1), per_axis(op, "dilations", rank, 1)
    pads = transposed_padding(op, x.shape[2:], w.shape[2:])
    channels = w.shape[0] // groups
    loops = iters(("n", "f", *spatial), op.out.shape)
    sums = iters(("c", *taps), (channels, *w.shape[2:]))
    channel = group_channel(channels, w.shape[1], groups)
    place = ((var(loop) + pad - var(tap) * dilation) / stride for loop, tap, pad, stride, dilation in zip(spatial, taps, pads, strides, dilations))
    feature = var("f") if groups == 1 else var("f") % w.shape[1]
    body = make_mul((Read(x, (var("n"), channel, *place)), Read(w, (channel, feature, *map(var, taps)))))
    return with_channel_bias(op, Scope(loops, sums, body), op.input(2) if op.given(2) else None, "conv")
