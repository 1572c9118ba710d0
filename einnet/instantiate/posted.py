"""What a vendor kernel applies to its result, as a generated kernel of its own; and which of it loses NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import isinf

from einnet.expr.index import as_index, var
from einnet.expr.nodes import Body, Call, Const, Iter, Read, Scope, Tensor, make_add, make_mul
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, Post, View


def loses_nan(post: Post) -> bool:
    """oneDNN takes a maximum with a bound that keeps NaN in its other operand; a slope below 0 it multiplies by, which keeps NaN."""
    return post.kind == "clip" or (post.kind == "relu" and post.alpha == 0.0)


def nan_lost(kernel: Kernel) -> bool:
    """A vendor kernel that gives a number where its product is NaN."""
    return isinstance(kernel, (Matmul, Conv)) and any(map(loses_nan, kernel.post))


def keeping_nan(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernel; one that loses NaN without its posts from the first that does, and a generated kernel that applies them in place."""
    if not isinstance(kernel, (Matmul, Conv)) or not nan_lost(kernel):
        return (kernel,)
    first = next(n for n, p in enumerate(kernel.post) if loses_nan(p))
    out = kernel.c if isinstance(kernel, Matmul) else kernel.y
    return replace(kernel, post=kernel.post[:first]), posted(out, kernel.post[first:], out)


def posted(source: View, posts: Sequence[Post], out: View) -> EOperator:
    """out = posts(source), element by element."""
    loops = tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(out.shape))
    here = tuple(var(i.name) for i in loops)
    operands = [("Y", source)]
    body: Body = Read(Tensor("Y", source.shape), here)
    for n, post in enumerate(posts):
        read: Read | None = None
        if post.operand is not None:
            tensor = Tensor(f"P{n}", post.operand.shape)
            read = Read(tensor, tuple(e if extent > 1 else as_index(0) for e, extent in zip(here, tensor.shape, strict=True)))
            operands.append((tensor.name, post.operand))
        body = applied(post, body, read)
    return EOperator(Scope(loops, (), body), tuple(operands), out)


def applied(post: Post, y: Body, operand: Read | None) -> Body:
    """The expression of a post."""
    match post.kind:
        case "add" | "mul":
            assert operand is not None
            return make_add((y, operand)) if post.kind == "add" else make_mul((y, operand))
        case "relu" if post.alpha == 0.0:
            return Call("relu", (y,))
        case "relu":
            below = make_mul((number(post.alpha), Call("min", (y, number(0.0)))))
            return make_add((Call("relu", (y,)), below))
        case "tanh" | "sigmoid":
            return Call(post.kind, (y,))
        case "clip":
            raised = y if isinf(post.alpha) else Call("max", (y, number(post.alpha)))
            return raised if isinf(post.beta) else Call("min", (raised, number(post.beta)))
        case "linear":
            return make_add((make_mul((number(post.alpha), y)), number(post.beta)))
    raise ValueError(post.kind)


def number(value: float) -> Const:
    return Const(Fraction(value))
