"""What each kernel of a plan computes, as an expression over what its views show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from einnet.evidence.addresses import NotLifted, loops_of
from einnet.evidence.contents import Value, from_zero
from einnet.expr.index import Index, combine, var
from einnet.expr.nodes import Body, Call, Const, Iter, Mul, Number, Read, Scope, indices, make_add, make_mul, tensors
from einnet.graph.rewrite import exchange_in
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, Post, View

Borders = Callable[[View, int], frozenset[int]]
"""Where along a dimension of a view those dimensions begin and end in which it was written."""


@dataclass(frozen=True)
class Shown:
    """What views show now."""

    value: Callable[[View], Value]
    borders: Borders = lambda view, dimension: frozenset()

    def __call__(self, view: View) -> Value:
        return self.value(view)


Rational = Callable[[float], Number]
"""The number of the model that a kernel's parameter stands for."""


def meaning(kernel: Kernel, shown: Shown, rational: Rational) -> Scope:
    """The kernel's result over loops from 0 in the order of its result view's dimensions. Raises NotLifted."""
    match kernel:
        case Matmul(post=post):
            return with_posts(matmul(kernel, shown), post, shown, rational)
        case Conv(post=post):
            return with_posts(transposed(kernel, shown) if kernel.transposed else conv(kernel, shown), post, shown, rational)
        case EOperator():
            return generated(kernel, shown)
    raise NotLifted(f"a {type(kernel).__name__} has no expression")


def matmul(kernel: Matmul, shown: Shown) -> Scope:
    """Σ_k a[..., m, k] b[..., k, n]."""
    loops = loops_of(kernel.c.shape)
    sums, k = divided("k", kernel.a.shape[-1], shown.borders(kernel.a, -1) | shown.borders(kernel.b, -2))
    *batch, m, n = indices(loops)
    a = Read(shown(kernel.a), (*broadcast(kernel.a.shape[:-2], batch), m, k))
    b = Read(shown(kernel.b), (*broadcast(kernel.b.shape[:-2], batch), k, n))
    return Scope(loops, sums, Mul((a, b)))


def divided(name: str, extent: int, borders: frozenset[int]) -> tuple[tuple[Iter, ...], Index]:
    """An iterator as several, divided at borders that divide each other, and its value by them."""
    chain = sorted({1, extent, *borders}, reverse=True)
    if any(a % b for a, b in pairwise(chain)) or len(chain) < 3:
        return (Iter(name, 0, extent),), var(name)
    digits = tuple(Iter(f"{name}{d}", 0, a // b) for d, (a, b) in enumerate(pairwise(chain)))
    return digits, combine(*((var(i.name), b) for i, b in zip(digits, chain[1:])))


def broadcast(shape: Sequence[int], index: Sequence[Index]) -> tuple[Index, ...]:
    """The last dimensions of an index for an operand of a shape: 0 where its extent is 1."""
    return tuple(ix if n > 1 else Index() for n, ix in zip(shape, index[len(index) - len(shape) :], strict=True))


def conv(kernel: Conv, shown: Shown) -> Scope:
    """y[n, g·f, o...] = Σ_{c, r...} x[n, g·c, o·stride + r·dilation - pad...] w[g, f, c, r...]."""
    _, filters, channels, *taps = kernel.w.shape
    loops = loops_of(kernel.y.shape)
    n, channel, *o = indices(loops)
    sums = (Iter("c", 0, channels), *(Iter(f"r{d}", 0, extent) for d, extent in enumerate(taps)))
    c, *r = indices(sums)
    group = channel // filters
    at = (ox * s + rx * d - p for ox, rx, s, d, p in zip(o, r, kernel.strides, kernel.dilations, kernel.pads_begin, strict=True))
    x = Read(shown(kernel.x), (n, group * channels + c, *at))
    w = Read(shown(kernel.w), (group, channel - group * filters, c, *r))
    return Scope(loops, sums, Mul((x, w)))


def transposed(kernel: Conv, shown: Shown) -> Scope:
    """y[n, g·f, o...] = Σ_{c, r...} x[n, g·c, (o + pad - r·dilation)/stride...] w[g, f, c, r...]; fractions lie outside."""
    _, filters, channels, *taps = kernel.w.shape
    loops = loops_of(kernel.y.shape)
    n, channel, *o = indices(loops)
    sums = (Iter("c", 0, channels), *(Iter(f"r{d}", 0, extent) for d, extent in enumerate(taps)))
    c, *r = indices(sums)
    group = channel // filters
    at = ((ox + p - rx * d) / s for ox, rx, s, d, p in zip(o, r, kernel.strides, kernel.dilations, kernel.pads_begin, strict=True))
    x = Read(shown(kernel.x), (n, group * channels + c, *at))
    w = Read(shown(kernel.w), (group, channel - group * filters, c, *r))
    return Scope(loops, sums, Mul((x, w)))


def with_posts(result: Scope, posts: Sequence[Post], shown: Shown, rational: Rational) -> Scope:
    """The result with operations applied in order."""
    if not posts:
        return result
    index = indices(result.loops)
    body: Body = Read(result, index)
    for post in posts:
        body = applied(post, body, index, shown, rational)
    return Scope(result.loops, (), body)


def applied(post: Post, y: Body, index: tuple[Index, ...], shown: Shown, rational: Rational) -> Body:
    """One operation on a result."""
    if post.operand is not None:
        operand = Read(shown(post.operand), broadcast(post.operand.shape, index))
        if post.kind not in ("add", "mul"):
            raise NotLifted(f"{post.kind} takes no operand")
        return make_add((y, operand)) if post.kind == "add" else make_mul((y, operand))
    alpha, beta = (Const(rational(x)) for x in (post.alpha, post.beta))
    match post.kind:
        case "relu" if post.alpha == 0:
            return Call("relu", (y,))
        case "relu":
            return make_add((Call("relu", (y,)), make_mul((Const(-alpha.value), Call("relu", (make_mul((Const(Fraction(-1)), y)),))))))
        case "tanh" | "sigmoid":
            return Call(post.kind, (y,))
        case "clip":
            return Call("min", (Call("max", (y, alpha)), beta))
        case "linear":
            y = y if post.alpha == 1 else make_mul((y, alpha))
            return y if post.beta == 0 else make_add((y, beta))
    raise NotLifted(f"{post.kind} on a result has no expression")


def generated(kernel: EOperator, shown: Shown) -> Scope:
    """The scope over what its operands' views show; tensors that carry their values stay."""
    declared = tensors(kernel.scope)
    views = dict(kernel.operands)
    if declared.keys() - views.keys() or kernel.scope.shape != kernel.out.shape:
        raise NotLifted("a generated kernel without a view for each tensor, or with a result of another shape")
    given: dict[str, Value] = {}
    for name, tensor in declared.items():
        if tensor.shape != views[name].shape:
            raise NotLifted(f"tensor {name}{list(tensor.shape)} is given {views[name]}")
        if tensor.values is None:
            given[name] = shown(views[name])
    return from_zero(exchange_in(kernel.scope, given))
