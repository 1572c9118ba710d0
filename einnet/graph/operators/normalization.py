"""Normalisations as chains: mean, centred values, variance, scale and shift."""

from __future__ import annotations

from fractions import Fraction

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Call, Const, Iter, Read, Scope, Tensor, make_add, make_div, make_mul, read
from einnet.graph.operators.builders import at, broadcast_index, channel_read, divided, loops_of, scaled, subtract
from einnet.graph.operators.op import Function, Op, Result, Unsupported
from einnet.graph.operators.reduction import Reduction, over, square


def inverse_deviation(variance: Body, epsilon: Fraction) -> Body:
    """1 / sqrt(variance + epsilon)."""
    return make_div(Const(Fraction(1)), Call("sqrt", (make_add((variance, Const(epsilon))),)))


def batch_normalization(op: Op) -> Result:
    """x·a[c] + b[c], where a = scale / sqrt(var + epsilon) and b = shift - mean·a."""
    if op.integer("training_mode", 0) or not op.integer("spatial", 1) or (op.version < 7 and not op.integer("is_test", 0)):
        return Unsupported("batch normalisation in training mode or over more than the channel")
    scale, shift, mean, variance = (op.input(n).tensor for n in range(1, 5))
    channel = (Iter("c", 0, scale.shape[0]),)
    inverse = inverse_deviation(read(variance, "c"), op.real("epsilon", 1e-5))
    factor = op.step(Scope(channel, (), make_mul((read(scale, "c"), inverse))), "scale")
    offset = op.step(Scope(channel, (), subtract(read(shift, "c"), make_mul((read(mean, "c"), read(factor, "c"))))), "shift")
    loops = loops_of(op.out.shape)
    x = at(op.input(0).tensor, loops)
    return Scope(loops, (), make_add((make_mul((x, channel_read(factor, loops, 1))), channel_read(offset, loops, 1))))


def mean_over(op: Op, red: Reduction, body: Body, hint: str) -> Tensor:
    """Σ body / count, in two steps."""
    total = op.step(red.scope(body), f"{hint}_sum")
    return op.step(Scope(red.loops, (), divided(at(total, red.loops), red.count)), hint)


def standardised(op: Op, red: Reduction) -> tuple[Body, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon) at the loops of x; the mean; the inverse deviation."""
    x = op.input(0).tensor
    mean = mean_over(op, red, at(x, red.full), "mean")
    centred = op.step(Scope(red.full, (), subtract(at(x, red.full), red.back(mean))), "centred")
    variance = mean_over(op, red, square(at(centred, red.full)), "variance")
    inverse = op.step(Scope(red.loops, (), inverse_deviation(at(variance, red.loops), op.real("epsilon", 1e-5))), "inverse")
    return make_mul((at(centred, red.full), red.back(inverse))), mean, inverse


def layer_normalization(op: Op) -> Result:
    """Over all dimensions from `axis` on; mean and inverse deviation are optional results."""
    shape = op.input(0).shape
    red = over(shape, range(op.integer("axis", -1) % len(shape), len(shape)))
    body, mean, inverse = standardised(op, red)
    body = make_mul((body, op.read(1, broadcast_index(op.input(1).shape, red.full))))
    if op.given(2):
        body = make_add((body, op.read(2, broadcast_index(op.input(2).shape, red.full))))
    extra = tuple(Scope(red.loops, (), at(t, red.loops)) if op.wants(n) else None for n, t in ((1, mean), (2, inverse)))
    return (Scope(red.full, (), body), *extra[: len(op.outputs) - 1])


def instance_normalization(op: Op) -> Result:
    """Over the spatial dimensions of each image and channel."""
    shape = op.input(0).shape
    red = over(shape, range(2, len(shape)))
    body, _, _ = standardised(op, red)
    scale, shift = (channel_read(op.input(n).tensor, red.full, 1) for n in (1, 2))
    return Scope(red.full, (), make_add((make_mul((body, scale)), shift)))


def group_normalization(op: Op) -> Result:
    """Over the channels of a group and space; scale and shift belong to channels (opset 21; the older form was withdrawn)."""
    x = op.input(0).tensor
    groups = op.integer("num_groups", 1)
    size = x.shape[1] // groups
    loops = loops_of(x.shape)
    grouped = (loops[0], Iter("g", 0, groups))
    sums = (Iter("c'", 0, size), *loops[2:])
    count = Reduction(sums, tuple(range(len(sums))), False).count
    space: tuple[Index, ...] = tuple(var(i.name) for i in loops[2:])
    group = var(loops[1].name) // size

    def mean(body: Body, hint: str) -> Tensor:
        total = op.step(Scope(grouped, sums, body), f"{hint}_sum")
        return op.step(Scope(grouped, (), divided(at(total, grouped), count)), hint)

    inside = (var(loops[0].name), var("g") * size + var("c'"), *space)
    average = mean(Read(x, inside), "mean")
    centred = op.step(Scope(loops, (), subtract(at(x, loops), read(average, loops[0].name, group))), "centred")
    variance = mean(square(Read(centred, inside)), "variance")
    inverse = op.step(Scope(grouped, (), inverse_deviation(at(variance, grouped), op.real("epsilon", 1e-5))), "inverse")
    scale, shift = (channel_read(op.input(n).tensor, loops, 1) for n in (1, 2))
    return Scope(loops, (), make_add((make_mul((at(centred, loops), read(inverse, loops[0].name, group), scale)), shift)))


def rms_normalization(op: Op) -> Result:
    """x / sqrt(mean x² + epsilon) · scale over all dimensions from `axis` on."""
    x = op.input(0).tensor
    red = over(x.shape, range(op.integer("axis", -1) % len(x.shape), len(x.shape)))
    power = mean_over(op, red, square(at(x, red.full)), "power")
    inverse = op.step(Scope(red.loops, (), inverse_deviation(at(power, red.loops), op.real("epsilon", 1e-5))), "inverse")
    scale = op.read(1, broadcast_index(op.input(1).shape, red.full))
    return Scope(red.full, (), make_mul((at(x, red.full), red.back(inverse), scale)))


def local_response(op: Op) -> Result:
    """x / (bias + alpha/size · Σ x² over neighbouring channels) ** beta."""
    x = op.input(0).tensor
    size = op.integer("size", 1)
    loops = loops_of(x.shape)
    n, c, *space = (var(i.name) for i in loops)
    neighbour = Read(x, (n, c + var("k") - (size - 1) // 2, *space))
    total = op.step(Scope(loops, (Iter("k", 0, size),), square(neighbour)), "squares")
    base = make_add((scaled(at(total, loops), op.real("alpha", 1e-4) / size), Const(op.real("bias", 1.0))))
    return Scope(loops, (), make_div(at(x, loops), Call("pow", (base, Const(op.real("beta", 0.75))))))


NORMALIZATION: dict[str, Function] = {
    "BatchNormalization": batch_normalization,
    "LayerNormalization": layer_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    "RMSNormalization": rms_normalization,
    "LRN": local_response,
}
